//! The registry as Python sees it.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Density, Layout};

use crate::config;

/// The algorithm of that name with options given by name.
pub(crate) fn build(
    method: &str,
    value_type: Option<&str>,
    options: Option<BTreeMap<String, String>>,
) -> PyResult<Box<dyn Algorithm>> {
    if method == "auto" {
        return Err(config(
            "method 'auto' is chosen by measuring between workers: make them with what spardl.tune says",
        ));
    }
    let mut all = Options {
        set: options.unwrap_or_default(),
        ..Options::default()
    };
    if let Some(name) = value_type {
        all.codec.values = name.parse().map_err(config)?;
        let (_, named) = registry::find(method).map_err(config)?;
        if named.is_some_and(|named| named != all.codec.values) {
            let both =
                format!("method '{method}' names another value type than value_type = '{name}'");
            return Err(config(format!("{both}: use one of the two")));
        }
    }
    registry::build(method, &all).map_err(config)
}

/// The layout of a bucket: named shapes, or one flat part.
pub(crate) fn layout(n: u32, shapes: Option<Vec<(String, Vec<usize>)>>) -> PyResult<Layout> {
    let Some(shapes) = shapes else {
        return Ok(Layout::flat(n));
    };
    let layout = Layout::new(shapes).map_err(config)?;
    if layout.len() != n {
        return Err(config(format!(
            "the layout has {} elements, expected {n}",
            layout.len()
        )));
    }
    Ok(layout)
}

/// The names of all methods with one line each; each also runs as ``NAME-bf16``, ``-q8``, ``-q4``, ``-q2``, ``-q1``.
#[pyfunction]
pub(crate) fn methods(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for entry in registry::METHODS {
        all.set_item(entry.name, entry.summary)?;
    }
    Ok(all)
}

/// The idea of a method, a worked example, its cost, its options, and what differs from the authors' code.
#[pyfunction]
pub(crate) fn explain(name: &str) -> PyResult<String> {
    let (entry, _) = registry::find(name).map_err(config)?;
    let mut text = entry.explanation();
    if !entry.options.is_empty() {
        text.push_str("\nOptions:\n");
    }
    for (option, meaning) in entry.options {
        text.push_str(&format!("  {option}: {meaning}\n"));
    }
    Ok(text)
}

/// What a step costs the busiest of ``size`` workers at most, beside the bytes of a dense all-reduce.
#[pyfunction]
#[pyo3(signature = (method, n, size, *, density = 0.01, step = 0, value_type = None, options = None, layout = None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn cost<'py>(
    py: Python<'py>,
    method: &str,
    n: u32,
    size: u32,
    density: f64,
    step: u64,
    value_type: Option<&str>,
    options: Option<BTreeMap<String, String>>,
    layout: Option<Vec<(String, Vec<usize>)>>,
) -> PyResult<Bound<'py, PyDict>> {
    let algorithm = build(method, value_type, options)?;
    let layout = self::layout(n, layout)?;
    if size == 0 {
        return Err(config("a world has at least one worker, got 0"));
    }
    let k = entries(density, n as usize)?;
    let cost = algorithm.cost(size, &layout, k, step);
    let all = PyDict::new(py);
    all.set_item("rounds_min", cost.rounds.start())?;
    all.set_item("rounds_max", cost.rounds.end())?;
    all.set_item("messages", cost.messages)?;
    all.set_item("bytes_max", cost.bytes_max)?;
    let dense = 8 * u64::from(n) * u64::from(size - 1) / u64::from(size);
    all.set_item("dense_bytes", dense)?;
    Ok(all)
}

/// How many of `n` entries a density is: the library's rule, at least one of a bucket that is not empty.
pub(crate) fn entries(density: f64, n: usize) -> PyResult<usize> {
    Ok(Density::new(density).map_err(config)?.entries(n))
}
