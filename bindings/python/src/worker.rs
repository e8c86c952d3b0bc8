//! One worker's side of a repeated all-reduce, driven from Python.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use spardl::{Saved, SavedBucket};
use spardl_core::state::Array;
use spardl_core::{
    Collective, Gradient, Inbox, Input, MethodState, Outcome, Source, State, Step, Update, World,
};

use crate::memory::{self, Memory};
use crate::message::{Lent, Message};
use crate::{ConfigError, ProtocolError, config, methods, threads};

/// What a worker sends and awaits before it can go on.
#[pyclass(frozen, get_all, module = "spardl")]
#[derive(Debug)]
pub(crate) struct Round {
    /// The number of the round within the step, from 0.
    number: u32,
    /// Receivers with their messages.
    sends: Py<PyList>,
    /// Senders with a bound on the bytes of their messages, in the order that ``resume`` takes them.
    receives: Py<PyList>,
}

#[pymethods]
impl Round {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "Round({}, {} sends, {} receives)",
            self.number,
            self.sends.bind(py).len(),
            self.receives.bind(py).len()
        )
    }
}

/// One worker's side of a repeated all-reduce of ``n`` elements: it says what to exchange and never does it.
///
/// ``begin`` a step with a gradient, move the round it returns, ``resume`` with what was received, until there is no further
/// round; then ``write`` the update and ``commit``, or ``abort``. :func:`spardl.drive` does all that.
#[pyclass(frozen, module = "spardl")]
#[derive(Debug)]
pub(crate) struct Worker {
    method: String,
    value_error: f32,
    world: World,
    n: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    collective: Collective,
    density: f64,
    step: u64,
    outcome: Option<Outcome>,
    counts: Counts,
}

/// What the current step cost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    rounds: u32,
    messages: u64,
    bytes_sent: u64,
}

