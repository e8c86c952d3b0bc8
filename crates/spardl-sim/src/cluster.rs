//! P machines, their messages in flight, and a ledger.

use std::collections::BTreeMap;
use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::{
    Algorithm, Collective, ConfigError, Expected, Inbox, Input, Layout, Outcome, Payload,
    ProtocolError, Rank, Round, Step, World,
};

/// What happens to a message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It arrives as it is.
    None,
    /// It never arrives.
    Drop,
    /// It arrives with these bytes instead.
    Replace(Vec<u8>),
}

/// A message on its way, as a fault rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The round of the step.
    pub round: u32,
    /// The wire bytes.
    pub bytes: &'a [u8],
}

/// Watches the workers' local work, e.g. to time it: the simulator itself reads no clock.
pub trait Probe {
    /// A worker starts local work: `begin` when `round` is `None`, else the `resume` after that round.
    fn enter(&mut self, rank: Rank, round: Option<u32>);
    /// The work that was entered last is done.
    fn leave(&mut self);
}

/// A probe that watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Probe for Unwatched {
    fn enter(&mut self, _: Rank, _: Option<u32>) {}
    fn leave(&mut self) {}
}

/// What each worker sent in one step.
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
}

impl Ledger {
    fn new(workers: usize) -> Self {
        Self {
            rounds: vec![0; workers],
            messages: vec![0; workers],
            bytes: vec![0; workers],
            bytes_received: vec![0; workers],
        }
    }
}

/// How a step of the whole cluster went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// The outcome, per worker.
    pub outcomes: Vec<Outcome>,
    /// What was sent.
    pub ledger: Ledger,
}

/// Why a step of the cluster did not end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A caller's mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A worker refused a message.
    #[error("rank {rank}: {source}")]
    Protocol {
        /// The worker that refused.
        rank: Rank,
        /// What it refused.
        source: ProtocolError,
    },
    /// Nobody can go on: messages were lost or the plans do not fit each other.
    #[error("deadlock: rank {rank} waits in round {round} for ranks {waiting_on:?}")]
    Deadlock {
        /// The first worker that is stuck.
        rank: Rank,
        /// The round it is in.
        round: u32,
        /// The workers it waits for.
        waiting_on: Vec<u32>,
    },
}

