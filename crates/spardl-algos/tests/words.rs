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

/// What happened in one step with raw indices.
struct Step {
    workers: u64,
    /// Bytes that each worker sent, without headers.
    bytes: Vec<u64>,
    /// Entries that each worker selected.
    selected: Vec<u64>,
    /// Entries of the update.
    delivered: u64,
}

impl Step {
    fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    fn most(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }

    fn all_selected(&self) -> u64 {
        self.selected.iter().sum()
    }

    /// Bytes before the entries of the lists, when every worker's list reaches every other.
    fn prefixes(&self) -> u64 {
        self.workers * (self.workers - 1) * PREFIX
    }
}

/// A few steps with different gradients, or with one that all workers share.
fn steps(name: &str, workers: u32, layout: &Layout, unanimous: bool) -> Vec<Step> {
    let codec = Codec {
        values: ValueType::F32,
        indices: IndexCoding::Raw,
    };
    let options = Options {
        codec,
        ..Options::default()
    };
    let algorithm = registry::build(name, &options).unwrap();
    let mut cluster = Cluster::new(&*algorithm, workers, layout).unwrap();
    let step = |step: u64| {
        let make = if unanimous {
            generate::unanimous
        } else {
            generate::fractions
        };
        let gradients = make(step + 3, workers, LEN as usize);
        let ledger = cluster.step(&gradients, K as usize, step).unwrap().ledger;
        let bodies = ledger.bytes.iter().zip(&ledger.messages);
        let selected = cluster.workers().into_iter().map(|w| w.stats().selected);
        let done = Step {
            workers: workers.into(),
            bytes: bodies.map(|(b, m)| b - m * HEADER_LEN as u64).collect(),
            selected: selected.collect(),
            delivered: cluster.workers()[0].update().nnz() as u64,
        };
        cluster.commit().unwrap();
        done
    };
    (0..6).map(step).collect()
}

fn flat() -> Layout {
    Layout::flat(LEN as u32)
}

const WORKERS: [u32; 8] = [1, 2, 3, 4, 5, 7, 8, 12];

#[test]
fn random_k_sends_values_only() {
    for workers in WORKERS {
        for step in steps("random-k", workers, &flat(), false) {
            // Over all workers: each of k sums is passed on P - 1 times, and its parts meet in P - 1 messages.
            assert_eq!(step.total() / 4, 2 * K * (step.workers - 1), "P={workers}");
            let share = K.div_ceil(step.workers);
            assert!(
                step.most() / 4 <= 2 * share * (step.workers - 1),
                "P={workers}"
            );
        }
    }
}

#[test]
fn arc_topk_sends_its_sketch_and_its_rows_without_an_index() {
    for workers in WORKERS {
        // One column per row of LEN / K elements: as many values as the update has.
        let sketch = if workers == 1 { 0 } else { K };
        for step in steps("arc-topk", workers, &flat(), false) {
            let words = 2 * (K + sketch) * (step.workers - 1);
            assert_eq!(step.total() / 4, words, "P={workers}");
        }
    }
}

#[test]
fn lagged_mask_sends_values_and_the_lists_of_the_next_step_twice_only_at_the_start() {
    for workers in WORKERS {
        for (at, step) in steps("lagged-mask", workers, &flat(), false)
            .iter()
            .enumerate()
        {
            let peers = step.workers - 1;
            let times = if at == 0 { 2 } else { 1 };
            let lists = times * (4 * K * peers + step.prefixes());
            let sums = 4 * 2 * K * peers;
            assert_eq!(step.total(), lists + sums, "P={workers} step {at}");
        }
    }
}

#[test]
fn the_oracle_costs_what_dense_does() {
    for workers in WORKERS {
        assert_eq!(bytes("oracle-k", workers), bytes("dense", workers));
    }
}

/// Bits of an element on the wire, the bytes of all scales and tags included; every element whose position is a multiple of
/// `off` is zero on all workers, as behind a rectifier.
fn bits_per_element(name: &str, workers: u32, off: usize) -> f64 {
    let len = 64_000;
    let algorithm = registry::build(name, &Options::default()).unwrap();
    let mut cluster = Cluster::new(&*algorithm, workers, &Layout::flat(len)).unwrap();
    let mut gradients = generate::fractions(5, workers, len as usize);
    for gradient in &mut gradients {
        gradient
            .iter_mut()
            .step_by(off)
            .for_each(|value| *value = 0.0);
    }
    let ledger = cluster.step(&gradients, 1, 0).unwrap().ledger;
    let headers: u64 = ledger.messages.iter().sum::<u64>() * HEADER_LEN as u64;
    let elements = 2 * u64::from(len) * (u64::from(workers) - 1);
    8.0 * (ledger.bytes.iter().sum::<u64>() - headers) as f64 / elements as f64
}

#[test]
fn a_dense_sum_of_few_bits_sends_few_bits() {
    for workers in [2, 5, 8] {
        for name in ["dense", "dense-ring"] {
            let never = usize::MAX;
            assert!((bits_per_element(name, workers, never) - 32.0).abs() < 0.01);
            for (values, off, most) in [
                ("q8", never, 9.5),
                ("q4", never, 6.5),
                ("q8", 6, 9.5),
                ("q4", 6, 6.5),
                ("q4", 2, 5.0),
            ] {
                let bits = bits_per_element(&format!("{name}-{values}"), workers, off);
                assert!(
                    bits < most,
                    "{name}-{values} P={workers} zeros by {off}: {bits} bits"
                );
            }
        }
    }
}

