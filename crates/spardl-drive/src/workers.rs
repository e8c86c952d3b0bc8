//! One closure per worker, each on its own thread.

use std::any::Any;
use std::io;
use std::thread;

use spardl_core::{Rank, World};

use crate::error::TransportError;
use crate::threads::{ThreadsTransport, threads};
use crate::transport::Connect;

/// Runs `work` once per worker of a world of `size` threads and returns the results in rank order.
///
/// A worker that returns or panics drops its transport, so the others end with
/// [`TransportError::PeerLost`] instead of waiting for it.
///
/// ```
/// use spardl_drive::{Transport, run_workers};
///
/// let ranks = run_workers(4, |transport| transport.world().rank().get())?;
/// assert_eq!(ranks, [0, 1, 2, 3]);
/// # Ok::<(), spardl_drive::WorkersError>(())
/// ```
///
/// # Errors
/// When a worker panics or its thread cannot be started.
pub fn run_workers<R: Send>(
    size: u32,
    work: impl Fn(ThreadsTransport) -> R + Sync,
) -> Result<Vec<R>, WorkersError> {
    run_on(threads(size), work)
}

/// [`run_workers`] over any transport: `endpoints` are those of all workers, in rank order.
///
/// # Errors
/// As [`run_workers`], and when an endpoint cannot connect.
pub fn run_on<C: Connect, R: Send>(
    endpoints: Vec<C>,
    work: impl Fn(C::Transport) -> R + Sync,
) -> Result<Vec<R>, WorkersError> {
    let work = &work;
    let ranks = World::all(endpoints.len() as u32).map(World::rank);
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(endpoints.len());
        let mut not_started = None;
        for (rank, endpoint) in ranks.zip(endpoints) {
            let worker = move || endpoint.connect().map(work);
            let named = thread::Builder::new().name(format!("worker {rank}"));
            match named.spawn_scoped(scope, worker) {
                Ok(handle) => handles.push((rank, handle)),
                Err(source) => {
                    // The endpoints left over are dropped here: those that run lose their peers and end.
                    not_started = Some(WorkersError::Spawn { rank, source });
                    break;
                }
            }
        }
        let joined: Vec<_> = handles
            .into_iter()
            .map(|(rank, handle)| (rank, handle.join()))
            .collect();
        match not_started {
            Some(error) => Err(error),
            None => collect(joined),
        }
    })
}

fn collect<R>(
    joined: Vec<(Rank, thread::Result<Result<R, TransportError>>)>,
) -> Result<Vec<R>, WorkersError> {
    let (mut results, mut panics, mut unconnected) = (Vec::new(), Vec::new(), None);
    for (rank, result) in joined {
        match result {
            Ok(Ok(value)) => results.push(value),
            Ok(Err(source)) => {
                unconnected.get_or_insert(WorkersError::Connect { rank, source });
            }
            Err(panic) => panics.push(WorkerPanic {
                rank,
                message: message(&*panic),
            }),
        }
    }
    match unconnected {
        Some(error) => Err(error),
        None if panics.is_empty() => Ok(results),
        None => Err(WorkersError::Panicked { panics }),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
        .to_owned()
}

/// A worker that panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPanic {
    /// The worker.
    pub rank: Rank,
    /// What it said.
    pub message: String,
}

/// Why the workers have no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkersError {
    /// Workers panicked: the first to do so, and those that could not take the loss of a peer.
    #[error("{}", describe(panics))]
    Panicked {
        /// The workers that panicked, in rank order.
        panics: Vec<WorkerPanic>,
    },
    /// A worker could not connect.
    #[error("rank {rank} could not connect: {source}")]
    Connect {
        /// The worker.
        rank: Rank,
        /// Why not.
        source: TransportError,
    },
    /// The thread of a worker could not be started.
    #[error("the thread of rank {rank} could not be started: {source}")]
    Spawn {
        /// The worker.
        rank: Rank,
        /// Why not.
        source: io::Error,
    },
}

fn describe(panics: &[WorkerPanic]) -> String {
    let lines: Vec<String> = panics
        .iter()
        .map(|panic| format!("rank {} panicked: {}", panic.rank, panic.message))
        .collect();
    lines.join("; ")
}