/// All workers of a world, on one bucket.
pub struct Cluster {
    workers: Vec<Collective>,
    order: ChaCha8Rng,
    fault: Box<dyn FnMut(Message<'_>) -> Fault + Send>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster of `size` workers that run `algorithm` on a bucket of this layout.
    ///
    /// # Errors
    /// When the algorithm refuses the world or the layout.
    pub fn new(algorithm: &dyn Algorithm, size: u32, layout: &Layout) -> Result<Self, ConfigError> {
        let workers = World::all(size)
            .map(|world| algorithm.collective(world, layout))
            .collect::<Result<_, _>>()?;
        let order = ChaCha8Rng::seed_from_u64(0);
        Ok(Self {
            workers,
            order,
            fault: Box::new(|_| Fault::None),
        })
    }

    /// Delivers messages in another order, drawn from `seed`.
    #[must_use]
    pub fn with_order(mut self, seed: u64) -> Self {
        self.order = ChaCha8Rng::seed_from_u64(seed);
        self
    }

    /// Lets `rule` decide what happens to each message.
    pub fn set_fault(&mut self, rule: impl FnMut(Message<'_>) -> Fault + Send + 'static) {
        self.fault = Box::new(rule);
    }

    /// The workers, in rank order.
    pub fn workers(&self) -> &[Collective] {
        &self.workers
    }

    /// The workers, in rank order.
    pub fn workers_mut(&mut self) -> &mut [Collective] {
        &mut self.workers
    }

    /// One step of all workers up to `Done`; nothing is committed yet.
    ///
    /// # Errors
    /// When a worker refuses its input or a message, or nobody can go on. Abort the workers then.
    pub fn step<G: AsRef<[f32]>>(
        &mut self,
        gradients: &[G],
        k: usize,
        step: u64,
    ) -> Result<StepReport, SimError> {
        self.step_watched(gradients, k, step, &mut Unwatched)
    }

    /// [`Cluster::step`], with a probe around the workers' local work.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    pub fn step_watched<G: AsRef<[f32]>>(
        &mut self,
        gradients: &[G],
        k: usize,
        step: u64,
        probe: &mut dyn Probe,
    ) -> Result<StepReport, SimError> {
        let inputs: Vec<_> = gradients
            .iter()
            .map(|gradient| Input::new(gradient.as_ref(), k, step))
            .collect();
        self.step_inputs(&inputs, probe)
    }

    /// [`Cluster::step_watched`] for inputs of any kind, one per worker.
    ///
    /// # Errors
    /// As [`Cluster::step`].
    pub fn step_inputs(
        &mut self,
        inputs: &[Input<'_>],
        probe: &mut dyn Probe,
    ) -> Result<StepReport, SimError> {
        let size = self.workers.len();
        let mut flight = Flight::new(size);
        for (rank, &input) in inputs.iter().enumerate() {
            probe.enter(Rank::new(rank as u32), None);
            let next = self.workers[rank].begin(input);
            probe.leave();
            flight.take(rank, next?, &mut self.fault);
        }
        while flight.unfinished() {
            if flight.ready.is_empty() {
                return Err(flight.deadlock());
            }
            let turn = self.order.random_range(0..flight.ready.len());
            let rank = flight.ready.swap_remove(turn);
            let (round, inbox) = flight.deliver(rank);
            probe.enter(Rank::new(rank as u32), Some(round));
            let next = self.workers[rank].resume(inbox);
            probe.leave();
            let next = next.map_err(|source| SimError::Protocol {
                rank: Rank::new(rank as u32),
                source,
            })?;
            flight.take(rank, next, &mut self.fault);
        }
        Ok(flight.into_report())
    }

    /// Commits the finished step on all workers.
    ///
    /// # Errors
    /// When a worker has no updated step.
    pub fn commit(&mut self) -> Result<(), ConfigError> {
        self.workers.iter_mut().try_for_each(Collective::commit)
    }

    /// Aborts the current step on all workers.
    pub fn abort(&mut self) {
        self.workers.iter_mut().for_each(Collective::abort);
    }
}

/// The messages under way and who waits for what.
struct Flight {
    waiting: Vec<Option<(u32, Vec<Expected>)>>,
    outcomes: Vec<Option<Outcome>>,
    /// The workers whose mail is complete.
    ready: Vec<usize>,
    mail: BTreeMap<(usize, u32, u32), Payload>,
    ledger: Ledger,
}

impl Flight {
    fn new(size: usize) -> Self {
        Self {
            waiting: vec![None; size],
            outcomes: vec![None; size],
            ready: Vec::with_capacity(size),
            mail: BTreeMap::new(),
            ledger: Ledger::new(size),
        }
    }

    fn take(
        &mut self,
        rank: usize,
        step: Step,
        fault: &mut (dyn FnMut(Message<'_>) -> Fault + Send),
    ) {
        match step {
            Step::Done(outcome) => self.outcomes[rank] = Some(outcome),
            Step::Exchange(Round { seq, sends, recvs }) => {
                self.ledger.rounds[rank] += 1;
                for send in sends {
                    self.ledger.messages[rank] += 1;
                    self.ledger.bytes[rank] += send.payload.wire_len() as u64;
                    let from = Rank::new(rank as u32);
                    let bytes = send.payload.as_wire();
                    let payload = match fault(Message {
                        from,
                        to: send.to,
                        round: seq,
                        bytes,
                    }) {
                        Fault::None => send.payload,
                        Fault::Drop => continue,
                        Fault::Replace(bytes) => Payload::from_wire(bytes),
                    };
                    self.ledger.bytes_received[send.to.index()] += payload.wire_len() as u64;
                    self.mail
                        .insert((send.to.index(), seq, rank as u32), payload);
                    self.note(send.to.index());
                }
                self.waiting[rank] = Some((seq, recvs));
                self.note(rank);
            }
        }
    }

    fn unfinished(&self) -> bool {
        self.outcomes.iter().any(Option::is_none)
    }

    fn missing(&self, rank: usize) -> Option<(u32, Vec<u32>)> {
        let (seq, recvs) = self.waiting[rank].as_ref()?;
        let absent = |e: &&Expected| !self.mail.contains_key(&(rank, *seq, e.from.get()));
        Some((
            *seq,
            recvs.iter().filter(absent).map(|e| e.from.get()).collect(),
        ))
    }

    /// Makes the worker ready if it has all its mail now.
    fn note(&mut self, rank: usize) {
        let Some((seq, recvs)) = &self.waiting[rank] else {
            return;
        };
        let here = |e: &Expected| self.mail.contains_key(&(rank, *seq, e.from.get()));
        if recvs.iter().all(here) && !self.ready.contains(&rank) {
            self.ready.push(rank);
        }
    }

    fn deliver(&mut self, rank: usize) -> (u32, Inbox<'static>) {
        let (seq, recvs) = self.waiting[rank].take().expect("a ready worker waits");
        let mail = recvs.iter().map(|e| {
            self.mail
                .remove(&(rank, seq, e.from.get()))
                .expect("a ready worker has its mail")
        });
        (seq, Inbox::new(mail.collect()))
    }

    fn deadlock(&self) -> SimError {
        let stuck = (0..self.waiting.len()).find_map(|rank| Some((rank, self.missing(rank)?)));
        let (rank, (round, waiting_on)) = stuck.expect("an unfinished worker waits");
        SimError::Deadlock {
            rank: Rank::new(rank as u32),
            round,
            waiting_on,
        }
    }

    fn into_report(self) -> StepReport {
        let outcomes = self.outcomes.into_iter().flatten().collect();
        StepReport {
            outcomes,
            ledger: self.ledger,
        }
    }
}
