//! P drivers over one simulated network, and a ledger.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use spardl_core::{Algorithm, Collective, Input, Layout, Outcome, Rank, World};
use spardl_drive::{BucketId, Clock, DriveError, Driver, StepReport, Time};

use crate::clock::VirtualClock;
use crate::compute::{Compute, Cores};
use crate::fault::{Fault, Message};
use crate::network::{Event, LinkUse, Network, Parcel, Sharing, Traffic};
use crate::path::{Path, Spent};
use crate::topology::Fabric;
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
    /// How long it took, in virtual time.
    pub timing: Timing,
}

/// How long a step took, in nanoseconds of virtual time since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// When each worker was done.
    pub finished: Vec<u64>,
    /// What the last worker to be done had waited for, one thing after another.
    pub path: Option<Path>,
    /// What each link carried; empty without a fabric.
    pub links: Vec<LinkUse>,
}

impl Timing {
    /// When all workers were done.
    pub fn step(&self) -> u64 {
        self.finished.iter().copied().max().unwrap_or(0)
    }
}

type SimDriver = Driver<SimTransport>;
type Begun = Result<(), DriveError>;
type Ran = Result<ClusterReport, DriveError>;

/// What a worker is at.
#[derive(Clone, Debug)]
struct Host {
    is_busy: bool,
    has_failed: bool,
    /// Buckets whose gradient is there.
    ready: VecDeque<BucketId>,
    /// When it had done what it did last.
    done: Time,
    /// Where its time went, up to what it did last or to the message that it waited for.
    path: Path,
}

impl Host {
    fn new(rank: Rank, now: Time) -> Self {
        Self {
            is_busy: false,
            has_failed: false,
            ready: VecDeque::new(),
            done: now,
            path: Path::new(rank),
        }
    }
}

