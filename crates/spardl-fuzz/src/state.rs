//! Any bytes as the saved state of a worker.

use std::sync::LazyLock;

use spardl::{Saved, SavedBucket};
use spardl_core::Algorithm;
use spardl_testkit::{Trial, configurations, generate};

use crate::{Outcome, outcome, words};

const WORKERS: u32 = 3;
const LEN: u32 = 40;

static METHODS: LazyLock<Vec<Box<dyn Algorithm>>> =
    LazyLock::new(|| configurations::every(WORKERS));

/// Bytes as a saved state: refused, or one that is written and read again as it is. Workers that are restored to it refuse it, or
/// go on from it: they agree, or one of them says why not.
pub fn saved(data: &[u8]) -> Outcome {
    let saved = match Saved::from_bytes(data) {
        Ok(saved) => saved,
        Err(error) => return outcome(words(&error.to_string())),
    };
    let again = saved.to_bytes();
    let read = Saved::from_bytes(&again).expect("what was written can be read");
    // Bits, not values: a state may hold NaN, which a worker refuses when it is restored.
    assert_eq!(read.to_bytes(), again, "the same bytes again");
    let method = METHODS.iter().position(|m| m.describe() == saved.method);
    let (Some(method), [bucket]) = (method, saved.buckets.as_slice()) else {
        return outcome((method, saved.buckets.len()));
    };
    outcome((method, go_on(&*METHODS[method], bucket)))
}

/// All workers from the same state; what one of them says.
fn go_on(method: &dyn Algorithm, bucket: &SavedBucket) -> Option<String> {
    let mut trial = Trial::new(method, WORKERS, LEN as usize);
    for worker in trial.cluster.workers_mut() {
        if let Err(error) = worker.restore(&bucket.state) {
            return Some(words(&error.to_string()));
        }
    }
    let before = trial.kept();
    let gradients = generate::fractions(1, WORKERS, LEN as usize);
    let result = trial.cluster.step(&gradients, 9, 7);
    trial.cluster.abort();
    assert!(before == trial.kept(), "{}: left a trace", trial.context);
    result.err().map(|error| words(&error.to_string()))
}

/// Valid states to damage: those of all methods, before and after a few steps.
pub fn examples() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for method in METHODS.iter() {
        let mut trial = Trial::new(&**method, WORKERS, LEN as usize);
        for step in 0..3 {
            let collective = trial.cluster.workers()[1];
            let saved = Saved {
                method: method.describe(),
                step,
                warming_up: false,
                buckets: vec![SavedBucket {
                    len: LEN.into(),
                    state: collective.state(),
                }],
            };
            all.push(saved.to_bytes());
            trial.step(&generate::fractions(step, WORKERS, LEN as usize), 9, step);
        }
    }
    all
}
