//! Which method is fastest between these workers: the library's tuner, over functions of Python.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use pyo3::prelude::*;
use spardl::Options;
use spardl::tune::{Choice, Space, Tuner};
use spardl_core::{Density, Inbox, Layout, Round, World};
use spardl_drive::{BucketId, Clock, Deadline, SystemClock, Transport, TransportError};

use crate::config;
use crate::message::{Lent, Message};

/// Rows of the table that a tuning prints.
const ROWS: usize = 10;

/// What :func:`tune` chose, and why; ``str(tuning)`` is a table.
#[pyclass(frozen, module = "spardl")]
#[derive(Debug)]
pub(crate) struct Tuning {
    /// A name of :func:`methods`, with its value type.
    #[pyo3(get)]
    method: String,
    /// Options of the method.
    #[pyo3(get)]
    options: BTreeMap<String, String>,
    /// What an exchange is expected to take.
    #[pyo3(get)]
    seconds: f64,
    /// The choice in a sentence.
    #[pyo3(get)]
    reason: String,
    tuning: spardl::tune::Tuning,
    layouts: Vec<Layout>,
}

#[pymethods]
impl Tuning {
    fn __str__(&self) -> String {
        self.tuning.text(ROWS)
    }

    fn __repr__(&self) -> String {
        format!("Tuning({}, {:?})", self.method, self.options)
    }

    /// What an exchange is expected to take at another density, in seconds.
    fn seconds_at(&self, py: Python<'_>, density: f64) -> PyResult<f64> {
        let density = Density::new(density).map_err(config)?;
        let nanos = py.detach(|| self.tuning.exchange_at(&self.layouts, density));
        Ok(nanos as f64 / 1e9)
    }
}

/// Measures between workers and says which method is fastest for buckets of these lengths, dense ones included.
///
/// ``isend`` and ``irecv`` are those of :func:`drive`. All workers must call it together, and all get the same answer. It takes
/// seconds: steps of every method that may win are tried. ``value_types`` are those to choose from, f32 and bf16 by default.
/// ``current`` is a method in use, with its options: it is chosen unless it should take a tenth longer than the fastest.
#[pyfunction]
#[pyo3(signature = (lengths, rank, size, isend, irecv, *, density = 0.01, value_types = None, current = None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn tune(
    py: Python<'_>,
    lengths: Vec<u32>,
    rank: u32,
    size: u32,
    isend: Py<PyAny>,
    irecv: Py<PyAny>,
    density: f64,
    value_types: Option<Vec<String>>,
    current: Option<(String, BTreeMap<String, String>)>,
) -> PyResult<Tuning> {
    let mut space = Space::default();
    if let Some(names) = value_types {
        let values = names.iter().map(|name| name.parse().map_err(config));
        space.values = values.collect::<PyResult<_>>()?;
    }
    let density = Density::new(density).map_err(config)?;
    let layouts: Vec<Layout> = lengths.into_iter().map(Layout::flat).collect();
    let mut functions = Functions {
        world: World::new(rank, size).map_err(config)?,
        clock: SystemClock::start(),
        isend,
        irecv,
        flight: None,
        inbox: None,
        error: None,
    };
    let mut tuner = Tuner::new().space(space);
    if let Some((method, options)) = current {
        let options = Options {
            set: options,
            ..Options::default()
        };
        tuner = tuner.stay_with(Choice::new(&method, options).map_err(config)?);
    }
    let tuned = py.detach(|| tuner.tune(&mut functions, &layouts, density));
    // What a function of Python raised says more than that an exchange failed.
    let tuning = tuned.map_err(|error| functions.error.take().unwrap_or_else(|| config(error)))?;
    Ok(Tuning {
        method: tuning.best().method().to_owned(),
        options: tuning.best().options().set.clone(),
        seconds: tuning.predicted().exchange() as f64 / 1e9,
        reason: tuning.in_words(),
        tuning,
        layouts,
    })
}