/// All workers of a world, with one or several buckets each.
///
/// A step that fails leaves all workers as before it, and what was under way is lost.
#[derive(Debug)]
pub struct Cluster {
    drivers: Vec<SimDriver>,
    hosts: Vec<Host>,
    network: Network,
    clock: Arc<VirtualClock>,
    compute: Compute,
    seed: u64,
    steps: u64,
    lens: Vec<u32>,
    buckets: u32,
    failures: Vec<(Rank, DriveError)>,
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
            hosts: World::all(size)
                .map(|world| Host::new(world.rank(), Time::START))
                .collect(),
            network: Network::new(size, Arc::clone(&clock)),
            clock,
            compute: Compute::default(),
            seed: 0,
            steps: 0,
            lens: layouts.iter().map(Layout::len).collect(),
            buckets: layouts.len() as u32,
            failures: Vec::new(),
        })
    }

    /// Delivers messages in another order, drawn from `seed`.
    #[must_use]
    pub fn with_order(mut self, seed: u64) -> Self {
        self.network.set_order(seed);
        self
    }

    /// Lets messages take the links of a fabric, and the time that these need.
    #[must_use]
    pub fn with_fabric(mut self, fabric: Fabric, sharing: Sharing) -> Self {
        self.network.set_traffic(Traffic::new(fabric, sharing));
        self
    }

    /// Lets consecutive workers share the cores of a machine, where they select and merge and their messages are moved.
    #[must_use]
    pub fn with_cores(mut self, cores: Cores) -> Self {
        self.network.set_cores(cores);
        self
    }

    /// Lets workers compute for a while, with noise drawn from `seed`.
    #[must_use]
    pub fn with_compute(mut self, compute: Compute, seed: u64) -> Self {
        (self.compute, self.seed) = (compute, seed);
        self
    }

    /// Lets a step fail when a round is in flight for longer than that.
    #[must_use]
    pub fn with_deadline(mut self, limit: Duration) -> Self {
        let drivers = self.drivers.into_iter();
        self.drivers = drivers.map(|driver| driver.with_timeout(limit)).collect();
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

    /// Why the last step failed on other workers than the one whose error it returned, in the order of time.
    pub fn other_failures(&self) -> &[(Rank, DriveError)] {
        &self.failures
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
        self.run(1, |driver, bucket| {
            driver.begin(bucket, inputs[driver.world().rank().index()])
        })
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
        self.run(self.buckets, |driver, bucket| {
            driver.begin(bucket, input(driver.world().rank(), bucket))
        })
    }

    /// [`Cluster::step_buckets`] for gradients that are made when they are needed: `fill` writes that of a worker's bucket
    /// into the buffer, which has its length, and says how many entries the update should have.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    pub fn step_made(
        &mut self,
        step: u64,
        mut fill: impl FnMut(Rank, BucketId, &mut [f32]) -> usize,
    ) -> Result<ClusterReport, DriveError> {
        let mut gradient = Vec::new();
        self.run(self.buckets, |driver, bucket| {
            gradient.resize(driver.collective(bucket).len(), 0.0);
            let k = fill(driver.world().rank(), bucket, &mut gradient);
            driver.begin(bucket, Input::new(&gradient, k, step))
        })
    }

    fn run(&mut self, buckets: u32, begin: impl FnMut(&mut SimDriver, BucketId) -> Begun) -> Ran {
        let ended = self.exchange(buckets, begin);
        if ended.is_err() {
            self.abort();
        }
        ended
    }

    fn exchange(
        &mut self,
        buckets: u32,
        mut begin: impl FnMut(&mut SimDriver, BucketId) -> Begun,
    ) -> Ran {
        self.failures.clear();
        let start = self.clock.now();
        self.announce_gradients(buckets);
        loop {
            while let Some((rank, event)) = self.network.next() {
                match event {
                    Event::Ready(bucket) => self.hosts[rank.index()].ready.push_back(bucket),
                    Event::Free => self.set_free(rank),
                    Event::Arrival(parcel) => self.receive(*parcel),
                    Event::Departure(_) => {}
                }
                self.work(rank, buckets, start, &mut begin);
            }
            // Nothing is under way any more: whoever still waits does so until its deadline.
            let Some((deadline, rank)) = self.first_deadline() else {
                break;
            };
            self.clock.advance_to(deadline);
            if let Err(error) = self.drivers[rank.index()].poll() {
                self.fail(rank, error);
            }
            self.work(rank, buckets, start, &mut begin);
        }
        if self.failures.is_empty() {
            self.report(start)
        } else {
            Err(self.failures.remove(0).1)
        }
    }

    /// Plans when the gradients of all workers are there.
    fn announce_gradients(&mut self, buckets: u32) {
        let ranks = (0..self.drivers.len() as u32).map(Rank::new);
        for rank in ranks {
            self.hosts[rank.index()] = Host::new(rank, self.clock.now());
            let with_links = self.network.traffic_mut().is_some();
            let factor = self.compute.factor(self.seed, self.steps, rank);
            let all: u64 = self.lens.iter().map(|len| u64::from(*len)).sum();
            let mut done = 0;
            // Without links the next bucket is ready a while after the last one has begun.
            let known = if with_links { buckets } else { buckets.min(1) };
            for bucket in 0..known {
                done += u64::from(self.lens[bucket as usize]);
                let at = self.compute.ready(factor, done as f64 / all.max(1) as f64);
                self.network
                    .plan_in(at, rank, Event::Ready(BucketId::new(bucket)));
            }
        }
        self.steps += 1;
    }

    fn receive(&mut self, parcel: Parcel) {
        let at = parcel.to.index();
        let transport = self.drivers[at].transport_mut();
        let had_work = transport.has_work();
        transport.take(parcel.from, parcel.news);
        if !had_work && !self.hosts[at].is_busy {
            // If this is what the worker waited for, its time went where the message's did.
            self.hosts[at].path = parcel.path;
        }
    }

    /// Lets a worker that has time do what there is to do, until it is busy or waits.
    fn work(
        &mut self,
        rank: Rank,
        buckets: u32,
        start: Time,
        begin: &mut impl FnMut(&mut SimDriver, BucketId) -> Begun,
    ) {
        while !self.hosts[rank.index()].is_busy {
            let (driver, host) = (
                &mut self.drivers[rank.index()],
                &mut self.hosts[rank.index()],
            );
            // What was done before is sent now.
            self.network.carry(rank, &host.path, driver.transport_mut());
            let (done, kind, nanos) = if let Some(bucket) = host.ready.pop_front() {
                if host.has_failed {
                    continue;
                }
                if host.done < self.clock.now() {
                    host.path = Path::new(rank);
                    let computed = self.clock.now().since(start).as_nanos() as u64;
                    host.path.add(Spent::Compute, computed);
                }
                let next = BucketId::new(bucket.get() + 1);
                if next.get() < buckets && self.network.traffic_mut().is_none() {
                    self.network.ready_later(rank, next);
                }
                let len = self.lens[bucket.index()] as usize;
                let nanos = self.compute.select_time(rank, len);
                (begin(driver, bucket), Spent::Select, nanos)
            } else if driver.transport_mut().has_work() {
                driver.transport_mut().allow_one();
                let done = driver.poll().map(drop);
                let bytes = driver.transport_mut().taken();
                (done, Spent::Merge, self.compute.merge_time(rank, bytes))
            } else {
                return;
            };
            if let Err(error) = done {
                self.fail(rank, error);
                continue;
            }
            host.path.add(kind, nanos);
            host.done = self.clock.now().after(Duration::from_nanos(nanos));
            if nanos > 0 {
                host.is_busy = true;
                self.network.work(nanos, rank);
            }
        }
    }

    /// A worker has done what it was at, which took longer if others used its cores.
    fn set_free(&mut self, rank: Rank) {
        let (now, host) = (self.clock.now(), &mut self.hosts[rank.index()]);
        host.is_busy = false;
        if now > host.done {
            let waited = now.since(host.done).as_nanos() as u64;
            host.path.add(Spent::Cores, waited);
            host.done = now;
        }
    }

    /// Notes why a worker gave the step up; its driver has told the others.
    fn fail(&mut self, rank: Rank, error: DriveError) {
        self.hosts[rank.index()].has_failed = true;
        self.failures.push((rank, error));
    }

    /// The worker whose patience ends first, if one waits.
    fn first_deadline(&self) -> Option<(Time, Rank)> {
        let waiting = self.drivers.iter().filter_map(|driver| {
            let deadline = driver.deadline()?;
            Some((deadline.time(), driver.world().rank()))
        });
        waiting.min()
    }

    fn report(&mut self, start: Time) -> Ran {
        let mut report = ClusterReport::default();
        for driver in &mut self.drivers {
            let finished = driver.finish()?;
            let outcomes = finished.buckets.iter().map(|bucket| bucket.outcome);
            report.outcomes.extend(outcomes);
            report.ledger.enter(&finished);
        }
        let nanos = |host: &Host| host.done.since(start).as_nanos() as u64;
        report.timing.finished = self.hosts.iter().map(nanos).collect();
        let last = self.hosts.iter().rev().max_by_key(|host| host.done);
        report.timing.path = last.map(|host| host.path);
        if let Some(traffic) = self.network.traffic_mut() {
            report.timing.links = traffic.take_use();
        }
        Ok(report)
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
