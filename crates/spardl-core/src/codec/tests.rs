use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const CODECS: [Codec; 6] = [
    codec(ValueType::F32, IndexCoding::Packed),
    codec(ValueType::F32, IndexCoding::Raw),
    codec(ValueType::Bf16, IndexCoding::Packed),
    codec(ValueType::Bf16, IndexCoding::Raw),
    codec(ValueType::Q4, IndexCoding::Packed),
    codec(ValueType::Q1, IndexCoding::Raw),
];

const fn codec(values: ValueType, indices: IndexCoding) -> Codec {
    Codec { values, indices }
}

/// A block and entries in it.
#[derive(Clone, Debug)]
struct Case {
    start: u32,
    block_len: u32,
    indices: Vec<u32>,
}

impl Case {
    fn new(start: u32, block_len: u32, positions: impl IntoIterator<Item = u32>) -> Self {
        let positions: BTreeSet<u32> = positions.into_iter().collect();
        let indices = positions.iter().map(|position| start + position).collect();
        Self {
            start,
            block_len,
            indices,
        }
    }

    /// Values that every type holds: some of each sign and size, infinite and NaN; then some that few bits hold.
    fn values(&self) -> Vec<f32> {
        let mut some = [1.0, -2.5, 1e-40, 3e38, f32::NEG_INFINITY, f32::NAN];
        ValueType::Bf16.round(&mut some);
        some.into_iter()
            .cycle()
            .take(64)
            .chain([2.0, -2.0].into_iter().cycle())
            .take(self.indices.len())
            .collect()
    }

