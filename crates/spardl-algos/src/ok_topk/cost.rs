//! What a step of Ok-Topk costs at most: an ordinary step that cuts regions anew and balances, with all caps reached.

use spardl_core::phase::{AllGather, AllToAll, all_reduce_bytes};
use spardl_core::schedule::ceil_log2;
use spardl_core::{Cost, Estimate, HEADER_LEN};

use super::{Balance, CAP, OkTopk, PEERS_PER_ROUND};
use crate::usual;

/// A step that does not cut regions and moves nothing to balance, with `k` entries from everybody and `k` in the end.
pub(super) fn estimate(config: &OkTopk, workers: u32, len: u32, k: usize) -> Estimate {
    let size = workers as usize;
    let log = ceil_log2(size);
    let mut messages = u64::from(workers - 1) + u64::from(log);
    let mut items = 4 * u64::from(workers - 1);
    let mut rounds = AllToAll::rounds(size, PEERS_PER_ROUND) + log;
    if config.balance == Balance::Always {
        // Everybody learns how many entries everybody has. They are equal as a rule: then none move.
        rounds += log;
        messages += u64::from(log);
        items += AllGather::body_bytes(0, &vec![4; size]);
    }
    let list = config
        .codec
        .usual_len(len.div_ceil(workers), k.div_ceil(size));
    Estimate {
        rounds,
        bytes: items
            + usual::split_bytes(config.codec, workers, len, k)
            + AllGather::body_bytes(0, &vec![list; size])
            + messages * HEADER_LEN as u64,
    }
}

/// Which step is exact, cuts regions or balances depends on more than its number, so the range covers all kinds.
pub(super) fn cost(config: &OkTopk, workers: usize, len: u32, k: usize) -> Cost {
    // A worker alone sends nothing.
    let most = if workers > 1 {
        k.saturating_mul(CAP).min(len as usize)
    } else {
        0
    };
    let log = u64::from(ceil_log2(workers));
    let peers = workers as u64 - 1;
    let list = config.codec.list_bound(len, most) as u64;
    // A selection is cut into a list for each owner; raw indices bound what a cut costs.
    let empty = config.codec.list_bound(len, 0) as u64;
    let raw = (4 * most + config.codec.values.split_len(most, workers)) as u64;
    let gathered = |len: usize| AllGather::body_bytes(0, &vec![len; workers]);

    let fewest = u64::from(AllToAll::rounds(workers, PEERS_PER_ROUND)) + log;
    let (mut rounds, mut messages) = (fewest, peers + log);
    let items = 4 * peers;
    let mut bytes = items + peers * empty + raw + gathered(list as usize);
    if workers > 1 {
        rounds += 2 * log;
        messages += 2 * log;
        let cuts = workers as u32 - 1;
        let reduce = all_reduce_bytes(workers, cuts, |count| 8 * count);
        bytes += (0..workers).map(reduce).max().unwrap_or(0);
    }
    if config.can_balance(workers) {
        rounds += log + 1;
        messages += log + peers;
        bytes += gathered(4) + peers * empty + raw;
    }
    Cost {
        rounds: fewest as u32..=rounds as u32,
        messages,
        bytes_max: bytes + messages * HEADER_LEN as u64,
    }
}
