//! Workers as threads, and something for them to reduce.

use spardl::{Error, ThreadsTransport, Transport, run_workers};

/// A worker's gradient of a step.
pub(crate) fn gradient(rank: u32, step: u32, len: u32) -> Vec<f32> {
    let value = |i| ((i * 31 + rank * 7 + step * 3) % 97) as f32 - 48.0;
    (0..len).map(value).collect()
}

/// What all workers return, none of which may fail.
pub(crate) fn on_all<R: Send>(
    workers: u32,
    work: impl Fn(u32, ThreadsTransport) -> Result<R, Error> + Sync,
) -> Vec<R> {
    let results = run_workers(workers, |transport| {
        let rank = transport.world().rank().get();
        work(rank, transport)
    });
    let results = results.expect("no panic").into_iter();
    results
        .map(|result| result.expect("it ends well"))
        .collect()
}