#[pymethods]
impl Worker {
    #[new]
    #[pyo3(signature = (method, n, rank = 0, size = 1, *, density = 0.01, value_type = None, options = None, layout = None, bucket = 0, threads = 1))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        method: &str,
        n: u32,
        rank: u32,
        size: u32,
        density: f64,
        value_type: Option<&str>,
        options: Option<BTreeMap<String, String>>,
        layout: Option<Vec<(String, Vec<usize>)>>,
        bucket: u32,
        threads: usize,
    ) -> PyResult<Self> {
        let algorithm = methods::build(method, value_type, options)?;
        let layout = methods::layout(n, layout)?;
        let world = World::new(rank, size).map_err(config)?;
        methods::entries(density, 0)?;
        let mut collective = py
            .detach(|| algorithm.collective(world, &layout))
            .map_err(config)?;
        collective.set_bucket(bucket);
        collective.set_threads(threads::shared(threads)?);
        Ok(Self {
            method: algorithm.describe(),
            value_error: algorithm.value_type().max_relative_error(),
            world,
            n: n as usize,
            inner: Mutex::new(Inner {
                collective,
                density,
                step: 0,
                outcome: None,
                counts: Counts::default(),
            }),
        })
    }

    /// Starts a step with ``scale`` times the gradient, in one array or several; a new ``density`` stays.
    ///
    /// With ``finite`` false all workers skip the step. Density and step must be equal on all workers. Returns the first round,
    /// or None when there is nothing to exchange.
    #[pyo3(signature = (gradient, *, density = None, step = None, scale = 1.0, finite = true))]
    fn begin(
        &self,
        py: Python<'_>,
        gradient: &Bound<'_, PyAny>,
        density: Option<f64>,
        step: Option<u64>,
        scale: f32,
        finite: bool,
    ) -> PyResult<Option<Round>> {
        let arrays = Memory::borrow_all(gradient)?;
        let next = py.detach(|| {
            let mut inner = self.lock();
            let density = density.unwrap_or(inner.density);
            let k = methods::entries(density, self.n)?;
            let step = step.unwrap_or(inner.step);
            let next = inner.begin(&arrays, k, step, scale, finite)?;
            (inner.density, inner.step) = (density, step);
            Ok::<_, PyErr>(next)
        })?;
        round(py, next)
    }

    /// Takes the messages of the round, in the order of its ``receives``; None when the step is over.
    fn resume(&self, py: Python<'_>, inbox: Vec<Bound<'_, PyAny>>) -> PyResult<Option<Round>> {
        let lent = Lent::borrow(&inbox)?;
        let next = py.detach(|| {
            let inbox = Inbox::borrowed(lent.bytes());
            let mut inner = self.lock();
            let next = inner.collective.resume(inbox);
            let next = next.map_err(|error| ProtocolError::new_err(error.to_string()))?;
            Ok::<_, PyErr>(inner.note(next))
        })?;
        round(py, next)
    }

    /// Writes the update times ``scale`` over ``out``; without it the mean over workers.
    #[pyo3(signature = (out, *, scale = None))]
    fn write(&self, py: Python<'_>, out: &Bound<'_, PyAny>, scale: Option<f32>) -> PyResult<()> {
        let mut arrays = Memory::borrow_all(out)?;
        self.check_len(memory::total(&arrays))?;
        arrays.iter().try_for_each(Memory::check_writable)?;
        let scale = scale.unwrap_or(1.0 / self.world.size() as f32);
        py.detach(|| write_scaled(&self.lock().collective.update(), scale, &mut arrays));
        Ok(())
    }

    /// Makes the finished step final: what was not delivered is the new residual.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut inner = self.lock();
            inner.collective.commit().map_err(config)?;
            inner.step += 1;
            Ok(())
        })
    }

    /// Drops the current step at any point; everything is as before its ``begin``.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.lock().collective.abort());
    }

    /// Copies the residual from element ``start`` on into ``out`` (float32).
    #[pyo3(signature = (out, start = 0))]
    fn read_residual(&self, py: Python<'_>, out: &Bound<'_, PyAny>, start: usize) -> PyResult<()> {
        let mut out = Memory::borrow(out)?;
        py.detach(|| {
            let inner = self.lock();
            let residual = inner.collective.residual();
            let len = out.len();
            let part = part(residual.len(), start, len)?;
            out.f32_mut()?.copy_from_slice(&residual[part]);
            Ok(())
        })
    }

    /// Replaces the residual from element ``start`` on, or adds to it.
    #[pyo3(signature = (values, start = 0, *, add = false))]
    fn write_residual(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        start: usize,
        add: bool,
    ) -> PyResult<()> {
        let values = Memory::borrow(values)?;
        py.detach(|| {
            let mut inner = self.lock();
            part(inner.collective.residual().len(), start, values.len())?;
            let source = values.values();
            let values: Vec<f32> = (0..source.len()).map(|i| source.get(i)).collect();
            let written = if add {
                inner.collective.add_to_residual(start, &values)
            } else {
                inner.collective.write_residual(start, &values)
            };
            written.map_err(config)
        })
    }

    /// After ``commit``: adds what was delivered for these elements to this worker's residual.
    ///
    /// For elements whose update nobody used; exactly one worker does it.
    fn return_update(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<()> {
        py.detach(|| {
            let mut inner = self.lock();
            let residual = inner.collective.residual();
            let part = part(residual.len(), start, stop.saturating_sub(start))?;
            let mut values = vec![0.0; part.len()];
            match inner.collective.update() {
                Update::Dense(dense) => values.copy_from_slice(&dense[part]),
                Update::Sparse(sparse) => {
                    for (index, value) in sparse.iter() {
                        if part.contains(&(index as usize)) {
                            values[index as usize - start] = value;
                        }
                    }
                }
            }
            let given = inner.collective.add_to_residual(start, &values);
            given.map_err(config)
        })
    }

    /// The Euclidean norm of the residual.
    #[getter]
    fn residual_norm(&self, py: Python<'_>) -> f64 {
        py.detach(|| {
            let inner = self.lock();
            sum_of_squares(inner.collective.residual()).sqrt()
        })
    }

    /// Does the method keep a residual?
    #[getter]
    fn keeps_residual(&self, py: Python<'_>) -> bool {
        py.detach(|| !self.lock().collective.residual().is_empty())
    }

    /// The small state that lives on besides the residual: thresholds, partitions, counters.
    fn method_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = py.detach(|| self.lock().collective.state().method);
        let all = PyDict::new(py);
        for (name, array) in state.arrays() {
            match array {
                Array::F32(values) => all.set_item(name, ("f32", values))?,
                Array::U64(values) => all.set_item(name, ("u64", values))?,
            }
        }
        Ok(all)
    }

    /// Takes back what ``method_state`` gave.
    fn set_method_state(
        &self,
        py: Python<'_>,
        state: BTreeMap<String, (String, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let mut method = MethodState::default();
        for (name, (kind, values)) in state {
            let array = match kind.as_str() {
                "f32" => Array::F32(values.extract()?),
                "u64" => Array::U64(values.extract()?),
                other => return Err(config(format!("'{other}' is not f32 or u64"))),
            };
            method.insert(name, array);
        }
        py.detach(|| {
            let mut inner = self.lock();
            let residual = inner.collective.residual().to_vec();
            let state = State { residual, method };
            inner.collective.restore(&state).map_err(config)
        })
    }

    /// Everything that lives on (residual, state of the method, number of the next step) as the bytes of a safetensors file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| {
            let inner = self.lock();
            let state = inner.collective.state();
            let len = self.n as u64;
            let saved = Saved {
                method: self.method.clone(),
                step: inner.step,
                warming_up: false,
                buckets: vec![SavedBucket { len, state }],
            };
            saved.to_bytes()
        });
        PyBytes::new(py, &bytes)
    }

    /// Takes back what ``to_bytes`` of the same method and length gave, and goes on bit for bit.
    fn load_bytes(&self, py: Python<'_>, saved: Bound<'_, PyAny>) -> PyResult<()> {
        let lent = Lent::borrow(std::slice::from_ref(&saved))?;
        py.detach(|| {
            let bytes = lent.bytes().next().unwrap_or_default();
            let saved = Saved::from_bytes(bytes).map_err(config)?;
            let found = saved.buckets.iter().map(|bucket| bucket.len);
            if saved.method != self.method || !found.eq([self.n as u64]) {
                let found: Vec<u64> = saved.buckets.iter().map(|bucket| bucket.len).collect();
                return Err(config(format!(
                    "the saved state is of `{}` with buckets of {found:?} elements, expected `{}` with [{}]",
                    saved.method, self.method, self.n
                )));
            }
            let mut inner = self.lock();
            let restored = inner.collective.restore(&saved.buckets[0].state);
            restored.map_err(config)?;
            inner.step = saved.step;
            Ok(())
        })
    }

    /// What the last step cost.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (counts, tally, nnz) = py.detach(|| {
            let inner = self.lock();
            let nnz = inner.collective.update().nnz();
            (inner.counts, inner.collective.stats(), nnz)
        });
        let all = PyDict::new(py);
        all.set_item("rounds", counts.rounds)?;
        all.set_item("messages", counts.messages)?;
        all.set_item("bytes_sent", counts.bytes_sent)?;
        all.set_item("nnz", nnz)?;
        all.set_item("rescans", tally.rescans)?;
        all.set_item("selected", tally.selected)?;
        Ok(all)
    }

    /// ``"updated"`` or ``"skipped: ..."`` after the last round, else None.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> Option<String> {
        match py.detach(|| self.lock().outcome)? {
            Outcome::Updated => Some("updated".to_owned()),
            Outcome::Skipped(reason) => Some(format!("skipped: {reason}")),
        }
    }

    /// The number of the next step; ``commit`` counts.
    #[getter]
    fn step(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().step)
    }

    #[setter]
    fn set_step(&self, py: Python<'_>, step: u64) {
        py.detach(|| self.lock().step = step);
    }

    /// The whole configuration in one line.
    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    /// The largest relative error of a value on its way; it stays in the residual.
    #[getter]
    const fn value_error(&self) -> f32 {
        self.value_error
    }

    /// The number of elements.
    #[getter]
    const fn n(&self) -> usize {
        self.n
    }

    /// The number of this worker.
    #[getter]
    fn rank(&self) -> u32 {
        self.world.rank().get()
    }

    /// The number of workers.
    #[getter]
    const fn size(&self) -> u32 {
        self.world.size()
    }

    fn __repr__(&self) -> String {
        format!(
            "Worker({}, n={}, rank={}, size={})",
            self.method,
            self.n,
            self.world.rank(),
            self.world.size()
        )
    }
}

