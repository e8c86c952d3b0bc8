//! What a step of SparDL costs: the schedule walked with full quotas.

use spardl_core::phase::AllGather;
use spardl_core::schedule::{ceil_log2, reduce_scatter};
use spardl_core::{Cost, HEADER_LEN, Partition};

use super::SparDl;

/// The cost of step `step`: rounds are exact, bytes are those of the busiest worker with full blocks.
pub(super) fn cost(config: &SparDl, workers: u32, len: u32, k: usize, step: u64) -> Cost {
    let teams = config.teams.max(1);
    let size = (workers / teams).max(1) as usize;
    let blocks = Partition::even(len, size);
    let quotas = blocks.quotas(k, (step % size as u64) as usize);
    let lists: Vec<usize> = (0..size)
        .map(|block| {
            config
                .codec
                .list_bound(blocks.block_len(block), quotas[block])
        })
        .collect();
    let inter = ceil_log2(teams as usize);
    let rounds = 2 * ceil_log2(size) + inter;
    let bytes = |position: usize| {
        let sent = reduce_scatter(size).flat_map(|round| round.sent(position, size));
        let scatter: usize = sent.map(|block| lists[block]).sum();
        let columns = if config.doubles() {
            u64::from(inter) * lists[position] as u64
        } else {
            AllGather::body_bytes(0, &vec![lists[position]; teams as usize])
        };
        scatter as u64 + columns + AllGather::body_bytes(position, &lists)
    };
    let headers = u64::from(rounds) * HEADER_LEN as u64;
    Cost {
        rounds: rounds..=rounds,
        messages: u64::from(rounds),
        bytes_max: headers + (0..size).map(bytes).max().unwrap_or(0),
    }
}
