//! The border between the sans-IO machines of `spardl-core` and the world.
//!
//! A [`Transport`] moves one round and never knows why. A [`Driver`] owns the collectives of many buckets, keeps all of
//! them in flight over one transport and reports what each cost. [`threads()`] is the transport inside one process;
//! [`run_workers`] runs one closure per worker on it. Every wait has a deadline, and its error names who waits for whom.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`transport`] | the trait, and how stale messages are told apart |
//! | [`time`] | moments, clocks and deadlines |
//! | [`matching`] | the table that turns messages in any order into complete rounds |
//! | [`threads`](mod@threads) | workers as threads of one process |
//! | [`pool`](mod@pool) | several cores for one worker |
//! | [`driver`] | many buckets over one transport |
//! | [`error`] | why a step failed, by who must act |
//! | [`report`] | what a step cost, and who waits for whom when one hangs |
//! | [`workers`] | one closure per worker |
//! | [`conformance`] | what every transport must do, as tests |

#![forbid(unsafe_code)]

pub mod conformance;
pub mod driver;
pub mod error;
mod gather;
mod line;
pub mod matching;
pub mod pool;
pub mod report;
mod run;
pub mod threads;
pub mod time;
pub mod transport;
pub mod workers;

pub use driver::{Driver, OnNonFinite};
pub use error::{DriveError, TransportError};
pub use gather::{barrier, gather};
pub use line::measure_line;
pub use matching::{News, RoundTable, Stamp};
pub use pool::{Pool, PoolError, pool};
pub use report::{BucketReport, Counts, StepReport, WaitingOn};
pub use threads::{ThreadsEndpoint, ThreadsTransport, threads};
pub use time::{Clock, Deadline, SystemClock, Time};
pub use transport::{BucketId, Connect, Transport};
pub use workers::{WorkerPanic, WorkersError, run_on, run_workers};
