//! Messages that share links, and when each is through: cases for scripts/check-simgrid.
//!
//! A line per message: the case, start in ns, bytes, end in ns, and for each link of its way its number and its bytes per
//! second.

use std::fmt::Write;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::Rank;
use spardl_sim::{Fabric, Line, Topology, Transfer, carry};

use crate::output::bad_request;

/// No latency: it is added to the end of a message in both simulators.
const LINE: Line = Line {
    latency: 0,
    bandwidth: 1_000_000_000,
};

/// Numbers of workers and messages of the cases that are drawn.
const DRAWN: (u32, u32) = (32, 300);

pub(super) fn cases() -> anyhow::Result<String> {
    let message = |start, from, to, bytes| Transfer {
        start,
        from: Rank::new(from),
        to: Rank::new(to),
        bytes,
    };
    let incast = (1..9).map(|from| message(0, from, 0, 100_000)).collect();
    let uneven = vec![
        message(0, 0, 1, 100_000),
        message(0, 0, 2, 100_000),
        message(0, 0, 3, 100_000),
        message(0, 4, 3, 100_000),
        message(500_000, 5, 3, 50_000),
    ];
    let (size, oversubscription) = (DRAWN.0, 4);
    let fat_tree = Topology::FatTree {
        leaf_size: 8,
        oversubscription,
        hop_latency: 0,
    };
    let butterfly = Topology::FlattenedButterfly {
        oversubscription,
        hop_latency: 0,
    };
    let two_level = Topology::TwoLevel {
        node_size: 8,
        inside: Line {
            bandwidth: 10_000_000_000,
            ..LINE
        },
    };
    let mut text = String::new();
    for (name, topology, transfers) in [
        ("alone", Topology::Flat, vec![message(0, 0, 1, 100_000)]),
        ("incast-of-8", Topology::Flat, incast),
        ("uneven-shares", Topology::Flat, uneven),
        ("drawn-flat", Topology::Flat, drawn(1)),
        ("drawn-fat-tree", fat_tree, drawn(2)),
        ("drawn-butterfly", butterfly, drawn(3)),
        ("drawn-two-level", two_level, drawn(4)),
    ] {
        let fabric = Fabric::new(topology, size, LINE).map_err(bad_request)?;
        for (transfer, carried) in transfers.iter().zip(carry(&fabric, &transfers)) {
            let Transfer { start, bytes, .. } = transfer;
            write!(text, "{name} {start} {bytes} {}", carried.end)?;
            for (link, bits) in carried.links {
                write!(text, " {link} {}", bits / 8)?;
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Messages of 1 to 200 kB between workers drawn from a seed, within 20 ms.
fn drawn(seed: u64) -> Vec<Transfer> {
    let (size, count) = DRAWN;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let message = |_| {
        let from = random.random_range(0..size);
        Transfer {
            start: random.random_range(0..20_000_000),
            from: Rank::new(from),
            to: Rank::new((from + random.random_range(1..size)) % size),
            bytes: random.random_range(1_000..200_000),
        }
    };
    (0..count).map(message).collect()
}
