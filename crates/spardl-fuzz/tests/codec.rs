//! Random bytes and damaged lists into the codec.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use spardl_core::codec::{Codec, IndexCoding, ValueType};
use spardl_fuzz::codec;

/// Bytes of the parameters before those of the list.
const PARAMETERS: usize = 10;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..100)
}

/// Random bytes but for a small count and a coding that exists, so that not all fail at the first check.
fn near_list() -> impl Strategy<Value = Vec<u8>> {
    let prefix = (0..20u8, 0..2u8).prop_map(|(count, coding)| [count, 0, 0, 0, coding]);
    (prefix, bytes()).prop_map(|(prefix, mut data)| {
        if let Some(place) = data.get_mut(PARAMETERS..PARAMETERS + prefix.len()) {
            place.copy_from_slice(&prefix);
        }
        data
    })
}

/// A list with a few bits flipped, or none.
fn damaged_list(with_values: bool) -> impl Strategy<Value = Vec<u8>> {
    let len = (0..32u32, any::<u32>()).prop_map(|(shift, len)| len >> shift);
    let entries = prop::collection::vec(any::<Index>(), 0..60);
    let flips = prop::collection::vec((any::<Index>(), 0..8u32), 0..4);
    let kind = (0..ValueType::ALL.len(), any::<bool>());
    (len, entries, kind, flips).prop_map(move |(len, entries, kind, flips)| {
        let codec = Codec {
            values: ValueType::ALL[kind.0],
            indices: if kind.1 {
                IndexCoding::Raw
            } else {
                IndexCoding::Packed
            },
        };
        let indices: BTreeSet<u32> = entries
            .iter()
            .filter(|_| len > 0)
            .map(|entry| entry.index(len as usize) as u32)
            .collect();
        let indices: Vec<u32> = indices.into_iter().collect();
        let mut data = vec![(kind.0 & 1 | kind.0 >> 1 << 6) as u8];
        data.extend(len.to_le_bytes());
        data.extend([0, 0, 0, 0, 60]);
        assert_eq!(data.len(), PARAMETERS);
        if with_values {
            let value = |at: usize| (at as f32 / 16.0 - 2.0).exp2() * (at % 3) as f32 - 1.5;
            let values: Vec<f32> = (0..indices.len()).map(value).collect();
            codec.encode(0, len, &indices, &values, &mut data);
        } else {
            codec.encode_indices(0, len, &indices, &mut data);
        }
        let list = &mut data[PARAMETERS..];
        for (byte, bit) in flips {
            list[byte.index(list.len())] ^= 1 << bit;
        }
        data
    })
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        // The environment can ask for more.
        cases: default.cases.max(30_000),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_list_is_valid_or_refused(data in prop_oneof![bytes(), near_list(), damaged_list(true)]) {
        codec::list(&data);
    }

    #[test]
    fn indices_are_valid_or_refused(data in prop_oneof![bytes(), near_list(), damaged_list(false)]) {
        codec::indices(&data);
    }

    #[test]
    fn values_are_read_or_refused(data in bytes()) {
        codec::values(&data);
    }
}
