//! P drivers over one simulated network, and a ledger.

use std::sync::Arc;
use std::time::Duration;

use spardl_core::{Algorithm, Collective, Input, Layout, Outcome, Rank, World};
use spardl_drive::{BucketId, DriveError, Driver, StepReport};

use crate::clock::VirtualClock;
use crate::network::{Event, Fault, Message, Network};
use crate::transport::SimTransport;

const FIRST: BucketId = BucketId::new(0);

/// How long a round may be in flight: with a stopwatch, workers that compute one after another take their time.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What each worker did in one step, of all its buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Rounds per worker.
    pub rounds: Vec<u32>,
    /// Messages sent per worker.
    pub messages: Vec<u64>,
    /// Bytes sent per worker, headers included.
    pub bytes: Vec<u64>,
    /// Bytes received per worker, headers included.
    pub bytes_received: Vec<u64>,
    /// Time in `begin` per worker; zero without a stopwatch.
    pub select: Vec<Duration>,
    /// Time in `resume` per worker; zero without a stopwatch.
    pub merge: Vec<Duration>,
}

impl Ledger {
    fn enter(&mut self, report: &StepReport) {
        let counts = report.total();
        self.rounds.push(counts.rounds);
        self.messages.push(counts.messages);
        self.bytes.push(counts.bytes_sent);
        self.bytes_received.push(counts.bytes_received);
        self.select.push(counts.select);
        self.merge.push(counts.merge);
    }
}

/// How a step of the whole cluster went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterReport {
    /// The outcomes of all buckets of the first worker, then of the second, and so on.
    pub outcomes: Vec<Outcome>,
    /// What it cost.
    pub ledger: Ledger,
}

/// All workers of a world, with one or several buckets each.
///
/// A step that fails leaves all workers as before it, and what was under way is lost.
#[derive(Debug)]
pub struct Cluster {
    drivers: Vec<Driver<SimTransport>>,
    network: Network,
    clock: Arc<VirtualClock>,
    buckets: u32,
}

impl Cluster {
    /// A cluster of `size` workers that run `algorithm` on a bucket of this layout.
    ///
    /// # Errors
    /// When the algorithm refuses the world or the layout.
    pub fn new(algorithm: &dyn Algorithm, size: u32, layout: &Layout) -> Result<Self, DriveError> {
        Self::with_buckets(algorithm, size, std::slice::from_ref(layout))
    }

