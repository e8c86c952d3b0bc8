//! Latency and bandwidth between ranks, one pair at a time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spardl_core::Rank;

use crate::job::Job;

/// Up to this many ranks all pairs are measured, above only neighbours on a ring: pairs are many then.
const ALL_PAIRS: u32 = 8;

const SMALL_BYTES: usize = 16;
const LARGE_BYTES: usize = 1_000_000;

/// A pair of ranks and the time of messages between them, one way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) a: u32,
    pub(super) b: u32,
    /// A message of 16 bytes.
    pub(super) latency_us: f64,
    /// From a message of 1 MB.
    pub(super) bandwidth_gbs: f64,
}

/// Measures the pairs one after another; every rank has all results.
pub(super) fn measure(job: &mut Job) -> anyhow::Result<Vec<Link>> {
    let rank = job.world().rank().get();
    let mut mine = Vec::new();
    for (a, b) in pairs(job.world().size()) {
        job.barrier()?;
        if rank != a && rank != b {
            continue;
        }
        let peer = Rank::new(if rank == a { b } else { a });
        let latency = job.ping_pong(peer, SMALL_BYTES, 200)?;
        let large = job.ping_pong(peer, LARGE_BYTES, 10)?;
        if rank == a {
            mine.push(link(a, b, latency, large));
        }
    }
    let mut links = Vec::new();
    for of_rank in job.gather(&serde_json::to_vec(&mine)?)? {
        links.extend(serde_json::from_slice::<Vec<Link>>(&of_rank)?);
    }
    Ok(links)
}

fn link(a: u32, b: u32, latency: Duration, large: Duration) -> Link {
    Link {
        a,
        b,
        latency_us: latency.as_secs_f64() * 1e6,
        bandwidth_gbs: LARGE_BYTES as f64 / large.as_secs_f64().max(1e-9) / 1e9,
    }
}

/// The pairs to measure, lower rank first.
fn pairs(size: u32) -> Vec<(u32, u32)> {
    let all = (0..size).flat_map(|a| (a + 1..size).map(move |b| (a, b)));
    let is_near = |&(a, b): &(u32, u32)| b == a + 1 || (a == 0 && b == size - 1);
    if size <= ALL_PAIRS {
        all.collect()
    } else {
        all.filter(is_near).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ranks_are_measured_in_all_pairs_and_many_on_a_ring() {
        assert_eq!(pairs(1), []);
        assert_eq!(pairs(3), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(pairs(8).len(), 28);
        let ring = pairs(9);
        assert_eq!(ring.len(), 9);
        assert!(ring.contains(&(0, 8)) && ring.contains(&(7, 8)));
    }
}
