//! All targets for a set time, on several threads, with counts.
//!
//! Inputs are random bytes, valid ones, and valid ones with a few bytes changed, cut off, put in or repeated. A panic or an input
//! that takes longer than [`HANGS`] ends the run with the target and the input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::{codec, resume, state};

/// No input may take as long as this.
pub const HANGS: Duration = Duration::from_secs(10);
/// Inputs of a target in a row; then it is the next one's turn.
const BATCH: u64 = 256;
/// The longest random input.
const LONGEST: usize = 120;

/// A target and what to damage for it.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    examples: Vec<Vec<u8>>,
}

fn targets() -> Vec<Target> {
    let target = |name, run, examples| Target {
        name,
        run,
        examples,
    };
    vec![
        target("codec: lists", codec::list, Vec::new()),
        target("codec: indices", codec::indices, Vec::new()),
        target("codec: values", codec::values, Vec::new()),
        target("messages", resume::message, Vec::new()),
        target("saved states", state::saved, state::examples()),
    ]
}

/// How many inputs each target took.
pub type Counts = Vec<(&'static str, u64)>;

/// What went wrong: the target and the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The target.
    pub target: &'static str,
    /// The input, in hexadecimal digits.
    pub input: String,
}

/// Runs all targets in turn on so many threads for so long.
///
/// # Errors
/// The first input that made a target panic.
///
/// # Panics
/// When an input takes longer than [`HANGS`]: a thread that hangs cannot be ended.
pub fn run(time: Duration, threads: usize, seed: u64) -> Result<Counts, Failure> {
    let targets = targets();
    let counts: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
    let (started, end) = (Instant::now(), Instant::now() + time);
    // When each thread began its batch, in milliseconds since the start; 0: it is done.
    let began: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(1)).collect();
    let now = || started.elapsed().as_millis() as u64 + 1;
    let failure = thread::scope(|scope| {
        let work = |worker: usize| {
            let mut random = Random(seed ^ (worker as u64) << 40 | 1);
            let mut failed = None;
            'all: while Instant::now() < end {
                for (target, count) in targets.iter().zip(&counts) {
                    began[worker].store(now(), Relaxed);
                    for _ in 0..BATCH {
                        let input = random.input(&target.examples);
                        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
                            failed = Some(Failure {
                                target: target.name,
                                input: input.iter().map(|byte| format!("{byte:02x}")).collect(),
                            });
                            break 'all;
                        }
                    }
                    count.fetch_add(BATCH, Relaxed);
                }
            }
            began[worker].store(0, Relaxed);
            failed
        };
        let workers: Vec<_> = (0..threads).map(|w| scope.spawn(move || work(w))).collect();
        while began.iter().any(|began| began.load(Relaxed) > 0) {
            let oldest = began
                .iter()
                .map(|began| began.load(Relaxed))
                .filter(|b| *b > 0);
            let oldest = oldest.min().unwrap_or_else(now);
            let limit = HANGS.as_millis() as u64;
            assert!(now() - oldest < limit, "a target hangs after {oldest} ms");
            thread::sleep(Duration::from_millis(20));
        }
        let results = workers
            .into_iter()
            .map(|worker| worker.join().ok().flatten());
        results.flatten().next()
    });
    match failure {
        Some(failure) => Err(failure),
        None => {
            let names = targets.iter().map(|target| target.name);
            Ok(names
                .zip(counts.iter().map(|count| count.load(Relaxed)))
                .collect())
        }
    }
}

/// A small generator (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn input(&mut self, examples: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match examples.is_empty() || self.below(8) == 0 {
            true => (0..self.below(LONGEST))
                .map(|_| self.next() as u8)
                .collect(),
            false => examples[self.below(examples.len())].clone(),
        };
        for _ in 0..self.below(5) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (at, byte) = (self.below(input.len()), self.next() as u8);
        match self.below(6) {
            0 => input.truncate(at),
            1 => input.insert(at, byte),
            2 => {
                let end = (at + self.below(16)).min(input.len());
                let part = input[at..end].to_vec();
                input.extend(part);
            }
            // Small numbers are counts and tags.
            3 => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|b| *b = byte % 20),
            4 => input.iter_mut().skip(at).take(4).for_each(|b| *b = 0),
            _ => input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|b| *b ^= 1 << (byte % 8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_soak_reaches_every_target_and_finds_nothing() {
        let counts = run(Duration::from_millis(300), 2, 7).expect("no failure");
        assert_eq!(counts.len(), targets().len());
        assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
    }
}
