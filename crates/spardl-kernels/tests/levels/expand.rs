//! Sparse updates written out.

use proptest::prelude::*;
use spardl_kernels::*;

use super::{bits, finite};

/// A length on either side of where stores go past the cache.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 0usize..300, 1 => 64usize * 1024..66 * 1024 + 40]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_update_is_written_out_with_the_same_bits_at_every_level(
        (length, offset) in (length(), 0usize..18),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        value in finite(),
        base in prop_oneof![Just(0u32), Just(12_345)],
    ) {
        let places = places.iter().filter(|_| length > 0).map(|place| place.index(length));
        let places: std::collections::BTreeSet<usize> = places.collect();
        let indices: Vec<u32> = places.iter().map(|&place| base + place as u32).collect();
        let values: Vec<f32> = (0..indices.len()).map(|j| value * (j + 1) as f32).collect();
        let mut expected = vec![7.0; length + offset];
        expected[offset..].fill(0.0);
        for (&place, value) in places.iter().zip(&values) {
            expected[offset + place] = value * 0.25;
        }
        for level in Level::available() {
            let mut out = vec![7.0; length + offset];
            expand(level, &indices, &values, 0.25, base, &mut out[offset..]);
            prop_assert_eq!(bits(&out), bits(&expected), "{:?}", level);
        }
    }
}

#[test]
fn entries_outside_of_the_output_are_refused_at_every_level() {
    for level in Level::available() {
        for length in [10, 70_000] {
            for index in [4, 5 + length as u32] {
                let written = std::panic::catch_unwind(|| {
                    expand(level, &[index], &[1.0], 1.0, 5, &mut vec![0.0; length]);
                });
                assert!(
                    written.is_err(),
                    "{level:?}, {length} elements, index {index}"
                );
            }
        }
    }
}

#[test]
fn copies_past_the_cache_are_whole_wherever_they_begin() {
    let from: Vec<f32> = (1..=200).map(|value| value as f32).collect();
    for level in Level::available() {
        for (offset, length) in
            (0..20).flat_map(|offset| (0..180).map(move |length| (offset, length)))
        {
            let from = &from[offset..offset + length];
            let mut to = [0.0; 200];
            copy_past_cache(level, from, &mut to[offset / 2..][..length]);
            let (before, rest) = to.split_at(offset / 2);
            let (copied, after) = rest.split_at(length);
            assert_eq!(copied, from, "{level:?}, {offset}, {length}");
            assert!(
                before.iter().chain(after).all(|&value| value == 0.0),
                "{level:?}, {offset}, {length}"
            );
        }
    }
}
