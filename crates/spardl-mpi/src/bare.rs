//! A bare loop of MPI messages, the yardstick for what a transport adds to them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::error::MpiError;
use crate::raw::{Comm, Exchange, SamePlan};

/// Who sends how many bytes to whom: `plan[rank][round]` lists receivers and lengths.
pub type Plan = Vec<Vec<Vec<(u32, usize)>>>;

/// The messages of a step without anything around them: per round `MPI_Irecv`, `MPI_Isend` and `MPI_Waitall`, with buffers made
/// before. A run that takes longer than its limit ends the process, as [`Yardsticks::all_reduce_f32`] does.
///
/// [`Yardsticks::all_reduce_f32`]: crate::Yardsticks::all_reduce_f32
#[derive(Debug)]
pub struct BareLoop {
    comm: Comm,
    same: SamePlan,
    rounds: Vec<Exchange>,
}

impl BareLoop {
    /// A loop over the rounds of `plan`; all ranks must call it with the same one.
    pub(crate) fn new(comm: Comm, plan: &Plan, limit: Duration) -> Result<Self, MpiError> {
        let mut hasher = DefaultHasher::new();
        plan.hash(&mut hasher);
        let words = comm.overdue("comparing the plans of messages", limit);
        let compare = || comm.same_plan(hasher.finish());
        let same = comm.session().within(limit, words, compare)??;
        let rounds = plan.iter().map(Vec::len).max().unwrap_or(0);
        let rank = comm.rank();
        let exchange = |round: usize| {
            let mut exchange = Exchange::default();
            for (from, sends) in (0..).zip(plan) {
                for &(to, len) in sends.get(round).into_iter().flatten() {
                    if from == rank {
                        exchange.sends.push((to, vec![1; len]));
                    }
                    if to == rank {
                        exchange.receives.push((from, vec![0; len]));
                    }
                }
            }
            exchange
        };
        Ok(Self {
            rounds: (0..rounds).map(exchange).collect(),
            comm,
            same,
        })
    }

    /// Runs all rounds once, after a barrier, and says how long that took here. Ends the process when it takes longer than `limit`.
    ///
    /// # Errors
    /// When MPI fails.
    pub fn run(&mut self, limit: Duration) -> Result<Duration, MpiError> {
        let comm = self.comm.clone();
        let words = comm.overdue("the bare loop of messages", limit);
        comm.session().within(limit, words, || self.run_once())?
    }

    fn run_once(&mut self) -> Result<Duration, MpiError> {
        let mut barrier = self.comm.barrier()?;
        while !barrier.is_complete()? {
            std::thread::yield_now();
        }
        let since = Instant::now();
        for round in &mut self.rounds {
            let messages = std::mem::take(round);
            *round = self.comm.exchange(messages, &self.same)?;
        }
        Ok(since.elapsed())
    }
}
