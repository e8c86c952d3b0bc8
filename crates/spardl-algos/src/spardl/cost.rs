//! What a step of SparDL costs: the schedule walked with full quotas.

use spardl_core::phase::AllGather;
use spardl_core::schedule::{Windows, ceil_log2, reduce_scatter};
use spardl_core::{Cost, HEADER_LEN, Partition};

use super::SparDl;
use crate::usual::{self, Length};

/// The cost of step `step`: rounds are exact, bytes are those of the busiest worker with full blocks.
///
/// With B-SAG a worker tells the other teams its whole quota at most, as when they agree; as a rule so many entries as make up the
/// quota together with the others', as when the teams have nothing in common.
pub(super) fn cost(
    config: &SparDl,
    workers: u32,
    len: u32,
    (k, step): (usize, u64),
    length: Length,
) -> Cost {
    let teams = config.teams.max(1) as usize;
    let size = (workers as usize / teams).max(1);
    let blocks = Partition::even(len, size);
    let quotas = blocks.quotas(k, (step % size as u64) as usize);
    let list = |block: usize, count: usize| {
        length.list(config.codec, blocks.block_len(block), count) as u64
    };
    let lists: Vec<usize> = (0..size)
        .map(|block| list(block, quotas[block]) as usize)
        .collect();
    let scattered = Windows::new(lists.iter().map(|len| *len as u64));
    let inter = ceil_log2(teams);
    let rounds = 2 * ceil_log2(size) + inter;
    let between_teams = |position: usize| {
        if config.doubles() {
            return u64::from(inter) * lists[position] as u64;
        }
        let quota = match length {
            Length::Most => quotas[position],
            Length::Usual => {
                let block = blocks.block_len(position);
                usual::part_of_union(teams, block, quotas[position])
            }
        };
        AllGather::body_bytes(0, &vec![list(position, quota) as usize; teams])
    };
    let items = AllGather::sums_of(&lists);
    let bytes = |position: usize| {
        let scatter = reduce_scatter(size)
            .map(|round| scattered.sum(position + round.gap, round.count))
            .sum::<u64>();
        scatter + between_teams(position) + AllGather::sum(&items, position, size)
    };
    let headers = u64::from(rounds) * HEADER_LEN as u64;
    Cost {
        rounds: rounds..=rounds,
        messages: u64::from(rounds),
        bytes_max: headers + (0..size).map(bytes).max().unwrap_or(0),
    }
}
