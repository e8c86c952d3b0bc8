//! Time that passes when the simulator says so.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use spardl_drive::{Clock, Time};

/// A clock that is moved from event to event, and by a stopwatch while workers compute.
#[derive(Debug, Default)]
pub struct VirtualClock {
    nanos: AtomicU64,
    stopwatch: OnceLock<fn() -> Duration>,
}

impl VirtualClock {
    /// From now on what the stopwatch shows passes here too. A second stopwatch is ignored.
    pub(crate) fn follow(&self, stopwatch: fn() -> Duration) {
        self.stopwatch.get_or_init(|| stopwatch);
    }

    /// Moves to a moment that has not passed yet.
    pub(crate) fn advance_to(&self, time: Time) {
        let ahead = time.since(self.now()).as_nanos() as u64;
        self.nanos.fetch_add(ahead, Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        let moved = Time::from_nanos(self.nanos.load(Relaxed));
        match self.stopwatch.get() {
            None => moved,
            Some(stopwatch) => moved.after(stopwatch()),
        }
    }
}
