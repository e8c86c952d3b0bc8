//! Time as an argument: moments are integers, and whoever moves messages says which clock they are read from.
//!
//! [`Transport::clock`](crate::Transport::clock) is the one clock of a worker: its rounds, deadlines and reports are
//! measured on it. Transports of the real world have a [`SystemClock`]; a simulator has one that it moves itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A moment: nanoseconds since the start of a clock. Moments of different clocks cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// When the clock started.
    pub const START: Self = Self(0);

    /// That many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `later`; the last one there is when that is too far.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        let later = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(later))
    }

    /// How long ago `earlier` was; zero when it has not come yet.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where moments come from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The current moment, never before one that was read earlier.
    fn now(&self) -> Time;
}

/// The clock of the machine, from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now, to be shared.
    pub fn start() -> Arc<Self> {
        let start = Instant::now();
        Arc::new(Self { start })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::START.after(self.start.elapsed())
    }
}

/// When a wait ends at the latest. There is no way to wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Time);

impl Deadline {
    /// That long after `start`.
    pub fn after(start: Time, limit: Duration) -> Self {
        Self(start.after(limit))
    }

    /// The moment.
    pub const fn time(self) -> Time {
        self.0
    }

    /// How long there is left; zero when it has passed.
    pub const fn remaining(self, now: Time) -> Duration {
        self.0.since(now)
    }

    /// Has it come?
    pub fn has_passed(self, now: Time) -> bool {
        self.0 <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_too_far_for_the_clock_is_far_away() {
        let now = Time::from_nanos(7);
        let far = Deadline::after(now, Duration::MAX);
        assert!(far.remaining(now) > Duration::from_secs(1 << 20));
        assert!(Deadline::after(now, Duration::ZERO).has_passed(now));
        let clock = SystemClock::start();
        assert!(clock.now() <= clock.now());
    }
}
