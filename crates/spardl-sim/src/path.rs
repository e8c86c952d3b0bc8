//! Where the time of a step went: the longest chain of work and messages, carried along with every message.

use spardl_core::Rank;

/// What a stretch of time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Spent {
    /// Computing the gradient.
    Compute,
    /// The pass over the gradient and the selection.
    Select,
    /// Decoding, adding, encoding.
    Merge,
    /// The latency of messages.
    Latency,
    /// The bytes of messages, each alone on its way.
    Transfer,
    /// What messages took longer because others shared their way.
    Contention,
    /// What faults added.
    Faults,
    /// What work, and the moving of messages, took longer because others used the cores of the machine.
    Cores,
}

impl Spent {
    /// All kinds, in order, with a word for each.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Compute, "compute"),
        (Self::Select, "select"),
        (Self::Merge, "merge"),
        (Self::Latency, "latency"),
        (Self::Transfer, "transfer"),
        (Self::Contention, "contention"),
        (Self::Faults, "faults"),
        (Self::Cores, "cores"),
    ];
}

/// One message of the critical path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// Nanoseconds from its departure to its arrival.
    pub nanos: u64,
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The round of the step.
    pub round: u32,
}

/// The chain of work and messages that ended at some moment; the times add up to that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    spent: [u64; Spent::ALL.len()],
    /// The worker whose gradient it began with.
    pub first: Rank,
    /// The worker it ended at.
    pub last: Rank,
    /// How many messages it has.
    pub hops: u32,
    /// The message that took longest.
    pub slowest: Hop,
}

impl Path {
    /// A chain that begins with a worker's step.
    pub(crate) fn new(first: Rank) -> Self {
        Self {
            spent: Default::default(),
            first,
            last: first,
            hops: 0,
            slowest: Hop::default(),
        }
    }

    pub(crate) const fn add(&mut self, kind: Spent, nanos: u64) {
        self.spent[kind as usize] += nanos;
    }

    /// The chain goes on with a message that is there now.
    pub(crate) fn hop(&mut self, hop: Hop) {
        self.hops += 1;
        self.last = Rank::new(hop.to);
        self.slowest = self.slowest.max(hop);
    }

    /// Nanoseconds spent on something.
    pub const fn spent(&self, kind: Spent) -> u64 {
        self.spent[kind as usize]
    }

    /// Nanoseconds in all.
    pub fn total(&self) -> u64 {
        self.spent.iter().sum()
    }
}
