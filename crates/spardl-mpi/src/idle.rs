//! What a rank does while there is nothing to do: it polls, then lets others run, then sleeps.
//!
//! Ranks that share a core must not keep it from the one they wait for; ranks that have one each should not lose
//! microseconds to the scheduler.

use std::thread;
use std::time::Duration;

/// Polls before others are let run, and polls between two looks at the clock.
const SPINS: u32 = 64;
/// Polls before the rank sleeps: about a millisecond, so that a nap adds little to the wait.
const YIELDS: u32 = 2_000;
/// As short as the kernel's timer makes sense of.
const NAP: Duration = Duration::from_micros(50);

/// Counts the polls that found nothing.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    polls: u32,
}

impl Idle {
    /// A poll found something.
    pub(crate) const fn reset(&mut self) {
        self.polls = 0;
    }

    /// A poll found nothing. True: it is time to look at the clock.
    pub(crate) fn wait(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        if self.polls >= YIELDS {
            thread::sleep(NAP);
            return true;
        }
        if self.polls >= SPINS {
            thread::yield_now();
        }
        self.polls.is_multiple_of(SPINS)
    }
}
