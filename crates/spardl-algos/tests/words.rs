//! The published numbers of words per worker, exactly, where they are exact: headers and the prefixes of lists subtracted.

use spardl_algos::{Options, registry};
use spardl_core::{Codec, HEADER_LEN, IndexCoding, Layout, ValueType};
use spardl_sim::Cluster;
use spardl_testkit::generate;

const LEN: u64 = 840;
const K: u64 = 60;
/// Bytes before the entries of a list that travels as an item: the item's length, the count, the coding.
const PREFIX: u64 = 4 + 5;

/// The most bytes a worker sends in one step with raw indices, without headers.
fn bytes(name: &str, workers: u32) -> u64 {
    let codec = Codec {
        values: ValueType::F32,
        indices: IndexCoding::Raw,
    };
    let options = Options {
        codec,
        ..Options::default()
    };
    let algorithm = registry::build(name, &options).unwrap();
    let mut cluster = Cluster::new(&*algorithm, workers, &Layout::flat(LEN as u32)).unwrap();
    let gradients = generate::fractions(5, workers, LEN as usize);
    let ledger = cluster.step(&gradients, K as usize, 0).unwrap().ledger;
    let bodies = ledger.bytes.iter().zip(&ledger.messages);
    bodies
        .map(|(bytes, messages)| bytes - messages * HEADER_LEN as u64)
        .max()
        .unwrap()
}

#[test]
fn dense_methods_send_twice_the_gradient_less_one_share() {
    for name in ["dense", "dense-ring"] {
        for workers in [1, 2, 3, 4, 5, 6, 7, 8, 12] {
            let p = u64::from(workers);
            assert_eq!(
                bytes(name, workers) / 4,
                2 * LEN * (p - 1) / p,
                "{name} P={p}"
            );
        }
    }
    for workers in [1, 2, 4, 8] {
        let p = u64::from(workers);
        assert_eq!(
            bytes("dense-rabenseifner", workers) / 4,
            2 * LEN * (p - 1) / p
        );
    }
}

#[test]
fn gathered_top_k_lists_are_two_words_per_entry_and_peer() {
    for name in ["topk-a", "topk-a2"] {
        for workers in 1..=13 {
            let peers = u64::from(workers) - 1;
            let words = (bytes(name, workers) - peers * PREFIX) / 4;
            assert_eq!(words, 2 * K * peers, "{name} P={workers}");
        }
    }
}

#[test]
fn the_root_of_gtopk_sends_its_list_once_per_level() {
    for workers in [2u32, 4, 8, 16] {
        let levels = u64::from(workers.ilog2());
        let words = (bytes("gtopk", workers) - levels * PREFIX) / 4;
        // The published 4 k lg P is the critical path: lists up the tree and down; a single worker sends the half of it.
        assert_eq!(words, 2 * K * levels, "P={workers}");
    }
}