impl Worker {
    /// Called without the GIL: a thread that waits here must not hold it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_len(&self, got: usize) -> PyResult<()> {
        if got == self.n {
            return Ok(());
        }
        Err(ConfigError::new_err(format!(
            "the arrays have {got} elements, but this worker was made for {}",
            self.n
        )))
    }
}

impl Inner {
    fn begin(
        &mut self,
        arrays: &[Memory],
        k: usize,
        step: u64,
        scale: f32,
        finite: bool,
    ) -> PyResult<Step> {
        let slices: Vec<Source<'_>> = arrays.iter().map(Memory::values).collect();
        let gradient = match slices.as_slice() {
            [one] => Gradient::from(*one),
            several => Gradient::of_slices(several),
        };
        let input = Input::new(gradient.scaled(scale), k, step).finite(finite);
        let next = self.collective.begin(input).map_err(config)?;
        self.counts = Counts::default();
        self.outcome = None;
        Ok(self.note(next))
    }

    fn note(&mut self, next: Step) -> Step {
        match &next {
            Step::Exchange(round) => {
                self.counts.rounds += 1;
                self.counts.messages += round.sends.len() as u64;
                let bytes = round
                    .sends
                    .iter()
                    .map(|send| send.payload.wire_len() as u64);
                self.counts.bytes_sent += bytes.sum::<u64>();
            }
            Step::Done(outcome) => self.outcome = Some(*outcome),
        }
        next
    }
}

