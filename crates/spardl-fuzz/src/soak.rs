//! All targets for a set time or a number of inputs, on several threads, with counts.
//!
//! Inputs are random bytes, valid ones, and valid ones with a few bytes changed, cut off, put in, repeated or taken from another
//! one. Stable Rust has no coverage to guide them by, so the outcome does: an input that ends as none did before it is kept and
//! changed further. A panic or an input that takes longer than [`HANGS`] ends the run with the target and the input.

mod random;
mod watch;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use random::Random;
pub use watch::{HANGS, Spent};
use watch::{Worker, watch};

use crate::{Outcome, codec, outcome, resume, state, words};

/// How long it is a target's turn.
const TURN: Duration = Duration::from_millis(20);
/// Inputs from one look at the clock to the next.
const BATCH: u64 = 16;
const MINUTE: Duration = Duration::from_secs(60);

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

/// What a run did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soaked {
    /// Of all targets.
    pub counts: Vec<Count>,
    /// How long it took.
    pub spent: Spent,
}

impl Soaked {
    /// The inputs of all targets.
    pub fn inputs(&self) -> u64 {
        self.counts.iter().map(|count| count.inputs).sum()
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// So long. How many inputs that is, and so which, depends on the machine.
    Time(Duration),
    /// So many inputs of each target on each thread, in whole batches: with one seed the same ones in every run.
    Inputs(u64),
}

impl Length {
    fn is_over(self, spent: Spent) -> bool {
        matches!(self, Self::Time(time) if spent.awake >= time)
    }

    /// Is it the next target's turn?
    fn ends_turn(self, began: Instant, inputs: u64) -> bool {
        match self {
            Self::Time(_) => began.elapsed() >= TURN,
            Self::Inputs(most) => inputs >= most,
        }
    }

    const fn has_one_turn(self) -> bool {
        matches!(self, Self::Inputs(_))
    }
}

/// What all threads count together for a target.
#[derive(Debug, Default)]
struct Tally {
    inputs: AtomicU64,
    outcomes: AtomicU64,
}

/// Runs all targets in turn on so many threads. `tell` hears every minute how far it is.
///
/// # Errors
/// The first input that made a target panic.
///
/// # Panics
/// When an input takes longer than [`HANGS`]: a thread that hangs cannot be ended.
pub fn run(
    length: Length,
    threads: usize,
    seed: u64,
    mut tell: impl FnMut(&Soaked),
) -> Result<Soaked, Failure> {
    let targets = targets();
    let tallies: Vec<Tally> = targets.iter().map(|_| Tally::default()).collect();
    let workers: Vec<Worker> = (0..threads).map(|_| Worker::default()).collect();
    let is_over = AtomicBool::new(length.is_over(Spent::default()));
    let soaked = |spent| Soaked {
        counts: count(&targets, &tallies),
        spent,
    };
    thread::scope(|scope| {
        let work = |number: usize| {
            let random = Random::new(seed ^ (number as u64) << 40);
            let all = targets.iter().zip(&tallies);
            work(all, length, &workers[number], &is_over, random)
        };
        let handles: Vec<_> = (0..threads).map(|w| scope.spawn(move || work(w))).collect();
        let mut told = Duration::ZERO;
        let spent = watch(&workers, |spent| {
            is_over.store(length.is_over(spent), Relaxed);
            if spent.awake >= told + MINUTE {
                told = spent.awake;
                tell(&soaked(spent));
            }
        });
        let mut failures = handles
            .into_iter()
            .filter_map(|handle| handle.join().ok().flatten());
        failures.next().map_or_else(|| Ok(soaked(spent)), Err)
    })
}

/// Gives all targets inputs in turn, until it is over or one panics.
fn work<'t>(
    targets: impl Iterator<Item = (&'t Target, &'t Tally)>,
    length: Length,
    worker: &Worker,
    is_over: &AtomicBool,
    mut random: Random,
) -> Option<Failure> {
    worker.start();
    let mut corpora: Vec<(Corpus<'_>, &Tally)> = targets
        .map(|(target, tally)| (Corpus::new(target), tally))
        .collect();
    let mut failed = None;
    while failed.is_none() && !is_over.load(Relaxed) {
        for (corpus, tally) in &mut corpora {
            let (began, mut inputs) = (Instant::now(), 0);
            while failed.is_none() && !length.ends_turn(began, inputs) {
                failed = corpus.take(BATCH, &mut random);
                inputs += BATCH;
                tally.inputs.fetch_add(BATCH, Relaxed);
                worker.end_batch();
            }
            let outcomes = corpus.outcomes.len() as u64;
            tally.outcomes.fetch_max(outcomes, Relaxed);
        }
        if length.has_one_turn() {
            break;
        }
    }
    worker.end();
    failed
}

fn count(targets: &[Target], tallies: &[Tally]) -> Vec<Count> {
    let count = |(target, tally): (&Target, &Tally)| Count {
        target: target.name,
        inputs: tally.inputs.load(Relaxed),
        outcomes: tally.outcomes.load(Relaxed),
    };
    targets.iter().zip(tallies).map(count).collect()
}

/// Gives a target so many inputs.
///
/// # Errors
/// The first input that made it panic.
pub fn run_bounded(target: &Target, inputs: u64, seed: u64) -> Result<(), Failure> {
    let failed = Corpus::new(target).take(inputs, &mut Random::new(seed));
    failed.map_or(Ok(()), Err)
}

/// A target at work: its examples, and inputs that ended in ways of their own.
struct Corpus<'t> {
    target: &'t Target,
    kept: Vec<Vec<u8>>,
    outcomes: BTreeSet<Outcome>,
    /// The input at hand.
    input: Vec<u8>,
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
            input: Vec::new(),
        }
    }

    /// Takes so many inputs; the one that it panicked on, if it did.
    fn take(&mut self, inputs: u64, random: &mut Random) -> Option<Failure> {
        for _ in 0..inputs {
            random.fill(&mut self.input, &self.kept);
            match catch_unwind(AssertUnwindSafe(|| self.target.run.on(&self.input))) {
                Ok(outcome) => self.learn(outcome, random),
                Err(_) => {
                    return Some(Failure {
                        target: self.target.name,
                        input: self
                            .input
                            .iter()
                            .map(|byte| format!("{byte:02x}"))
                            .collect(),
                    });
                }
            }
        }
        None
    }

    fn learn(&mut self, outcome: Outcome, random: &mut Random) {
        if self.input.len() > LONGEST_KEPT || !self.outcomes.insert(outcome) {
            return;
        }
        let input = self.input.clone();
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
