//! Errors by who must act: the caller ([`ConfigError`]), a peer or a damaged wire ([`ProtocolError`]).

use crate::world::Rank;

/// The caller asked for something that cannot be; the message says what is accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A rank outside its world.
    #[error("rank {rank} is not in a world of {size} workers: ranks go from 0 to size - 1")]
    RankOutOfRange {
        /// The rank asked for.
        rank: u32,
        /// The number of workers.
        size: u32,
    },
    /// A team count that does not divide the number of workers.
    #[error("{teams} teams do not divide {workers} workers evenly: use {} teams", either(*below, *above))]
    TeamsDoNotDivide {
        /// The number of teams asked for.
        teams: u32,
        /// The number of workers.
        workers: u32,
        /// The next smaller divisor, if there is one.
        below: Option<u32>,
        /// The next larger divisor, if there is one.
        above: Option<u32>,
    },
    /// A gradient whose length is not the one the collective was made for.
    #[error("the gradient has {got} elements, but this collective was made for {expected}")]
    GradientLength {
        /// The length of the collective's bucket.
        expected: usize,
        /// The length given.
        got: usize,
    },
    /// A bucket too large for 32-bit indices.
    #[error(
        "a bucket of {len} elements is too large: cut the gradient into buckets of at most 4294967295"
    )]
    BucketTooLarge {
        /// The number of elements asked for.
        len: u64,
    },
    /// A density that is no part of a whole.
    #[error("density {density} is not a number from 0 to 1")]
    BadDensity {
        /// The density asked for.
        density: f64,
    },
    /// A bucket that is not there.
    #[error("there is no bucket {bucket}: buckets go from 0 to {buckets} - 1")]
    NoSuchBucket {
        /// The bucket asked for.
        bucket: usize,
        /// The number of buckets.
        buckets: usize,
    },
    /// A call that does not fit the state of the collective (`begin` twice, `commit` before the end).
    #[error("{call} was called while the collective was {state}")]
    OutOfTurn {
        /// The call made.
        call: &'static str,
        /// What the collective was doing.
        state: &'static str,
    },
    /// A name that is not in the registry.
    #[error("unknown method '{name}': {offer}")]
    UnknownMethod {
        /// The name asked for.
        name: String,
        /// The names there are, and which one may have been meant.
        offer: String,
    },
    /// An option with a value or a name that the method does not accept.
    #[error("option {option} = '{value}' is not accepted by {method}: {expected}")]
    BadOption {
        /// The method.
        method: String,
        /// The option.
        option: String,
        /// The value given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A message that is longer than its header can say, or than the transport can carry.
    #[error(
        "a message of {bytes} bytes is over the limit of {limit}: cut the gradient into smaller buckets"
    )]
    MessageTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most that it may have.
        limit: usize,
    },
    /// A residual asked of a method that delivers everything.
    #[error("{call} was called, but this method keeps no residual")]
    NoResidual {
        /// The call made.
        call: &'static str,
    },
    /// Elements that the residual does not have.
    #[error("elements {start} to {end} were given for a residual of {len} elements")]
    ResidualRange {
        /// The first element given.
        start: usize,
        /// The end of the elements given.
        end: usize,
        /// The length of the residual.
        len: usize,
    },
    /// A value that may not enter a residual.
    #[error("element {index} of the residual would not be finite: only finite values are kept")]
    NonFiniteResidual {
        /// The first such element.
        index: usize,
    },
    /// A saved state that does not fit this collective.
    #[error("the saved state does not fit: {what} is {got}, expected {expected}")]
    StateMismatch {
        /// The part that differs.
        what: String,
        /// What this collective has.
        expected: String,
        /// What the saved state has.
        got: String,
    },
}

fn either(below: Option<u32>, above: Option<u32>) -> String {
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} or {above}"),
        (Some(one), None) | (None, Some(one)) => one.to_string(),
        (None, None) => "1".to_owned(),
    }
}

/// A peer, or the wire between us, broke the plan. The collective is unusable until `abort`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A round came back with the wrong number of messages.
    #[error("round {round}: expected {expected} messages, got {got}")]
    WrongCount {
        /// The round.
        round: u32,
        /// How many messages the plan has.
        expected: usize,
        /// How many arrived.
        got: usize,
    },
    /// A message that belongs elsewhere.
    #[error("round {round}: the message from rank {from} {}", field.complaint(*expected, *got))]
    WrongHeader {
        /// The round.
        round: u32,
        /// The sender.
        from: Rank,
        /// The field of the header that differs.
        field: HeaderField,
        /// What the plan says.
        expected: u32,
        /// What the header says.
        got: u32,
    },
    /// A message whose contents cannot be read.
    #[error("round {round}: the message from rank {from} is damaged: {source}")]
    Damaged {
        /// The round.
        round: u32,
        /// The sender.
        from: Rank,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A call after an error: the step is lost, `abort` brings back the state before it.
    #[error("the collective failed earlier in this step: call abort and begin again")]
    Poisoned,
    /// A wrong call by the driver, not by a peer.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A field of a message's header that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderField {
    /// The version of the message format.
    Version,
    /// Method, options, density, number of workers or of elements.
    Configuration,
    /// Names, shapes or order of the tensors.
    Layout,
    /// The bucket.
    Bucket,
    /// The step.
    Step,
    /// What the method keeps from step to step alike on all workers.
    State,
    /// The round within the step.
    Round,
    /// The sender.
    Sender,
}

impl HeaderField {
    /// What is wrong with the message, in words where the numbers are only hashes.
    fn complaint(self, expected: u32, got: u32) -> String {
        let name = match self {
            Self::Configuration => {
                return "is of another configuration: compare the method and its options, the density, \
                        and the number of workers and of elements on both ranks"
                    .to_owned();
            }
            Self::Layout => {
                return "is of another layout: compare the names, shapes and order of the tensors on \
                        both ranks"
                    .to_owned();
            }
            Self::State => {
                return "comes from another state of the method: restore all ranks from the same checkpoint, \
                        or none"
                    .to_owned();
            }
            Self::Version => "format version",
            Self::Bucket => "bucket",
            Self::Step => "step",
            Self::Round => "round",
            Self::Sender => "sender",
        };
        format!("has {name} {got}, expected {expected}")
    }
}

/// Why bytes from the wire cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends before what it announces.
    #[error("it ends after {got} bytes where {needed} were announced")]
    Truncated {
        /// Bytes announced.
        needed: u64,
        /// Bytes there are.
        got: u64,
    },
    /// Bytes left over after the last announced item.
    #[error("{0} bytes follow the last item")]
    Trailing(usize),
    /// More entries than the plan allows.
    #[error("a list announces {got} entries where at most {max} are allowed")]
    TooMany {
        /// The most that the plan allows.
        max: usize,
        /// What is announced.
        got: u64,
    },
    /// An index outside its block, or not above the one before it.
    #[error("indices are not ascending inside their block of {len} elements")]
    BadIndex {
        /// The length of the block.
        len: u32,
    },
    /// An entry whose value is zero, which no honest peer sends.
    #[error("an entry carries the value zero")]
    ZeroValue,
    /// A scale of values that no honest peer sends.
    #[error("a chunk of values has a scale that is not used")]
    BadScale,
    /// A coding or value type that this version does not know.
    #[error("unknown coding {0}")]
    UnknownCoding(u8),
}
