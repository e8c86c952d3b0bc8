//! All targets for a set time, on several threads, with counts.
//!
//! Inputs are random bytes, valid ones, and valid ones with a few bytes changed, cut off, put in, repeated or taken from another
//! one. Stable Rust has no coverage to guide them by, so the outcome does: an input that ends as none did before it is kept and
//! changed further. A panic or an input that takes longer than [`HANGS`] ends the run with the target and the input.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Outcome, codec, outcome, resume, state, words};

/// No input may take as long as this.
pub const HANGS: Duration = Duration::from_secs(30);
/// How long it is a target's turn.
const TURN: Duration = Duration::from_millis(20);
/// Inputs from one look at the clock to the next.
const BATCH: u64 = 16;
/// How often it is looked whether a thread hangs.
const LOOK: Duration = Duration::from_millis(20);

/// Something that takes bytes, and what to damage for it.
#[derive(Debug)]
pub struct Target {
    /// What the bytes are taken for.
    pub name: &'static str,
    run: Run,
    examples: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Outcome(fn(&[u8]) -> Outcome),
    Read(fn(&[u8]) -> Result<(), String>),
}

/// All targets.
pub fn targets() -> Vec<Target> {
    let target = |name, run, examples| Target {
        name,
        run,
        examples,
    };
    let mut all = vec![
        target("lists", Run::Outcome(codec::list), Vec::new()),
        target("indices", Run::Outcome(codec::indices), Vec::new()),
        target("values", Run::Outcome(codec::values), Vec::new()),
        target("messages", Run::Outcome(resume::message), Vec::new()),
        target(
            "saved states",
            Run::Outcome(state::saved),
            state::examples(),
        ),
    ];
    for of_command in spardl_cli::fuzz::TARGETS {
        let run = Run::Read(of_command.run);
        all.push(target(of_command.name, run, (of_command.examples)()));
    }
    all
}

/// How many inputs a target took, and how many ended each in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The target.
    pub target: &'static str,
    /// Inputs.
    pub inputs: u64,
    /// Different outcomes, of the thread that found most.
    pub outcomes: u64,
}

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
pub fn run(time: Duration, threads: usize, seed: u64) -> Result<Vec<Count>, Failure> {
    let targets = targets();
    let inputs: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
    let outcomes: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
    let workers: Vec<Worker> = (0..threads).map(|_| Worker::default()).collect();
    let end = Instant::now() + time;
    let failure = thread::scope(|scope| {
        let work = |number: usize| {
            let mut random = Random::new(seed ^ (number as u64) << 40);
            let mut corpora: Vec<Corpus<'_>> = targets.iter().map(Corpus::new).collect();
            let mut failed = None;
            while failed.is_none() && Instant::now() < end {
                for (i, corpus) in corpora.iter_mut().enumerate() {
                    let turn = Instant::now() + TURN;
                    while failed.is_none() && Instant::now() < turn {
                        failed = corpus.take(BATCH, &mut random);
                        inputs[i].fetch_add(BATCH, Relaxed);
                        workers[number].batches.fetch_add(1, Relaxed);
                    }
                    outcomes[i].fetch_max(corpus.outcomes.len() as u64, Relaxed);
                }
            }
            workers[number].is_done.store(true, Relaxed);
            failed
        };
        let handles: Vec<_> = (0..threads).map(|w| scope.spawn(move || work(w))).collect();
        watch(&workers);
        let results = handles
            .into_iter()
            .map(|handle| handle.join().ok().flatten());
        results.flatten().next()
    });
    let count = |(i, target): (usize, &Target)| Count {
        target: target.name,
        inputs: inputs[i].load(Relaxed),
        outcomes: outcomes[i].load(Relaxed),
    };
    match failure {
        Some(failure) => Err(failure),
        None => Ok(targets.iter().enumerate().map(count).collect()),
    }
}

/// Gives a target so many inputs.
///
/// # Errors
/// The first input that made it panic.
pub fn run_bounded(target: &Target, inputs: u64, seed: u64) -> Result<(), Failure> {
    let failed = Corpus::new(target).take(inputs, &mut Random::new(seed));
    failed.map_or(Ok(()), Err)
}

/// What a thread has done.
#[derive(Debug, Default)]
struct Worker {
    batches: AtomicU64,
    is_done: AtomicBool,
}

