//! Any bytes as the saved state of a worker.

use spardl::{Saved, SavedBucket};
use spardl_core::World;
use spardl_testkit::configurations;

/// Bytes as a saved state: refused, or one that is written and read again as it is.
pub fn saved(data: &[u8]) {
    let Ok(saved) = Saved::from_bytes(data) else {
        return;
    };
    let again = saved.to_bytes();
    let read = Saved::from_bytes(&again).expect("what was written can be read");
    // Bits, not values: a state may hold NaN, which a worker refuses when it is restored.
    assert_eq!(read.to_bytes(), again, "the same bytes again");
}

/// Valid states to damage: those of all methods for a small bucket.
pub fn examples() -> Vec<Vec<u8>> {
    let (world, len) = (World::new(0, 3).expect("a world"), 40);
    let layout = spardl_core::Layout::flat(len);
    let methods = configurations::all(3).into_iter();
    let states = methods.filter_map(|algorithm| {
        let collective = algorithm.collective(world, &layout).ok()?;
        let saved = Saved {
            method: algorithm.describe(),
            step: 7,
            warming_up: false,
            buckets: vec![SavedBucket {
                len: u64::from(len),
                state: collective.state(),
            }],
        };
        Some(saved.to_bytes())
    });
    states.collect()
}
