//! A worker that falls silent or is lost in any round ends the step of all who wait for it within the deadline, and leaves no
//! trace in them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spardl_algos::{Options, Sag, registry};
use spardl_core::{Algorithm, Inbox, Input, Layout, Outcome, Rank, Round, ValueType, World};
use spardl_drive::{
    BucketId, Clock, Deadline, DriveError, Driver, ThreadsTransport, Transport, TransportError,
    run_workers,
};
use spardl_testkit::{Sent, Trial, configurations, generate};

const WORKERS: u32 = 4;
const LEN: usize = 120;
const K: usize = 12;
const DEADLINE: Duration = Duration::from_millis(80);
/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(10);

/// What becomes of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It sends nothing any more, and waits as if it had.
    Silent,
    /// Its transport is gone.
    Lost,
}

/// Which worker fails, how, and from which round on.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rank: Rank,
    failure: Failure,
    from: u32,
}

/// A transport that fails as planned.
struct Failing {
    /// `None` once it is lost.
    inner: Option<ThreadsTransport>,
    world: World,
    clock: Arc<dyn Clock>,
    plan: Option<Plan>,
}

impl Failing {
    fn new(inner: ThreadsTransport, plan: Option<Plan>) -> Self {
        let world = inner.world();
        let plan = plan.filter(|plan| plan.rank == world.rank());
        Self {
            clock: inner.clock(),
            inner: Some(inner),
            world,
            plan,
        }
    }

    fn inner(&mut self) -> Result<&mut ThreadsTransport, TransportError> {
        let rank = self.world.rank();
        let lost = TransportError::PeerLost {
            rank,
            peer: rank,
            bucket: BucketId::new(0),
            round: 0,
        };
        self.inner.as_mut().ok_or(lost)
    }
}

impl Transport for Failing {
    fn world(&self) -> World {
        self.world
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn submit(&mut self, bucket: BucketId, mut round: Round) -> Result<(), TransportError> {
        let begun = self.plan.filter(|plan| round.seq >= plan.from);
        match begun.map(|plan| plan.failure) {
            None => {}
            Some(Failure::Silent) => round.sends.clear(),
            Some(Failure::Lost) => self.inner = None,
        }
        self.inner()?.submit(bucket, round)
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner()?.poll()
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner()?.wait_any(deadline)
    }

    fn complete_step(&mut self) {
        self.inner.iter_mut().for_each(Transport::complete_step);
    }

    fn abandon(&mut self) {
        self.inner.iter_mut().for_each(Transport::abandon);
    }
}

fn gradients() -> Vec<Vec<f32>> {
    generate::integers(3, WORKERS, LEN)
}

/// One good step, then one in which a worker fails. Returns per worker the error of the second step.
fn steps(algorithm: &dyn Algorithm, plan: Plan) -> Vec<Option<DriveError>> {
    let all = gradients();
    let work = |transport: ThreadsTransport| {
        let gradient = &all[transport.world().rank().index()];
        let input = |step| Input::new(gradient, K, step);
        let collective = algorithm
            .collective(transport.world(), &Layout::flat(LEN as u32))
            .unwrap();
        let driver = Driver::new(Failing::new(transport, None), vec![collective]).unwrap();
        let mut driver = driver.with_timeout(SLACK);
        driver.all_reduce(&[input(0)]).unwrap();
        let (transport, collectives) = driver.into_parts();
        let transport = Failing::new(transport.inner.unwrap(), Some(plan));
        // The loss of a worker is known at once: nobody may have to wait for a deadline.
        let timeout = match plan.failure {
            Failure::Silent => DEADLINE,
            Failure::Lost => DEADLINE + SLACK,
        };
        let driver = Driver::new(transport, collectives).unwrap();
        second_step(driver.with_timeout(timeout), input(1))
    };
    let errors = run_workers(WORKERS, work);
    errors.unwrap_or_else(|error| panic!("{} {plan:?}: {error}", algorithm.describe()))
}

/// The step in which somebody fails: it ends in time, and an error leaves no trace.
fn second_step(mut driver: Driver<Failing>, input: Input<'_>) -> Option<DriveError> {
    let before = driver.collectives()[0].state();
    let started = Instant::now();
    let result = driver.all_reduce(&[input]);
    assert!(
        started.elapsed() < DEADLINE + SLACK,
        "the deadline was missed"
    );
    match &result {
        Ok(report) => assert_eq!(report.buckets[0].outcome, Outcome::Updated),
        Err(_) => assert_eq!(driver.collectives()[0].state(), before, "a trace is left"),
    }
    result.err()
}

/// The messages that worker `rank` sends in the second step when nothing fails, as the simulator has them.
fn owed_by(rank: Rank, algorithm: &dyn Algorithm) -> Vec<Sent> {
    let mut trial = Trial::new(algorithm, WORKERS, LEN);
    trial.step(&gradients(), K, 0);
    let mut sent = trial.messages(&gradients(), K, 1);
    sent.retain(|sent| sent.from == rank);
    sent
}

/// Lets worker `rank` fail in every round in which it still owes a message: all whom it owes one end with an error.
fn fails_who_waits(algorithm: &dyn Algorithm, rank: Rank, failure: Failure) {
    let owed = owed_by(rank, algorithm);
    let last = owed.iter().map(|sent| sent.round).max();
    for from in 0..=last.expect("every worker sends something") {
        let plan = Plan {
            rank,
            failure,
            from,
        };
        let context = format!("{} {plan:?}", algorithm.describe());
        let errors = steps(algorithm, plan);
        for sent in owed.iter().filter(|sent| sent.round >= from) {
            let noticed = errors[sent.to.index()].is_some();
            assert!(noticed, "{context}: rank {} did not notice", sent.to);
        }
        for error in errors.into_iter().flatten() {
            let DriveError::Transport(error) = error else {
                panic!("{context}: {error}");
            };
            let late = matches!(error, TransportError::Timeout { .. });
            assert!(failure == Failure::Silent || !late, "{context}: {error}");
        }
    }
}

/// Every method with its defaults, and SparDL with teams and in bf16.
fn algorithms() -> Vec<Box<dyn Algorithm>> {
    let defaults = registry::METHODS.iter().map(|entry| entry.name);
    let mut all: Vec<_> = defaults
        .map(|name| registry::build(name, &Options::default()).unwrap())
        .collect();
    for (teams, sag, values) in [
        (1, Sag::Auto, ValueType::Bf16),
        (2, Sag::R, ValueType::F32),
        (2, Sag::R, ValueType::Bf16),
        (2, Sag::B, ValueType::F32),
        (2, Sag::B, ValueType::Bf16),
    ] {
        let mut options = Options::default().with("teams", teams).with("sag", sag);
        options.codec.values = values;
        all.push(registry::build("spardl", &options).unwrap());
    }
    all
}

#[test]
fn silence_in_any_round_ends_the_step_within_the_deadline_and_leaves_no_trace() {
    for algorithm in algorithms() {
        fails_who_waits(&*algorithm, Rank::new(WORKERS - 1), Failure::Silent);
    }
}

#[test]
fn a_worker_lost_in_any_round_is_noticed_at_once_and_leaves_no_trace() {
    for algorithm in configurations::all(WORKERS) {
        for rank in World::all(WORKERS).map(World::rank) {
            fails_who_waits(&*algorithm, rank, Failure::Lost);
        }
    }
}
