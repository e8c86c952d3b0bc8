//! The kernels for lists: taking, merging, ranking, coding.

use proptest::prelude::*;
use spardl_kernels::*;

use super::{bits, earlier, finite, pairs, rarely_finite, same_candidates, threshold};

/// Ascending indices up to twice the length of a window: a few, many, or every one of a stretch.
fn ascending() -> impl Strategy<Value = Vec<u32>> {
    let most = 2 * Window::LEN as u32;
    let some = |count| prop::collection::btree_set(0..most, count);
    prop_oneof![
        some(0..40).prop_map(Vec::from_iter),
        some(0..900).prop_map(Vec::from_iter),
        (0..most, 0..most).prop_map(|(a, b)| (a.min(b)..a.max(b)).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn take_takes_the_same_entries_and_leave_leaves_the_same_rests_at_every_level(
        (a, b, offset) in pairs(finite()),
        threshold in threshold(),
    ) {
        let limit = if threshold.is_finite() && threshold > 0.0 { threshold.to_bits() } else { 1 };
        let values = &a[offset.min(a.len())..];
        let indices: Vec<u32> = (0..values.len() as u32).map(|i| i * 3 + 1).collect();
        let taken = |v: f32| v.to_bits() & 0x7fff_ffff >= limit;
        let (mut expected, mut rests) = (earlier(), Vec::new());
        let (mut cleared, mut replaced) = (values.to_vec(), values.to_vec());
        for (at, (&index, &value)) in indices.iter().zip(values).enumerate() {
            if taken(value) {
                expected.indices.push(index);
                expected.values.push(value);
                rests.push(b[at]);
                (cleared[at], replaced[at]) = (0.0, b[at]);
            }
        }
        for level in Level::available() {
            let (mut left, mut out) = (values.to_vec(), earlier());
            take(level, &indices, &left, limit, &mut out);
            prop_assert!(same_candidates(&out, &expected));
            leave(level, &mut left, limit, &[]);
            prop_assert_eq!(bits(&left), bits(&cleared));
            left.copy_from_slice(values);
            leave(level, &mut left, limit, &rests);
            prop_assert_eq!(bits(&left), bits(&replaced));
        }
    }

    #[test]
    fn take_out_moves_the_same_values_and_leaves_zeros_at_every_level(
        (a, _, offset) in pairs(rarely_finite()),
        limit in prop_oneof![threshold().prop_map(|t| t.to_bits() & 0x7fff_ffff), Just(1), Just(0x8000_0000)],
    ) {
        let values = &a[offset.min(a.len())..];
        let (mut expected, mut left) = (earlier(), values.to_vec());
        for (index, value) in (7..).zip(&mut left) {
            if value.to_bits() & 0x7fff_ffff >= limit.max(1) {
                expected.indices.push(index);
                expected.values.push(std::mem::take(value));
            }
        }
        for level in Level::available() {
            let (mut dense, mut out) = (values.to_vec(), earlier());
            extract_from(level, values, 7, limit, &mut out);
            prop_assert_eq!(&out.indices, &expected.indices);
            prop_assert_eq!(bits(&out.values), bits(&expected.values));
            let mut out = earlier();
            take_out(level, &mut dense, 7, limit, &mut out);
            prop_assert_eq!(&out.indices, &expected.indices);
            prop_assert_eq!(bits(&out.values), bits(&expected.values));
            prop_assert_eq!(bits(&dense), bits(&left));
        }
    }

    #[test]
    fn entries_are_added_to_and_copied_between_arrays_at_every_level(indices in ascending()) {
        let len = 2 * Window::LEN;
        let dense: Vec<f32> = (0..len).map(|i| i as f32 * 0.37).collect();
        let values: Vec<f32> = indices.iter().map(|&i| 1e3 - i as f32 * 0.11).collect();
        let mut expected = dense.clone();
        for (&index, value) in indices.iter().zip(&values) {
            expected[index as usize] += value;
        }
        let shifted: Vec<u32> = indices.iter().map(|index| index + 1000).collect();
        for level in Level::available() {
            let (mut sums, mut copied) = (dense.clone(), dense.clone());
            add_at(level, &mut sums, 1000, &shifted, &values);
            prop_assert_eq!(bits(&sums), bits(&expected));
            copy_at(level, &expected, &mut copied, &indices);
            prop_assert_eq!(bits(&copied), bits(&expected));
            let limit = 900.0_f32.to_bits();
            let mut cleared = dense.clone();
            for &index in indices.iter().filter(|&&i| dense[i as usize] >= 900.0) {
                cleared[index as usize] = 0.0;
            }
            let mut left = dense.clone();
            clear_at(level, &mut left, &indices, limit);
            prop_assert_eq!(bits(&left), bits(&cleared));
        }
    }

    #[test]
    fn a_window_adds_lists_as_a_map_does_at_every_level(
        lists in prop::collection::vec(ascending(), 1..4),
        marked in ascending(),
        start in prop_oneof![Just(0u32), Just(1_000), Just(u32::MAX - 8191)],
        filled in any::<bool>(),
    ) {
        const LEN: u32 = Window::LEN as u32;
        let value = |list: usize, index: u32| (list as f32 + 0.5) * 1e-3 - index as f32;
        // What lies behind the window is not looked at.
        let inside = |list: &[u32]| list.iter().filter(|&&index| index < LEN).count();
        let dense: Vec<f32> = (0..2 * LEN).map(|i| i as f32 * 0.25).collect();
        let mut sums = std::collections::BTreeMap::new();
        for (at, list) in lists.iter().enumerate() {
            for &index in &list[..inside(list)] {
                let before = sums.get(&index).copied().unwrap_or(dense[index as usize]);
                sums.insert(index, if at == 0 { value(at, index) } else { before + value(at, index) });
            }
        }
        for level in Level::available() {
            let mut window = Window::new(77);
            window.mark(&[78, 79]);
            // Twice, because a window is used again and again; `add` needs indices of `dense`, so only the first is moved.
            for start in [start, 0] {
                window.move_to(start);
                if filled {
                    window.fill(&dense);
                }
                let (mut out, mut expected) = (earlier(), earlier());
                for (at, list) in lists.iter().enumerate() {
                    let values: Vec<f32> = list.iter().map(|&index| value(at, index)).collect();
                    let count = if at == 0 {
                        let indices: Vec<u32> = list.iter().map(|&i| i.wrapping_add(start)).collect();
                        window.put(&indices, &values)
                    } else if start == 0 {
                        window.add(&dense, list, &values)
                    } else {
                        continue;
                    };
                    prop_assert_eq!(count, inside(list));
                }
                window.drain(level, &mut out);
                for (&index, &sum) in &sums {
                    let first = lists[0].contains(&index);
                    if start == 0 || first {
                        expected.indices.push(index + start);
                        expected.values.push(if start == 0 { sum } else { value(0, index) });
                    }
                }
                prop_assert!(same_candidates(&out, &expected), "{}", level.name());
                window.drain(level, &mut out);
                prop_assert!(same_candidates(&out, &expected), "a drained window is empty");

                let indices: Vec<u32> = lists[0].iter().map(|&i| i.wrapping_add(start)).collect();
                let values: Vec<f32> = lists[0].iter().map(|&i| value(0, i)).collect();
                let marks: Vec<u32> = marked.iter().map(|&i| i.wrapping_add(start)).collect();
                prop_assert_eq!(window.mark(&marks), inside(&marked));
                let mut out = earlier();
                prop_assert_eq!(window.common(level, &indices, &values, &mut out), inside(&lists[0]));
                let mut expected = earlier();
                for &index in lists[0].iter().filter(|i| **i < LEN && marked.contains(i)) {
                    expected.indices.push(index + start);
                    expected.values.push(value(0, index));
                }
                prop_assert!(same_candidates(&out, &expected), "{}", level.name());
            }
        }
    }

    #[test]
    fn a_filled_window_copies_its_values_to_where_it_lies(
        list in ascending(),
        wanted in ascending(),
        start in prop_oneof![Just(0u32), Just(1_000), Just(u32::MAX - 8191)],
    ) {
        let moved = |list: &[u32]| -> Vec<u32> { list.iter().map(|i| i.wrapping_add(start)).collect() };
        let inside = |list: &[u32]| list.iter().filter(|&&i| (i as usize) < Window::LEN).count();
        let mut dense: Vec<f32> = (0..Window::LEN).map(|i| i as f32 * 0.25).collect();
        let mut expected = dense.clone();
        for &index in &wanted[..inside(&wanted)] {
            if list.contains(&index) {
                expected[index as usize] = -1.0;
            }
        }
        let mut window = Window::new(start);
        window.fill(&dense);
        prop_assert_eq!(window.put(&moved(&list), &vec![-1.0; list.len()]), inside(&list));
        prop_assert_eq!(window.copy_to(&moved(&wanted), &mut dense), inside(&wanted));
        prop_assert_eq!(dense, expected);
    }

    #[test]
    fn codes_of_few_bits_and_their_values_are_the_same_at_every_level(
        (a, _, offset) in pairs(finite()),
        mut floors in prop::array::uniform7(0.0f32..9.0),
        levels in prop::array::uniform8(0.0f32..9.0),
        bytes in prop::array::uniform32(any::<u16>()),
        bits in 0usize..=8,
    ) {
        let values = &a[offset.min(a.len())..];
        floors.sort_by(f32::total_cmp);
        let grid = few_bits::Grid { floors, levels };
        let packed: Vec<u8> = bytes.iter().flat_map(|bytes| bytes.to_le_bytes()).collect();
        let packed = packed.first_chunk().expect("64 codes");
        let all = |level| {
            let (mut codes, mut seen) = (vec![0; values.len()], vec![0.0; values.len()]);
            few_bits::codes(level, values, &grid, &mut codes);
            few_bits::values(level, &codes, &levels, &mut seen);
            let (mut run, mut errors) = (values.to_vec(), vec![7.0; values.len()]);
            few_bits::quantise(level, &mut run, &grid, &mut errors);
            assert_eq!(super::bits(&run), super::bits(&seen));
            let (mut planes, mut joined) = (vec![0; bits], [7; 64]);
            few_bits::planes(level, packed, &mut planes);
            few_bits::join(level, &planes, &mut joined);
            let extent = few_bits::extent(level, values);
            (extent, codes, super::bits(&seen), super::bits(&errors), planes, joined)
        };
        let expected = all(Level::Portable);
        let (.., planes, joined) = &expected;
        for (code, joined) in packed.iter().zip(joined) {
            prop_assert_eq!(u32::from(*joined), u32::from(*code) & ((1 << bits) - 1));
        }
        for (bit, plane) in planes.iter().enumerate() {
            prop_assert!((0..64).all(|i| plane >> i & 1 == u64::from(packed[i] >> bit & 1)));
        }
        for level in Level::available() {
            prop_assert_eq!(all(level), expected.clone(), "{}", level.name());
        }
    }

    #[test]
    fn keys_are_counted_and_found_alike_at_every_level(
        (a, _, offset) in pairs(rarely_finite()),
        low in prop_oneof![Just(0u32), any::<u32>(), Just(1f32.to_bits())],
        span in prop_oneof![Just(0u32), any::<u32>(), Just(1 << 20)],
    ) {
        let values = &a[offset.min(a.len())..];
        let high = low.saturating_add(span);
        let keys = || values.iter().map(|v| v.to_bits() & 0x7fff_ffff);
        let count = keys().filter(|&key| key >= low).count();
        let above = keys().filter(|&key| key >= high).count();
        let found = keys().filter(|key| (low..high).contains(key));
        let between: Vec<u32> = [7].into_iter().chain(found).collect();
        for level in Level::available() {
            prop_assert_eq!(count_at_least(level, values, low), count);
            let mut out = vec![7];
            prop_assert_eq!(keys_between(level, values, low, high, &mut out), above);
            prop_assert_eq!(&out, &between);
        }
    }

    #[test]
    fn positions_are_written_and_read_alike_at_every_level(
        mut indices in ascending(),
        start in 0u32..1 << 31,
        more in 0u32..1 << 20,
        damage in any::<(prop::sample::Index, u8)>(),
    ) {
        let block_len = 2 * Window::LEN as u32 + more;
        indices.iter_mut().for_each(|index| *index += start);
        let count = indices.len();
        let mut expected = vec![0; elias_fano::len(block_len, count)];
        elias_fano::write(Level::Portable, start, block_len, &indices, &mut expected);
        let mut damaged = expected.clone();
        if !damaged.is_empty() {
            damaged[damage.0.index(expected.len())] ^= damage.1;
        }
        let read = |level, bytes: &[u8]| {
            let mut out = vec![7];
            let valid = elias_fano::read(level, bytes, start, block_len, count, &mut out);
            (valid, out)
        };
        for level in Level::available() {
            let mut bytes = vec![0; expected.len()];
            elias_fano::write(level, start, block_len, &indices, &mut bytes);
            prop_assert_eq!(&bytes, &expected, "{}", level.name());
            let (valid, out) = read(level, &bytes);
            prop_assert!(valid && out[0] == 7 && out[1..] == indices, "{}", level.name());
            prop_assert_eq!(read(level, &damaged), read(Level::Portable, &damaged), "{}", level.name());
            bytes.push(0);
            prop_assert_eq!(read(level, &bytes), (false, vec![7]), "{}", level.name());
        }
    }

    #[test]
    fn what_ascends_and_what_is_zero_is_seen_at_every_level(
        indices in prop::collection::vec(0u32..5000, 0..80),
        (values, _, _) in pairs(finite()),
    ) {
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let ascending = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let zero = values.contains(&0.0);
        let nonzero: Vec<f32> = values.iter().copied().filter(|&value| value != 0.0).collect();
        for level in Level::available() {
            prop_assert_eq!(ascends(level, &indices), ascending);
            prop_assert!(ascends(level, &sorted));
            prop_assert_eq!(any_zero(level, &values), zero);
            prop_assert!(!any_zero(level, &nonzero));
        }
    }

    #[test]
    fn take_at_and_scatter_touch_exactly_the_indices(
        (a, values, _) in pairs(finite()),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
    ) {
        let mut indices: Vec<u32> = picks.iter().filter(|_| !a.is_empty()).map(|p| p.index(a.len()) as u32).collect();
        indices.sort_unstable();
        let values: Vec<f32> = indices.iter().map(|&i| values[i as usize]).collect();
        let mut written = a.clone();
        for (&i, &v) in indices.iter().zip(&values) {
            written[i as usize] = v;
        }
        for level in Level::available() {
            let mut out = vec![3.0];
            let mut dense = a.clone();
            take_at(level, &mut dense, &indices, &mut out);
            let mut left = a.clone();
            let taken = indices.iter().map(|&i| std::mem::take(&mut left[i as usize]));
            prop_assert_eq!(bits(&out[1..]), bits(&taken.collect::<Vec<_>>()));
            prop_assert_eq!(bits(&dense), bits(&left));
            let mut dense = a.clone();
            scatter(level, &mut dense, &indices, &values);
            prop_assert_eq!(bits(&dense), bits(&written));
        }
    }
}