#[test]
fn the_leader_of_clt_k_broadcasts_its_indices_and_all_add_their_values() {
    for workers in WORKERS {
        for step in steps("clt-k", workers, &flat(), false) {
            let peers = step.workers - 1;
            let sums = 2 * K * peers;
            let broadcast = peers * (K * 4 + PREFIX);
            assert_eq!(step.total(), sums * 4 + broadcast, "P={workers}");
            if workers.is_power_of_two() {
                let levels = u64::from(workers.ilog2());
                let most = levels * (K * 4 + PREFIX) + 2 * K.div_ceil(step.workers) * peers * 4;
                assert!(step.most() <= most, "P={workers}");
            }
        }
    }
}

#[test]
fn shared_masks_cost_their_lists_once_per_peer_and_their_sums_like_dense() {
    for name in ["exdyna", "micro", "hard-threshold"] {
        // A byte says what an item of ExDyna and MiCRO is; at the start they also gather a level of four bytes and its length.
        let item = PREFIX + u64::from(name != "hard-threshold");
        let start = if name == "hard-threshold" { 0 } else { 8 };
        for workers in WORKERS {
            for (at, step) in steps(name, workers, &flat(), false).iter().enumerate() {
                let (p, peers) = (step.workers, step.workers - 1);
                let what = format!("{name} P={workers} step {at}");
                let before = peers * (item + if at == 0 { start } else { 0 });
                let lists = peers * step.all_selected();
                let sums = 2 * step.delivered * peers;
                assert_eq!(step.total() - p * before, (lists + sums) * 4, "{what}");
                let longest = step.selected.iter().copied().max().unwrap_or(0);
                let share = step.delivered.div_ceil(p);
                let most = before + peers * (longest + 2 * share) * 4;
                assert!(step.most() <= most, "{what}");
            }
        }
    }
}

#[test]
fn gaussian_k_gathers_two_words_per_entry_found() {
    for workers in WORKERS {
        for step in steps("gaussian-k", workers, &flat(), false) {
            let peers = step.workers - 1;
            let words = (step.total() - step.prefixes()) / 4;
            assert_eq!(words, 2 * peers * step.all_selected(), "P={workers}");
            assert!(step.selected.iter().all(|&count| count <= 4 * K));
            assert!(
                step.most() <= peers * (PREFIX + 2 * 4 * K * 4),
                "P={workers}"
            );
        }
    }
}

#[test]
fn topk_dsa_sends_four_k_when_all_agree_and_at_most_lists_and_runs_otherwise() {
    for workers in WORKERS {
        // The form of a region's sums is a byte more.
        let prefixes = |step: &Step| 2 * step.prefixes() + step.workers * (step.workers - 1);
        let first = &steps("topk-dsa", workers, &flat(), true)[0];
        let peers = first.workers - 1;
        assert_eq!(
            (first.total() - prefixes(first)) / 4,
            4 * K * peers,
            "P={workers}"
        );
        for step in steps("topk-dsa", workers, &flat(), false) {
            let words = 2 * K * step.workers + LEN * peers;
            assert!(step.total() <= words * 4 + prefixes(&step), "P={workers}");
        }
    }
}

#[test]
fn ok_topk_sends_its_selection_to_the_owners_and_gathers_the_result() {
    for workers in WORKERS {
        for (at, step) in steps("ok-topk", workers, &flat(), false).iter().enumerate() {
            let (p, peers) = (step.workers, step.workers - 1);
            // An exact step, which the first is, gathers what the owners have; the others what becomes final.
            let fewest = 2 * step.delivered * peers;
            let gathered = if at == 0 {
                2 * step.all_selected() * peers
            } else {
                fewest
            };
            // To the owners, and once more to balance; the counts and the cuts of the regions, of eight bytes each.
            let reduced = 2 * step.all_selected();
            let balance = 2 * step.all_selected() + p * peers;
            let cuts = 2 * peers * peers * 2;
            let lists = 3 * step.prefixes() / 4 + 1;
            let words = step.total() / 4;
            assert!(words >= fewest, "P={workers} step {at}");
            let most = reduced + gathered + balance + cuts + lists;
            assert!(words <= most, "P={workers} step {at}: {words} > {most}");
        }
    }
}

#[test]
fn power_sgd_sends_its_two_factors_like_dense() {
    let (rows, columns, rank) = (24, 35, 1);
    let layout = Layout::new([("matrix".to_owned(), vec![rows, columns])]).unwrap();
    for workers in WORKERS {
        for step in steps("power-sgd", workers, &layout, false) {
            let factors = (rank * (rows + columns)) as u64;
            let words = step.total() / 4;
            assert_eq!(words, 2 * factors * (step.workers - 1), "P={workers}");
        }
    }
}

#[test]
fn deft_costs_as_a_shared_mask_and_the_bins_of_its_parts() {
    let layers: Vec<_> = (0..6)
        .map(|i| (format!("layer{i}"), vec![140usize]))
        .collect();
    let layout = Layout::new(layers).unwrap();
    for workers in WORKERS {
        for (at, step) in steps("deft", workers, &layout, false).iter().enumerate() {
            let (p, peers) = (step.workers, step.workers - 1);
            let lists = peers * step.all_selected();
            let sums = 2 * step.delivered * peers;
            let bare = step.total() - step.prefixes() - (lists + sums) * 4;
            let parts = 6 * p;
            assert!(
                bare <= 3 * peers * (4 * parts + PREFIX),
                "P={workers} step {at}: {bare}"
            );
        }
    }
}
