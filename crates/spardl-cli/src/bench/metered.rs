//! The time of a worker's local work while real workers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use spardl_core::{
    Algorithm, ConfigError, Cost, Feedback, Input, Laws, Layout, Machine, MethodState, MethodStats,
    ProtocolError, Received, Round, Update, World,
};

use super::local::Clock;

/// A method whose machines add up the time of their work.
#[derive(Debug)]
pub(super) struct Metered {
    inner: Arc<dyn Algorithm>,
    clock: Clock,
    nanoseconds: Arc<AtomicU64>,
}

impl Metered {
    pub(super) fn new(inner: Arc<dyn Algorithm>, clock: Clock) -> Self {
        Self {
            inner,
            clock,
            nanoseconds: Arc::default(),
        }
    }

    /// The time since the last call.
    pub(super) fn take(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.swap(0, Relaxed))
    }
}

impl Algorithm for Metered {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(MeteredMachine {
            inner: self.inner.machine(world, layout)?,
            clock: self.clock,
            nanoseconds: Arc::clone(&self.nanoseconds),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Cost {
        self.inner.cost(workers, layout, k, step)
    }

    fn loose_bound(&self) -> Option<&'static str> {
        self.inner.loose_bound()
    }

    fn laws(&self) -> Laws {
        self.inner.laws()
    }
}

#[derive(Debug)]
struct MeteredMachine {
    inner: Box<dyn Machine>,
    clock: Clock,
    nanoseconds: Arc<AtomicU64>,
}

impl MeteredMachine {
    fn meter<R>(&mut self, work: impl FnOnce(&mut dyn Machine) -> R) -> R {
        let since = self.clock.now();
        let result = work(&mut *self.inner);
        let spent = (self.clock.now() - since).as_nanos() as u64;
        self.nanoseconds.fetch_add(spent, Relaxed);
        result
    }
}

impl Machine for MeteredMachine {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.meter(|machine| machine.begin(feedback, input));
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        self.meter(|machine| machine.round(feedback))
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        self.meter(|machine| machine.absorb(feedback, received))
    }

    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        self.inner.update(feedback)
    }

    fn stats(&self) -> MethodStats {
        self.inner.stats()
    }

    fn state(&self) -> MethodState {
        self.inner.state()
    }

    fn replicated(&self) -> MethodState {
        self.inner.replicated()
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        self.inner.restore(state)
    }
}
