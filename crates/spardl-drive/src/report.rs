//! What a step cost, and who waits for whom when one hangs.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use spardl_core::{MethodStats, Outcome, Rank};

use crate::error::Place;
use crate::transport::BucketId;

/// One line of a hang report: a round in flight and the peers whose messages are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingOn {
    /// The bucket.
    pub bucket: BucketId,
    /// The round of the step.
    pub round: u32,
    /// The peers whose messages are missing, in the order of the plan.
    pub peers: Vec<Rank>,
    /// How long the round has been in flight.
    pub waited: Duration,
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            round,
            peers,
            waited,
        } = self;
        let place = Place(*bucket, *round);
        write!(f, "{place} waits for {} since {waited:.1?}", ranks(peers))
    }
}

/// `rank 3`, or `ranks 1, 2, 3`.
pub(crate) fn ranks(peers: &[Rank]) -> String {
    let list: Vec<String> = peers.iter().map(Rank::to_string).collect();
    let noun = if list.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list.join(", "))
}

/// What one worker did in a step, of one bucket or summed over buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds.
    pub rounds: u32,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent, headers included.
    pub bytes_sent: u64,
    /// Bytes received, headers included.
    pub bytes_received: u64,
    /// Messages one after the other: of every round those sent or those received, whichever are more.
    pub path_messages: u64,
    /// Bytes one after the other, counted in the same way: a link carries both directions at once, rounds follow each other.
    pub path_bytes: u64,
    /// What the method counted.
    pub stats: MethodStats,
    /// Time in `begin`: the pass over the gradient and the selection.
    pub select: Duration,
    /// Time in `resume`: decoding, adding, encoding.
    pub merge: Duration,
    /// Time the bucket had a round in flight. Buckets overlap, so the sum may exceed the time of the step.
    pub exchange: Duration,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.messages += other.messages;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.path_messages += other.path_messages;
        self.path_bytes += other.path_bytes;
        self.stats.rescans += other.stats.rescans;
        self.stats.entries_sent += other.stats.entries_sent;
        self.stats.selected += other.stats.selected;
        self.select += other.select;
        self.merge += other.merge;
        self.exchange += other.exchange;
    }
}

/// How a step of one bucket went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketReport {
    /// The bucket.
    pub bucket: BucketId,
    /// How it ended, the same on all workers.
    pub outcome: Outcome,
    /// What it cost this worker.
    pub counts: Counts,
}

/// How a step of the buckets that were begun went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepReport {
    /// One report per bucket that was begun.
    pub buckets: Vec<BucketReport>,
    /// Time this worker did nothing but wait for messages.
    pub waited: Duration,
}

impl StepReport {
    /// The sum over buckets.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for bucket in &self.buckets {
            total += bucket.counts;
        }
        total
    }

    /// Has every bucket that was begun an update?
    pub fn all_updated(&self) -> bool {
        self.first_skipped().is_none()
    }

    /// The first bucket that was skipped, with its outcome.
    pub fn first_skipped(&self) -> Option<(BucketId, Outcome)> {
        let skipped = |report: &&BucketReport| report.outcome != Outcome::Updated;
        let first = self.buckets.iter().find(skipped)?;
        Some((first.bucket, first.outcome))
    }
}
