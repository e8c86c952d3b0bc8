//! A bare loop of MPI messages, the yardstick for what a transport adds to them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::{MpiError, ranks};
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
    /// The round under way, for those who ask where it hangs.
    at: Arc<AtomicUsize>,
    /// Whom this rank waits for in each round.
    peers: Arc<Vec<Vec<u32>>>,
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
        let rounds: Vec<Exchange> = (0..rounds).map(exchange).collect();
        Ok(Self {
            peers: Arc::new(rounds.iter().map(Exchange::peers).collect()),
            at: Arc::default(),
            rounds,
            comm,
            same,
        })
    }

    /// Runs all rounds once and says how long that took here. The ranks should start together. Ends the process when it takes
    /// longer than `limit`, and says which ranks this one waited for.
    ///
    /// # Errors
    /// When MPI fails.
    pub fn run(&mut self, limit: Duration) -> Result<Duration, MpiError> {
        let comm = self.comm.clone();
        let (at, peers, rank) = (Arc::clone(&self.at), Arc::clone(&self.peers), comm.rank());
        let words = move || {
            let round = at.load(Relaxed);
            overdue(rank, round, &peers[round], limit)
        };
        comm.session().within(limit, words, || self.run_once())?
    }

    fn run_once(&mut self) -> Result<Duration, MpiError> {
        let since = Instant::now();
        for (at, round) in self.rounds.iter_mut().enumerate() {
            self.at.store(at, Relaxed);
            let messages = std::mem::take(round);
            *round = self.comm.exchange(messages, &self.same)?;
        }
        Ok(since.elapsed())
    }
}

fn overdue(rank: u32, round: usize, peers: &[u32], limit: Duration) -> String {
    format!(
        "rank {rank}: round {round} of the bare loop of messages: waits for {} longer than the deadline of {limit:?}; look for a \
         rank that hangs, or give more time",
        ranks(peers)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_hangs_names_the_ranks_it_waits_for() {
        let words = overdue(0, 2, &[1, 3], Duration::from_secs(5));
        let expected = "rank 0: round 2 of the bare loop of messages: waits for ranks 1, 3 longer than the deadline of 5s";
        assert!(words.starts_with(expected), "{words}");
    }
}