/// Until all are done. Looks are counted and not the time: a process that is stopped for a while does not hang.
fn watch(workers: &[Worker]) {
    let limit = (HANGS.as_millis() / LOOK.as_millis()) as u64;
    let mut last: Vec<(u64, u64)> = vec![(0, 0); workers.len()];
    while workers.iter().any(|worker| !worker.is_done.load(Relaxed)) {
        for ((batches, looks), worker) in last.iter_mut().zip(workers) {
            let now = worker.batches.load(Relaxed);
            let is_done = worker.is_done.load(Relaxed);
            *looks = if now == *batches && !is_done {
                *looks + 1
            } else {
                0
            };
            *batches = now;
            assert!(*looks < limit, "a target hangs after {now} batches");
        }
        thread::sleep(LOOK);
    }
}

/// A target at work: its examples, and inputs that ended in ways of their own.
struct Corpus<'t> {
    target: &'t Target,
    kept: Vec<Vec<u8>>,
    outcomes: BTreeSet<Outcome>,
}

/// Inputs that are kept besides the examples, and the longest of them: what grows without end finds nothing new.
const MOST_KEPT: usize = 2000;
const LONGEST_KEPT: usize = 1 << 14;

impl<'t> Corpus<'t> {
    fn new(target: &'t Target) -> Self {
        Self {
            target,
            kept: target.examples.clone(),
            outcomes: BTreeSet::new(),
        }
    }

    /// Takes so many inputs; the one that it panicked on, if it did.
    fn take(&mut self, inputs: u64, random: &mut Random) -> Option<Failure> {
        for _ in 0..inputs {
            let input = random.input(&self.kept);
            match catch_unwind(AssertUnwindSafe(|| self.target.run.on(&input))) {
                Ok(outcome) => self.learn(input, outcome, random),
                Err(_) => {
                    return Some(Failure {
                        target: self.target.name,
                        input: input.iter().map(|byte| format!("{byte:02x}")).collect(),
                    });
                }
            }
        }
        None
    }

    fn learn(&mut self, input: Vec<u8>, outcome: Outcome, random: &mut Random) {
        if input.len() > LONGEST_KEPT || !self.outcomes.insert(outcome) {
            return;
        }
        if self.kept.len() < self.target.examples.len() + MOST_KEPT {
            self.kept.push(input);
        } else {
            let place = self.target.examples.len() + random.below(MOST_KEPT);
            self.kept[place] = input;
        }
    }
}

impl Run {
    fn on(self, input: &[u8]) -> Outcome {
        match self {
            Self::Outcome(run) => run(input),
            Self::Read(read) => outcome(read(input).map_err(|complaint| words(&complaint))),
        }
    }
}

/// The longest random input.
const LONGEST: usize = 120;

/// What numbers and words in a text are replaced by.
const ODD: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1e308",
    b"-1e-320",
    b"nan",
    b"inf",
    b"4294967296",
    b"18446744073709551615",
    b"9223372036854775808",
    b"true",
    b"\"",
    b"[[[[",
    b",",
    b"=",
    b"\0",
    b"\0--",
    b"\n",
    b"\xff",
    b"\xc3\xa9",
];

/// A small generator (xorshift).
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        // Never zero, and not close to it.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15) | 1)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn input(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match kept.is_empty() || self.below(8) == 0 {
            true => (0..self.below(LONGEST))
                .map(|_| self.next() as u8)
                .collect(),
            false => kept[self.below(kept.len())].clone(),
        };
        for _ in 0..self.below(5) {
            self.change(&mut input, kept);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let (at, byte) = (self.below(input.len()), self.next() as u8);
        let mut each = |len: usize, change: &dyn Fn(&mut u8)| {
            input.iter_mut().skip(at).take(len).for_each(change);
        };
        match self.below(8) {
            // Small numbers are counts and tags.
            0 => each(1, &|b| *b = byte % 20),
            1 => each(4, &|b| *b = 0),
            2 => each(1, &|b| *b ^= 1 << (byte % 8)),
            3 => input.truncate(at),
            4 => input.insert(at, byte),
            5 => {
                let end = (at + self.below(16)).min(input.len());
                let part = input[at..end].to_vec();
                input.extend(part);
            }
            6 => {
                let end = (at + self.below(8)).min(input.len());
                let odd = ODD[self.below(ODD.len())];
                input.splice(at..end, odd.iter().copied());
            }
            _ => {
                let Some(other) = kept.get(self.below(kept.len())) else {
                    return;
                };
                let from = self.below(other.len());
                let part = &other[from..(from + self.below(40)).min(other.len())];
                input.splice(at..at, part.iter().copied());
            }
        }
    }
}
