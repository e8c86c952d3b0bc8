//! Updates and residuals have the bits they have always had: twenty steps of every configuration, against a recording.
//!
//! The recording is the net under changes of the inside. A change that means to give other bits writes it again with
//! `SPARDL_RECORD=1 cargo test -p spardl-algos --test recorded_bits` and says why in its commit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use spardl_core::{Algorithm, Layout};
use spardl_testkit::{Trial, configurations, generate};

const RECORDING: &str = include_str!("recorded/bits.txt");
const STEPS: u64 = 20;
const KS: [usize; 5] = [12, 13, 40, 5, 12];

/// Workers and layout: flat where the number of workers is no power of two, many tensors, an empty one among them.
fn worlds() -> Vec<(u32, Layout)> {
    let layered = |shapes: &[&[usize]]| {
        let tensors = shapes.iter().enumerate();
        Layout::new(tensors.map(|(i, shape)| (format!("t{i}"), shape.to_vec()))).unwrap()
    };
    vec![
        (3, Layout::flat(150)),
        (4, layered(&[&[8, 9], &[7], &[], &[3, 4, 2], &[41]])),
        (6, layered(&[&[5, 13], &[0], &[60]])),
    ]
}

/// The hash of all updates of twenty steps and of what the workers keep after them.
fn run(algorithm: &dyn Algorithm, workers: u32, layout: &Layout) -> u64 {
    let mut trial = Trial::with_layout(algorithm, workers, layout);
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut add = |values: &[f32]| {
        for value in values {
            hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for step in 0..STEPS {
        let gradients = generate::fractions(step + 31, workers, layout.len() as usize);
        add(&trial.step(&gradients, KS[step as usize % KS.len()], step));
    }
    for worker in trial.cluster.workers() {
        add(worker.residual());
    }
    hash
}

fn all() -> BTreeMap<String, u64> {
    let mut hashes = BTreeMap::new();
    for (workers, layout) in worlds() {
        for algorithm in configurations::every(workers) {
            let name = format!("P={workers} {}", algorithm.describe());
            let hash = run(&*algorithm, workers, &layout);
            assert_eq!(hashes.insert(name, hash), None, "two of the same name");
        }
    }
    hashes
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that records writes a file"
)]
#[test]
fn twenty_steps_give_the_recorded_bits() {
    let hashes = all();
    if std::env::var_os("SPARDL_RECORD").is_some() {
        let mut text = String::new();
        for (name, hash) in &hashes {
            writeln!(text, "{hash:016x} {name}").unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/bits.txt");
        std::fs::write(path, text).unwrap();
        return;
    }
    let recorded: BTreeMap<&str, u64> = RECORDING
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(hash, name)| (name, u64::from_str_radix(hash, 16).unwrap()))
        .collect();
    for (name, hash) in &recorded {
        let got = hashes.get(*name);
        assert_eq!(got, Some(hash), "{name}: other bits than recorded");
    }
    let new: Vec<_> = hashes
        .keys()
        .filter(|name| !recorded.contains_key(name.as_str()))
        .collect();
    assert!(new.is_empty(), "not recorded yet: {new:?}");
}
