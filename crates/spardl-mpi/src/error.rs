//! Why MPI could not be used.

/// What the MPI library refused or cannot do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// A call failed.
    #[error("{call} failed: {text}")]
    Call {
        /// The name of the call.
        call: &'static str,
        /// The library's error code.
        code: i32,
        /// The library's words.
        text: String,
    },
    /// MPI was finalized before; it cannot be started twice in a process.
    #[error("MPI was already finalized in this process and cannot be started again")]
    Finalized,
    /// MPI lets only one thread call it, and this is not that thread.
    #[error("MPI was started on another thread and allows calls only from that one")]
    WrongThread,
    /// More bytes or elements than a count of MPI can say.
    #[error("{len} {what} do not fit one MPI call: at most {max} do")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// How many there are.
        len: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The thread that looks at the deadlines of blocking calls.
    #[error("no thread to watch a deadline: {0}; raise the limit of threads (ulimit -u)")]
    NoWatchdog(std::io::Error),
    /// A rank that cannot be measured with.
    #[error(
        "rank {rank} cannot exchange messages with rank {peer}: peers are the other ranks below {size}"
    )]
    NoSuchPeer {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The number of ranks.
        size: u32,
    },
    /// A peer that did not answer in time.
    #[error(
        "rank {rank} waited {limit:?} for a ping of rank {peer}: look for a rank that hangs, or give more time"
    )]
    NoPing {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The limit that passed.
        limit: std::time::Duration,
    },
    /// Ranks want to send each other different messages.
    #[error("the ranks have different plans of messages: give all of them the same one")]
    PlansDiffer,
}