    fn encode(&self, codec: Codec) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec.encode(
            self.start,
            self.block_len,
            &self.indices,
            &self.values(),
            &mut bytes,
        );
        bytes
    }

    fn decode(&self, codec: Codec, bytes: &[u8]) -> Result<(Vec<u32>, Vec<f32>), DecodeError> {
        let mut reader = Reader::new(bytes);
        // What is there must stay, whatever comes.
        let (mut indices, mut values) = (vec![7, 7], vec![7.0]);
        let max = self.indices.len();
        let (start, len) = (self.start, self.block_len);
        let result = codec.decode(&mut reader, start, len, max, &mut indices, &mut values);
        assert_eq!((&indices[..2], &values[..1]), (&[7, 7][..], &[7.0][..]));
        let entries = (indices.split_off(2), values.split_off(1));
        if result.is_err() {
            assert_eq!(entries, (vec![], vec![]), "on error nothing is appended");
        } else {
            assert_eq!(entries.0.len(), entries.1.len());
            assert!(entries.0.is_sorted_by(|a, b| a < b));
            assert!(entries.0.iter().all(|&index| index - start < len));
        }
        result.and(reader.finish()).and(Ok(entries))
    }

    fn check_round_trip(&self) {
        for codec in CODECS {
            let bytes = self.encode(codec);
            let count = self.indices.len();
            let exact = codec.values.elementwise() == codec.values;
            assert!(bytes.len() == codec.list_len(self.block_len, count) || !exact);
            assert!(bytes.len() <= codec.list_bound(self.block_len, count));
            // Either index coding reads both.
            for indices in [IndexCoding::Packed, IndexCoding::Raw] {
                let (indices, values) = self.decode(Codec { indices, ..codec }, &bytes).unwrap();
                assert_eq!(indices, self.indices);
                let mut seen = self.values();
                codec.values.round(&mut seen);
                assert_eq!(bits(&values), bits(&seen));
            }
            self.check_indices_round_trip(codec);
        }
        self.check_all_codings();
    }

    fn check_indices_round_trip(&self, codec: Codec) {
        let (start, len, count) = (self.start, self.block_len, self.indices.len());
        let mut bytes = vec![1, 2, 3];
        codec.encode_indices(start, len, &self.indices, &mut bytes);
        let exact = !codec.values.is_narrow();
        assert!(bytes.len() - 3 == codec.indices_len(len, count) || !exact);
        assert!(bytes.len() - 3 <= codec.indices_bound(len, count));
        let (mut reader, mut indices) = (Reader::new(&bytes[3..]), vec![9]);
        codec
            .decode_indices(&mut reader, start, len, count, &mut indices)
            .unwrap();
        reader.finish().unwrap();
        assert_eq!(indices[0], 9);
        assert_eq!(indices[1..], self.indices);
    }

    /// Also the codings that would not be chosen work.
    fn check_all_codings(&self) {
        let (start, len, count) = (self.start, self.block_len, self.indices.len());
        let level = Level::best();
        let mut packed = vec![0; elias_fano::len(len, count)];
        let mut gaps = vec![0; rice::len(level, start, len, &self.indices)];
        assert!(gaps.len() <= packed.len());
        if count > 0 {
            elias_fano::write(level, start, len, &self.indices, &mut packed);
            rice::write(level, start, len, &self.indices, &mut gaps);
        }
        for (coding, bytes) in [(Coding::EliasFano, packed), (Coding::Rice, gaps)] {
            let (mut reader, mut indices) = (Reader::new(&bytes), Vec::new());
            coding
                .read(&mut reader, start, len, count, &mut indices)
                .unwrap();
            reader.finish().unwrap();
            assert_eq!(indices, self.indices);
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A generator for loops too long for proptest (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn case(&mut self, max_len: u64) -> Case {
        let len = self.below(max_len + 1);
        let count = self.below(len + 1);
        let start = self.below(u64::from(u32::MAX) - len + 1) as u32;
        let positions: Vec<u32> = (0..count).map(|_| self.below(len) as u32).collect();
        Case::new(start, len as u32, positions)
    }
}

/// Block lengths of all magnitudes and their edges.
fn block_len() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..=2u32,
        0..=300u32,
        (0..32u32, any::<u32>()).prop_map(|(shift, len)| len >> shift),
        (1..32u32, 0..=2u32).prop_map(|(shift, above)| (1 << shift) - 1 + above),
        Just(u32::MAX),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let start = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let count = prop_oneof![0..=4usize, 0..=100usize, 0..=3000usize];
    (block_len(), start, count, any::<u64>(), any::<bool>()).prop_map(
        |(len, start, count, seed, clustered)| {
            let mut random = Random(seed | 1);
            let span = if clustered { len.min(4000) } else { len };
            let first = random.below(u64::from(len - span) + 1) as u32;
            let count = if span == 0 { 0 } else { count };
            let positions = (0..count).map(|_| first + random.below(span.into()) as u32);
            Case::new(start.min(u32::MAX - len), len, positions)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_encoded_is_decoded(case in case()) {
        case.check_round_trip();
    }

    #[test]
    fn every_cut_is_an_error(case in case().prop_filter("short", |c| c.indices.len() <= 200)) {
        for codec in CODECS {
            let bytes = case.encode(codec);
            for end in 0..bytes.len() {
                let error = case.decode(codec, &bytes[..end]).unwrap_err();
                let DecodeError::Truncated { needed, got } = error else {
                    panic!("{error}");
                };
                assert_eq!(got, end as u64);
                assert!(needed > got && needed <= bytes.len() as u64);
            }
        }
    }
}

#[test]
fn every_subset_of_small_blocks_comes_back() {
    for len in 0..=10u32 {
        for subset in 0..1u32 << len {
            let positions = (0..len).filter(|position| subset >> position & 1 == 1);
            Case::new(u32::MAX - len, len, positions).check_round_trip();
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let mut bytes = Vec::new();
    Codec::default().encode_indices(100, 32, &[103, 107, 108, 130], &mut bytes);
    assert_eq!(bytes, [4, 0, 0, 0, 1, 0x3b, 0x0c, 0x4b]);
}

#[test]
fn an_empty_list_is_five_bytes_in_either_coding() {
    for len in [0, 1, 1000, u32::MAX] {
        let case = Case::new(0, len, []);
        for codec in CODECS {
            assert_eq!(case.encode(codec), [0; 5]);
            assert_eq!(codec.list_bound(len, 0), 5);
            case.decode(codec, &[0, 0, 0, 0, 1]).unwrap();
            case.decode(codec, &[0, 0, 0, 0, 2]).unwrap();
            let error = case.decode(codec, &[0, 0, 0, 0, 3]).unwrap_err();
            assert_eq!(error, DecodeError::UnknownCoding(3));
        }
    }
}

#[test]
fn the_bound_is_the_largest_length() {
    for codec in CODECS {
        for len in (0..=600).chain([1023, 1024, 1025, 4000]) {
            let (mut list, mut indices) = (0, 0);
            for count in 0..=len as usize {
                list = list.max(codec.list_len(len, count));
                indices = indices.max(codec.indices_len(len, count));
                assert_eq!(codec.list_bound(len, count), list, "{len} {count}");
                assert_eq!(codec.indices_bound(len, count), indices, "{len} {count}");
            }
            // No list has more entries than its block has elements.
            assert_eq!(codec.list_bound(len, usize::MAX), list);
            assert_eq!(codec.indices_bound(len, usize::MAX), indices);
        }
    }
}

#[test]
fn an_entry_at_one_percent_is_small() {
    for len in [10_000, 65_536, 123_456, 1 << 20, 25_000_000, u32::MAX] {
        let count = len as usize / 100;
        let per_entry = |codec: Codec| codec.list_len(len, count) as f64 / count as f64;
        assert!(
            per_entry(CODECS[0]) <= 5.2,
            "{len}: {}",
            per_entry(CODECS[0])
        );
        assert!(
            per_entry(CODECS[2]) <= 3.2,
            "{len}: {}",
            per_entry(CODECS[2])
        );
    }
}

#[test]
fn beside_values_of_few_bits_scattered_indices_are_shorter_than_their_bound() {
    let mut random = Random(7);
    let (len, mut indices) = (1 << 20, std::collections::BTreeSet::new());
    while indices.len() < 10_000 {
        indices.insert(random.below(len) as u32);
    }
    let indices: Vec<u32> = indices.into_iter().collect();
    for (values, most) in [(ValueType::Q4, 0.96), (ValueType::F32, 1.0)] {
        let codec = codec(values, IndexCoding::Packed);
        let mut bytes = Vec::new();
        codec.encode_indices(0, len as u32, &indices, &mut bytes);
        let part = bytes.len() as f64 / codec.indices_len(len as u32, indices.len()) as f64;
        assert!(part <= most && part > most - 0.05, "{values}: {part}");
    }
}

#[test]
fn more_entries_than_allowed_are_refused_before_anything_is_reserved() {
    let codec = Codec::default();
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    for (len, max, announced) in [(100, 3, 4), (3, 100, 4), (u32::MAX, 5, u32::MAX)] {
        for coding in [0, 1, 2] {
            let mut bytes = u32::to_le_bytes(announced).to_vec();
            bytes.push(coding);
            let mut reader = Reader::new(&bytes);
            let error = codec.decode(&mut reader, 0, len, max, &mut indices, &mut values);
            let max = max.min(len as usize);
            assert_eq!(
                error,
                Err(DecodeError::TooMany {
                    max,
                    got: announced.into()
                })
            );
        }
    }
    // Allowed, but not there.
    for coding in [0, 1, 2] {
        let bytes = [0xff, 0xff, 0xff, 0xff, coding];
        let mut reader = Reader::new(&bytes);
        let error = codec
            .decode(
                &mut reader,
                0,
                u32::MAX,
                usize::MAX,
                &mut indices,
                &mut values,
            )
            .unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { .. }));
    }
    assert_eq!((indices.capacity(), values.capacity()), (0, 0));
}

#[test]
fn indices_out_of_order_or_outside_are_refused() {
    let raw = |positions: &[u32]| {
        let mut bytes = (positions.len() as u32).to_le_bytes().to_vec();
        bytes.push(0);
        bytes.extend(positions.iter().flat_map(|position| position.to_le_bytes()));
        bytes
    };
    let refused = |bytes: &[u8]| {
        let mut indices = vec![5];
        // The block ends at the limit: a position beyond it wraps around.
        let start = u32::MAX - 32;
        let mut reader = Reader::new(bytes);
        let result = Codec::default().decode_indices(&mut reader, start, 32, 9, &mut indices);
        assert_eq!(result, Err(DecodeError::BadIndex { len: 32 }), "{bytes:?}");
        assert_eq!(indices, [5]);
    };
    refused(&raw(&[32]));
    refused(&raw(&[u32::MAX]));
    refused(&raw(&[3, 3]));
    refused(&raw(&[4, 3]));
    refused(&raw(&[3, 4, 32]));
    refused(&raw(&[u32::MAX, 3, 4]));
    refused(&raw(&[3, u32::MAX, 4]));
    // Elias-Fano, from 4, 0, 0, 0, 1, 0x3b, 0x0c, 0x4b: too few ones, too many, a one in the unused
    // bit, equal low parts under equal high parts.
    refused(&[4, 0, 0, 0, 1, 0x3b, 0x0c, 0x0b]);
    refused(&[4, 0, 0, 0, 1, 0x3b, 0x0c, 0x4f]);
    refused(&[4, 0, 0, 0, 1, 0x3b, 0x0c, 0x8b]);
    refused(&[4, 0, 0, 0, 1, 0x3f, 0x0c, 0x4b]);
    // High parts are 0 or 1 here; 2 is one too far and would wrap around to a valid position.
    let mut reader = Reader::new(&[1, 0, 0, 0, 1, 5, 0, 0, 0, 0b100]);
    let result = Codec::default().decode_indices(&mut reader, 0, u32::MAX, 1, &mut Vec::new());
    assert_eq!(result, Err(DecodeError::BadIndex { len: u32::MAX }));
}

#[test]
fn zeros_of_either_sign_are_refused() {
    for (values, zeros) in [
        (ValueType::F32, [[0, 0, 0, 0], [0, 0, 0, 0x80]]),
        (ValueType::Bf16, [[1, 1, 0, 0], [1, 1, 0, 0x80]]),
    ] {
        let codec = Codec {
            values,
            ..Codec::default()
        };
        let case = Case::new(0, 100, 10..50);
        for zero in zeros {
            let mut bytes = case.encode(codec);
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&zero);
            assert_eq!(case.decode(codec, &bytes), Err(DecodeError::ZeroValue));
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let mut random = Random(1);
    for _ in 0..100_000 {
        let case = random.case(60);
        let codec = CODECS[random.below(6) as usize];
        let mut bytes = case.encode(codec);
        for _ in 0..=random.below(3) {
            let bit = random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let _ = case.decode(codec, &bytes);
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(2);
    for _ in 0..200_000 {
        let case = random.case(100);
        let codec = CODECS[random.below(6) as usize];
        let mut bytes: Vec<u8> = (0..random.below(60))
            .map(|_| random.below(256) as u8)
            .collect();
        // Most counts would be refused at once.
        if let [count, high @ .., coding] = bytes.first_chunk_mut::<5>().map_or(&mut [][..], |b| b)
        {
            *count &= 31;
            high.fill(0);
            *coding %= 3;
        }
        let _ = case.decode(codec, &bytes);
    }
}
