//! A worker's state to bytes and back, for every method, and bytes that are something else.

use spardl::{Saved, SavedBucket, registry};
use spardl_core::Collective;
use spardl_testkit::generate::Numbers;
use spardl_testkit::{Trial, configurations, generate};

const LEN: usize = 200;

/// The states of both workers after some steps, as buckets of one save.
fn saved(algorithm: &dyn spardl::Algorithm) -> Saved {
    let mut trial = Trial::new(algorithm, 2, LEN);
    for step in 0..3 {
        trial.step(&generate::fractions(step, 2, LEN), 20, step);
    }
    let states = trial.cluster.workers().into_iter().map(Collective::state);
    let len = LEN as u64;
    Saved {
        method: algorithm.describe(),
        step: 3,
        warming_up: false,
        buckets: states.map(|state| SavedBucket { len, state }).collect(),
    }
}

#[test]
fn every_method_comes_back_as_it_was_saved() {
    for algorithm in configurations::every(2) {
        let saved = saved(&*algorithm);
        let bytes = saved.to_bytes();
        assert_eq!(bytes, saved.to_bytes(), "{}", saved.method);
        assert_eq!(Saved::from_bytes(&bytes).as_ref(), Ok(&saved));
        let mut fresh = Trial::new(&*algorithm, 2, LEN);
        let workers = fresh.cluster.workers_mut().into_iter();
        for (worker, bucket) in workers.zip(&saved.buckets) {
            worker.restore(&bucket.state).unwrap();
            assert_eq!(worker.state(), bucket.state, "{}", saved.method);
        }
    }
}

#[test]
fn damaged_bytes_give_an_error_or_another_state_and_never_a_panic() {
    let mut numbers = Numbers::new(3);
    for name in ["spardl", "ok-topk", "exdyna", "dense"] {
        let algorithm = registry::build(name, &spardl::Options::default()).unwrap();
        let bytes = saved(&*algorithm).to_bytes();
        for cut in 0..bytes.len() {
            assert!(Saved::from_bytes(&bytes[..cut]).is_err(), "{name} {cut}");
        }
        for _ in 0..4000 {
            let mut bytes = bytes.clone();
            // Most of the meaning is in the header, at the front.
            let end = if numbers.below(4) == 0 {
                bytes.len()
            } else {
                400.min(bytes.len())
            };
            for _ in 0..=numbers.below(3) {
                bytes[numbers.below(end as u64) as usize] = numbers.below(256) as u8;
            }
            if let Ok(other) = Saved::from_bytes(&bytes) {
                assert!(other.buckets.len() <= bytes.len());
            }
        }
    }
}

#[test]
fn bytes_of_another_program_or_format_are_refused_by_name() {
    let refused = |bytes: &[u8]| Saved::from_bytes(bytes).unwrap_err().to_string();
    let foreign = b"\x02\0\0\0\0\0\0\0{}";
    assert!(
        refused(foreign).contains("another program"),
        "{}",
        refused(foreign)
    );
    let text = Saved::default().to_bytes();
    let newer = String::from_utf8(text)
        .unwrap()
        .replace("format\\\":1", "format\\\":9");
    let message = refused(newer.as_bytes());
    assert!(
        message.contains("format 9: this version reads 1"),
        "{message}"
    );
}
