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
    /// A call failed that exchanges messages with these ranks.
    #[error("{call} with {} failed: {text}", ranks(peers))]
    Exchange {
        /// The name of the call.
        call: &'static str,
        /// The ranks on the other side.
        peers: Vec<u32>,
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

impl MpiError {
    /// The failed call, with the ranks on its other side.
    pub(crate) fn with(self, peers: &[u32]) -> Self {
        match self {
            Self::Call { call, text, .. } => Self::Exchange {
                call,
                peers: peers.to_vec(),
                text,
            },
            other => other,
        }
    }
}

/// `rank 3`, or `ranks 1, 2, 3`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let noun = if list.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_that_fails_names_the_ranks_on_its_other_side() {
        let failed = || MpiError::Call {
            call: "MPI_Waitall",
            code: 17,
            text: "truncated".to_owned(),
        };
        let text = failed().with(&[1, 3]).to_string();
        assert_eq!(text, "MPI_Waitall with ranks 1, 3 failed: truncated");
        let text = failed().with(&[2]).to_string();
        assert_eq!(text, "MPI_Waitall with rank 2 failed: truncated");
    }
}
