//! A deadline for calls of MPI that block.
//!
//! Blocking calls are what benches compare with, and their nonblocking sisters are no substitute: Open MPI sums with other
//! algorithms there (in place on 4 links of 1 Gbit/s in three times the time). MPI cannot be told to give a blocking call up and
//! only one thread may call it, so a second thread looks at the clock, says what was waited for, and ends the process. Then the
//! launcher ends the job. Nothing is freed, so MPI keeps all its buffers to the end.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::raw;

/// Between two looks at the clock. A call that is watched only stores when it began: nobody is woken while it is timed.
const LOOK: Duration = Duration::from_millis(50);
/// Between the words and the end: other ranks that wait speak too before the launcher ends them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What to say of a call that takes too long, asked then: where it hangs is not known before.
pub(crate) type Words = Box<dyn Fn() -> String + Send>;

/// Until when a call may take, and what to say when it takes longer.
type Order = Option<(Instant, Words)>;

/// Watches the blocking calls of one thread, one at a time.
pub(crate) struct Watchdog {
    order: Arc<Mutex<Order>>,
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

impl Watchdog {
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start() -> io::Result<Self> {
        let order = Arc::new(Mutex::new(None));
        let weak = Arc::downgrade(&order);
        let watch = move || {
            while let Some(order) = weak.upgrade() {
                let late = is_late(&lock(&order));
                if let Some(words) = late {
                    end(&words);
                }
                drop(order);
                thread::sleep(LOOK);
            }
        };
        thread::Builder::new()
            .name("mpi-watchdog".to_owned())
            .spawn(watch)?;
        Ok(Self { order })
    }

    /// Runs a blocking call that must be over by then.
    pub(crate) fn watch<R>(&self, until: Instant, words: Words, call: impl FnOnce() -> R) -> R {
        *lock(&self.order) = Some((until, words));
        let result = call();
        *lock(&self.order) = None;
        result
    }
}

fn lock(order: &Mutex<Order>) -> MutexGuard<'_, Order> {
    order.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_late(order: &Order) -> Option<String> {
    let (until, words) = order.as_ref()?;
    (*until <= Instant::now()).then(words)
}

fn end(words: &str) -> ! {
    // One write, so that the lines of ranks do not mix. Nothing can be done when stderr is gone.
    let _ = io::stderr().write_all(format!("spardl: {words}\n").as_bytes());
    thread::sleep(LAST_WORDS);
    raw::exit_at_once(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_beyond_its_deadline_is_late() {
        let now = Instant::now();
        assert_eq!(is_late(&None), None);
        let later = now + Duration::from_secs(60);
        let words = || -> Words { Box::new(|| "words".to_owned()) };
        assert_eq!(is_late(&Some((later, words()))), None);
        let late = is_late(&Some((now, words())));
        assert_eq!(late.as_deref(), Some("words"));
        let watchdog = Watchdog::start().expect("a thread");
        assert_eq!(watchdog.watch(later, words(), || 7), 7);
        assert!(lock(&watchdog.order).is_none());
    }
}