/// Room for messages whose length nobody knows before: what workers tell each other while they tune is shorter.
const SHORT: usize = 1 << 16;
/// A longer bound is none.
const UNBOUNDED: usize = usize::MAX >> 2;
/// What says the length of such a message, before it.
const PREFIX: usize = size_of::<u64>();

/// The functions that `spardl.drive` takes, as a transport. After an error it is of no further use.
struct Functions {
    world: World,
    clock: Arc<SystemClock>,
    isend: Py<PyAny>,
    irecv: Py<PyAny>,
    flight: Option<Flight>,
    inbox: Option<Lent>,
    error: Option<PyErr>,
}

/// A round under way.
struct Flight {
    bucket: BucketId,
    receives: Vec<Py<PyAny>>,
    sends: Vec<Py<PyAny>>,
    prefixed: bool,
}

impl Functions {
    fn start(&self, py: Python<'_>, bucket: BucketId, round: Round) -> PyResult<Flight> {
        let prefixed = round.recvs.iter().any(|recv| recv.max_bytes > UNBOUNDED);
        let receives = round.recvs.iter().map(|recv| {
            let room = if prefixed { SHORT } else { recv.max_bytes };
            self.irecv.call1(py, (recv.from.get(), room.max(1)))
        });
        let receives = receives.collect::<PyResult<_>>()?;
        let sends = round.sends.into_iter().map(|send| {
            let mut bytes = send.payload.into_wire();
            if prefixed {
                bytes.splice(0..0, (bytes.len() as u64).to_le_bytes());
            } else if bytes.is_empty() {
                // Not everything that sends bytes sends none.
                bytes.push(0);
            }
            let message = Py::new(py, Message::new(bytes))?;
            self.isend.call1(py, (send.to.get(), message))
        });
        let sends = sends.collect::<PyResult<_>>()?;
        Ok(Flight {
            bucket,
            receives,
            sends,
            prefixed,
        })
    }

    fn fails(&mut self, action: &str, error: PyErr) -> TransportError {
        let source = io::Error::other(error.to_string());
        self.error = Some(error);
        TransportError::Io {
            rank: self.world.rank(),
            action: action.to_owned(),
            source,
        }
    }
}

impl Flight {
    fn land(&self, py: Python<'_>) -> PyResult<Lent> {
        let wait = |request: &Py<PyAny>| Ok(request.call_method0(py, "wait")?.into_bound(py));
        let messages: Vec<Bound<'_, PyAny>> =
            self.receives.iter().map(wait).collect::<PyResult<_>>()?;
        for send in &self.sends {
            wait(send)?;
        }
        Lent::borrow(&messages)
    }
}

/// A message without the length before it, and without what is behind it.
fn unwrapped(bytes: &[u8]) -> &[u8] {
    let (length, rest) = bytes
        .split_first_chunk::<PREFIX>()
        .unwrap_or((&[0; PREFIX], &[]));
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    &rest[..length.min(rest.len())]
}

impl Transport for Functions {
    fn world(&self) -> World {
        self.world
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::<SystemClock>::clone(&self.clock)
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let started = Python::attach(|py| self.start(py, bucket, round));
        self.flight = Some(started.map_err(|error| self.fails("sending", error))?);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        Ok(None)
    }

    /// The functions bring the limits of their waits.
    fn wait_any(&mut self, _: Deadline) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        let Some(flight) = self.flight.take() else {
            return Ok(None);
        };
        let landed = Python::attach(|py| flight.land(py));
        let lent = landed.map_err(|error| self.fails("receiving", error))?;
        let bytes = self.inbox.insert(lent).bytes();
        let inbox = match flight.prefixed {
            true => Inbox::borrowed(bytes.map(unwrapped)),
            false => Inbox::borrowed(bytes),
        };
        Ok(Some((flight.bucket, inbox)))
    }

    fn complete_step(&mut self) {}

    fn abandon(&mut self) {
        self.flight = None;
    }
}
