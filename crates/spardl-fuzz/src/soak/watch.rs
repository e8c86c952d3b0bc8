//! How long a run takes, and whether an input takes too long.
//!
//! Both are measured so that a process that is stopped for a while, or gets little of a busy machine, loses nothing: from one
//! look to the next at most a second counts as time of the run, and an input's time is what its thread spent on a CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// No input may take as much CPU time as this.
pub const HANGS: Duration = Duration::from_secs(30);
/// Nor may one that waits take as long as this.
const WAITS: Duration = Duration::from_secs(600);
/// From one look to the next.
const LOOK: Duration = Duration::from_millis(20);
/// A look that comes later than this after the last one comes after a stop.
const STOPPED: Duration = Duration::from_secs(1);

/// What a thread has done.
#[derive(Debug, Default)]
pub(super) struct Worker {
    batches: AtomicU64,
    is_done: AtomicBool,
    /// Where the system says how long it was on a CPU.
    times: OnceLock<PathBuf>,
}

impl Worker {
    /// Called by the thread itself.
    pub(super) fn start(&self) {
        if let Ok(task) = fs::read_link("/proc/thread-self") {
            self.times
                .get_or_init(|| Path::new("/proc").join(task).join("schedstat"));
        }
    }

    pub(super) fn end_batch(&self) {
        self.batches.fetch_add(1, Relaxed);
    }

    pub(super) fn end(&self) {
        self.is_done.store(true, Relaxed);
    }

    fn cpu_time(&self) -> Option<Duration> {
        let times = fs::read_to_string(self.times.get()?).ok()?;
        let nanos = times.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_nanos(nanos))
    }
}

/// What was seen of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    batches: u64,
    /// At the last look.
    cpu: Duration,
    /// At the look that saw its last batch end.
    cpu_then: Duration,
    awake_then: Duration,
}

/// How long a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time in which the process was not stopped.
    pub awake: Duration,
    /// CPU time of all threads; zero where the system does not say.
    pub cpu: Duration,
}

/// Looks after the threads until all are done; `look` hears how long it took so far.
///
/// # Panics
/// When an input takes too long: a thread that hangs cannot be ended.
pub(super) fn watch(workers: &[Worker], mut look: impl FnMut(Spent)) -> Spent {
    let mut seen = vec![Seen::default(); workers.len()];
    let mut spent = Spent::default();
    while workers.iter().any(|worker| !worker.is_done.load(Relaxed)) {
        let last = Instant::now();
        thread::sleep(LOOK);
        spent.awake += last.elapsed().min(STOPPED);
        for (seen, worker) in seen.iter_mut().zip(workers) {
            seen.look(worker, spent.awake);
        }
        spent.cpu = seen.iter().map(|seen| seen.cpu).sum();
        look(spent);
    }
    spent
}

impl Seen {
    fn look(&mut self, worker: &Worker, awake: Duration) {
        if worker.is_done.load(Relaxed) {
            return;
        }
        let batches = worker.batches.load(Relaxed);
        self.cpu = worker.cpu_time().unwrap_or(self.cpu);
        if batches != self.batches {
            (self.batches, self.cpu_then, self.awake_then) = (batches, self.cpu, awake);
        }
        let (cpu, waited) = (self.cpu - self.cpu_then, awake - self.awake_then);
        assert!(
            cpu < HANGS && waited < WAITS,
            "a target hangs after {batches} batches: {cpu:?} of CPU time, {waited:?} of the clock"
        );
    }
}
