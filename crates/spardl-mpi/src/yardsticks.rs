//! What MPI itself can do: its own sum, and the time of a message. To compare with, not to train with.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::MpiError;
use crate::idle::Idle;
use crate::raw::{Arrival, Comm, Pool};
use crate::transport::MAX_MESSAGE_BYTES;

/// No other messages travel on this communicator, so any tag will do.
const PING: i32 = 1;

/// Measurements on a communicator of their own, so that they and a transport do not meet.
#[derive(Debug)]
pub struct Yardsticks {
    pool: Pool,
    /// Pings of peers that were faster than this rank.
    early: Vec<Arrival>,
}

impl Yardsticks {
    pub(crate) fn new(comm: Comm) -> Self {
        Self {
            pool: Pool::new(comm),
            early: Vec::new(),
        }
    }

    /// The engine's own dense all-reduce: the sum over all ranks, in place, by `MPI_Allreduce`. All ranks must call it with
    /// the same length.
    ///
    /// It does not promise the same bits on all ranks. When it takes longer than `limit`, the process says so and ends: MPI
    /// cannot give up a call that blocks.
    ///
    /// # Errors
    /// When there are more elements than MPI can count, or MPI fails.
    pub fn all_reduce_f32(&mut self, values: &mut [f32], limit: Duration) -> Result<(), MpiError> {
        let comm = self.pool.comm();
        let what = format!("MPI_Allreduce of {} elements", values.len());
        let words = comm.overdue(&what, limit);
        let sum = || comm.all_reduce(values);
        comm.session().within(limit, words, sum)?
    }

    /// The time of a message of `bytes` bytes one way: half the median of `repetitions` round trips. Both ranks must call
    /// it, with the same numbers; the other ranks need not.
    ///
    /// # Errors
    /// When `peer` is not one or does not answer within `limit`, there are too many bytes, or MPI fails.
    pub fn ping_pong(
        &mut self,
        peer: u32,
        bytes: usize,
        repetitions: u32,
        limit: Duration,
    ) -> Result<Duration, MpiError> {
        let (rank, size) = (self.pool.comm().rank(), self.pool.comm().size());
        if peer >= size || peer == rank {
            return Err(MpiError::NoSuchPeer { rank, peer, size });
        }
        if bytes > MAX_MESSAGE_BYTES {
            return Err(MpiError::TooLong {
                what: "bytes",
                len: bytes,
                max: MAX_MESSAGE_BYTES,
            });
        }
        let mut ball = vec![0; bytes];
        let mut trips = Vec::with_capacity(repetitions as usize + 1);
        // The first trip warms up and is not counted.
        for _ in 0..=repetitions {
            let started = Instant::now();
            if rank < peer {
                self.pool.send(peer, PING, std::mem::take(&mut ball))?;
            }
            ball = self.catch(peer, limit)?;
            if rank > peer {
                self.pool.send(peer, PING, std::mem::take(&mut ball))?;
            }
            trips.push(started.elapsed());
        }
        self.wait(peer, limit, |this| this.pool.is_idle().then_some(()))?;
        Ok(median(trips.get_mut(1..)) / 2)
    }

    /// The time of a message of `bytes` bytes while every rank sends one and none waits for all others, each after a `pause`: to
    /// the ranks that are `gaps` on, in turn. The mean over these, the median of `repetitions` on this rank. All ranks must call it,
    /// with the same numbers.
    ///
    /// # Errors
    /// As [`Yardsticks::ping_pong`].
    pub fn shift(
        &mut self,
        bytes: usize,
        gaps: &[u32],
        (repetitions, pause): (u32, Duration),
        limit: Duration,
    ) -> Result<Duration, MpiError> {
        let (rank, size) = (self.pool.comm().rank(), self.pool.comm().size());
        let mut ball = vec![0; bytes.min(MAX_MESSAGE_BYTES)];
        let mut turns = Vec::with_capacity(repetitions as usize + 1);
        // The first one warms up and is not counted.
        for _ in 0..=repetitions {
            let mut turn = Duration::ZERO;
            for gap in gaps.iter().map(|gap| gap % size).filter(|gap| *gap > 0) {
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
                let started = Instant::now();
                let (to, from) = ((rank + gap) % size, (rank + size - gap) % size);
                self.pool.send(to, PING, std::mem::take(&mut ball))?;
                ball = self.catch(from, limit)?;
                turn += started.elapsed();
            }
            turns.push(turn / gaps.len().max(1) as u32);
        }
        self.wait(rank, limit, |this| this.pool.is_idle().then_some(()))?;
        Ok(median(turns.get_mut(1..)))
    }

    fn catch(&mut self, peer: u32, limit: Duration) -> Result<Vec<u8>, MpiError> {
        self.wait(peer, limit, |this| {
            let caught = this.early.iter().position(|ping| ping.from == peer)?;
            Some(this.early.swap_remove(caught).bytes)
        })
    }

    /// Moves messages until `ready` gives something.
    fn wait<R>(
        &mut self,
        peer: u32,
        limit: Duration,
        mut ready: impl FnMut(&mut Self) -> Option<R>,
    ) -> Result<R, MpiError> {
        let started = Instant::now();
        let mut idle = Idle::default();
        loop {
            while self.pool.match_next()?.is_some() {}
            if self.pool.complete(&mut self.early)? {
                idle.reset();
            }
            if let Some(result) = ready(self) {
                return Ok(result);
            }
            if idle.wait() && started.elapsed() > limit {
                let rank = self.pool.comm().rank();
                return Err(MpiError::NoPing { rank, peer, limit });
            }
        }
    }
}

/// The middle of some times, zero of none.
fn median(times: Option<&mut [Duration]>) -> Duration {
    let times = times.unwrap_or_default();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