/// Several sums at once: a single one would wait for itself at every addition.
fn sum_of_squares(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f64; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*value).powi(2);
        }
    }
    let rest = rest.iter().map(|value| f64::from(*value).powi(2));
    sums.into_iter().chain(rest).sum()
}

fn part(len: usize, start: usize, count: usize) -> PyResult<std::ops::Range<usize>> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(ConfigError::new_err(format!(
            "elements {start} to {} lie outside a residual of {len} elements",
            start.saturating_add(count)
        ))),
    }
}

fn round(py: Python<'_>, step: Step) -> PyResult<Option<Round>> {
    let Step::Exchange(round) = step else {
        return Ok(None);
    };
    let sends = PyList::empty(py);
    for send in round.sends {
        let message = Py::new(py, Message::new(send.payload.into_wire()))?;
        sends.append((send.to.get(), message))?;
    }
    let receives = round
        .recvs
        .iter()
        .map(|recv| (recv.from.get(), recv.max_bytes));
    Ok(Some(Round {
        number: round.seq,
        sends: sends.unbind(),
        receives: PyList::new(py, receives)?.unbind(),
    }))
}

fn write_scaled(update: &Update<'_>, scale: f32, arrays: &mut [Memory]) {
    let mut start = 0;
    for array in arrays {
        let range = start..start + array.len();
        start = range.end;
        if let Some(out) = array.as_f32_mut() {
            update.write_part(range.start, scale, out);
            continue;
        }
        match update {
            Update::Sparse(sparse) => {
                let inside =
                    |bound: usize| sparse.indices().partition_point(|&i| (i as usize) < bound);
                let entries = inside(range.start)..inside(range.end);
                let places = sparse.indices()[entries.clone()].iter();
                let places = places.map(|&index| index as usize - range.start);
                array.clear();
                array.set(places.zip(sparse.values()[entries].iter().map(|value| value * scale)));
            }
            Update::Dense(dense) => {
                let values = dense[range].iter().map(|value| value * scale);
                array.set(values.enumerate());
            }
        }
    }
}