    /// A cluster with one bucket per layout.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn with_buckets(
        algorithm: &dyn Algorithm,
        size: u32,
        layouts: &[Layout],
    ) -> Result<Self, DriveError> {
        let clock = Arc::new(VirtualClock::default());
        let driver = |world| {
            let transport = SimTransport::new(world, Arc::clone(&clock));
            let driver = Driver::for_layouts(transport, algorithm, layouts)?;
            Ok::<_, DriveError>(driver.with_timeout(LIMIT))
        };
        Ok(Self {
            drivers: World::all(size).map(driver).collect::<Result<_, _>>()?,
            network: Network::new(size, Arc::clone(&clock)),
            clock,
            buckets: layouts.len() as u32,
        })
    }

    /// Delivers messages in another order, drawn from `seed`.
    #[must_use]
    pub fn with_order(mut self, seed: u64) -> Self {
        self.network.set_order(seed);
        self
    }

    /// Lets time pass as `stopwatch` shows while workers compute, e.g. the CPU time of this thread. The ledger then says
    /// how long each worker computed.
    #[must_use]
    pub fn with_stopwatch(self, stopwatch: fn() -> Duration) -> Self {
        self.clock.follow(stopwatch);
        self
    }

    /// Lets `rule` decide what happens to each message.
    pub fn set_fault(&mut self, rule: impl FnMut(Message<'_>) -> Fault + Send + 'static) {
        self.network.set_fault(rule);
    }

    /// The first bucket of every worker, in rank order.
    pub fn workers(&self) -> Vec<&Collective> {
        self.bucket(FIRST)
    }

    /// The first bucket of every worker, in rank order.
    pub fn workers_mut(&mut self) -> Vec<&mut Collective> {
        let first = |driver| Driver::collectives_mut(driver).first_mut();
        self.drivers.iter_mut().filter_map(first).collect()
    }

    /// One bucket of every worker, in rank order.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn bucket(&self, bucket: BucketId) -> Vec<&Collective> {
        let drivers = self.drivers.iter();
        drivers.map(|driver| driver.collective(bucket)).collect()
    }

    /// One step of the first bucket of all workers up to its end; nothing is committed yet.
    ///
    /// # Errors
    /// When a worker refuses its input or a message, or misses one. All workers are as before the step.
    ///
    /// # Panics
    /// When there is not one gradient per worker.
    pub fn step<G: AsRef<[f32]>>(
        &mut self,
        gradients: &[G],
        k: usize,
        step: u64,
    ) -> Result<ClusterReport, DriveError> {
        let inputs: Vec<_> = gradients
            .iter()
            .map(|gradient| Input::new(gradient.as_ref(), k, step))
            .collect();
        self.step_inputs(&inputs)
    }

    /// [`Cluster::step`] for inputs of any kind, one per worker.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    ///
    /// # Panics
    /// When there is not one input per worker.
    pub fn step_inputs(&mut self, inputs: &[Input<'_>]) -> Result<ClusterReport, DriveError> {
        assert_eq!(inputs.len(), self.drivers.len(), "one input per worker");
        self.run(1, |rank: Rank, _| inputs[rank.index()])
    }

    /// One step of all buckets of all workers up to its end; nothing is committed yet. Every worker begins its buckets in
    /// their order, while messages of earlier ones are under way.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    pub fn step_buckets<'a>(
        &mut self,
        input: impl Fn(Rank, BucketId) -> Input<'a>,
    ) -> Result<ClusterReport, DriveError> {
        self.run(self.buckets, input)
    }

    fn run<'a>(
        &mut self,
        buckets: u32,
        input: impl Fn(Rank, BucketId) -> Input<'a>,
    ) -> Result<ClusterReport, DriveError> {
        let ended = self.exchange(buckets, input);
        if ended.is_err() {
            self.abort();
        }
        ended
    }

    fn exchange<'a>(
        &mut self,
        buckets: u32,
        input: impl Fn(Rank, BucketId) -> Input<'a>,
    ) -> Result<ClusterReport, DriveError> {
        if buckets > 0 {
            for rank in (0..self.drivers.len() as u32).map(Rank::new) {
                self.network.begin_now(rank, FIRST);
            }
        }
        while let Some((rank, event)) = self.network.next() {
            let driver = &mut self.drivers[rank.index()];
            match event {
                Event::Begin(bucket) => {
                    driver.begin(bucket, input(rank, bucket))?;
                    let next = BucketId::new(bucket.get() + 1);
                    if next.get() < buckets {
                        self.network.begin_later(rank, next);
                    }
                }
                Event::Arrival(from, news) => {
                    if !driver.transport_mut().take(from, news) {
                        continue;
                    }
                    driver.poll()?;
                }
            }
            self.network.carry(rank, driver.transport_mut());
        }
        self.check_deadlines()?;
        let mut report = ClusterReport::default();
        for driver in &mut self.drivers {
            let finished = driver.finish()?;
            let outcomes = finished.buckets.iter().map(|bucket| bucket.outcome);
            report.outcomes.extend(outcomes);
            report.ledger.enter(&finished);
        }
        Ok(report)
    }

    /// Nothing is under way any more: whoever still waits does so until its deadline.
    fn check_deadlines(&mut self) -> Result<(), DriveError> {
        let waiting = self.drivers.iter_mut();
        let first = waiting.filter_map(|driver| Some((driver.deadline()?, driver)));
        if let Some((deadline, driver)) = first.min_by_key(|(deadline, _)| *deadline) {
            self.clock.advance_to(deadline.time());
            driver.poll()?;
        }
        Ok(())
    }

    /// Commits the finished step on all workers; those that skipped it keep the state they had.
    ///
    /// # Errors
    /// When there is no finished step.
    pub fn commit(&mut self) -> Result<(), DriveError> {
        self.drivers.iter_mut().try_for_each(Driver::commit)
    }

    /// Aborts the current step on all workers. What is under way is lost.
    pub fn abort(&mut self) {
        self.network.clear();
        for driver in &mut self.drivers {
            driver.abort();
            driver.transport_mut().reset();
        }
    }
}
