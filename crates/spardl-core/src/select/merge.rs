//! Merging of ascending lists of one block, window by window.

use std::ops::Range;

use spardl_kernels::{Entries, Level, Window};

/// One received entry in so many elements touches about every second cache line: to read them all in order is then the faster way.
const CROWDED: usize = 32;

/// With less than one entry in so many elements, to merge sorted lists entry by entry is faster than to pass windows that are all but empty.
const SPARSE: usize = 128;

/// With one final entry in so many elements, to copy the values of `work` is faster than to mark the entries that are both known and final.
const CROWDED_FINALS: usize = 6;

/// Elements of a crowded block that are added to at a time: they stay in the first-level cache for all lists.
const STRETCH: usize = 1 << 12;

/// In `range`, `known` plus the received `lists` in their order; where an index is not known yet, its value in `work` comes first.
/// The result goes to the first of two empty lists, the second is for its memory.
pub(super) fn fold(
    window: &mut Window,
    kernels: Level,
    range: Range<usize>,
    work: &[f32],
    known: &Entries,
    lists: &[Entries],
    [out, spare]: [&mut Entries; 2],
) {
    let first = |list: &Entries| first_from(&list.indices, range.start);
    let mut at: Vec<usize> = std::iter::once(known).chain(lists).map(first).collect();
    let ends = lists
        .iter()
        .map(|list| first_from(&list.indices, range.end));
    let received: usize = ends.zip(&at[1..]).map(|(end, first)| end - first).sum();
    let entries = received + first_from(&known.indices, range.end) - at[0];
    if entries < range.len() / SPARSE {
        return fold_sparse(range, work, known, lists, [out, spare]);
    }
    let crowded = received >= range.len() / CROWDED;
    for start in range.step_by(Window::LEN) {
        window.move_to(start as u32);
        if crowded {
            window.fill(&work[start..]);
        }
        at[0] += window.put(&known.indices[at[0]..], &known.values[at[0]..]);
        for (list, at) in lists.iter().zip(&mut at[1..]) {
            *at += window.add(work, &list.indices[*at..], &list.values[*at..]);
        }
        window.drain(kernels, out);
    }
}

/// [`fold`] of lists that have few entries there: one list after the other.
fn fold_sparse(
    range: Range<usize>,
    work: &[f32],
    known: &Entries,
    lists: &[Entries],
    [out, next]: [&mut Entries; 2],
) {
    let part = |list: &Entries| {
        let first = |start| first_from(&list.indices, start);
        first(range.start)..first(range.end)
    };
    let here = part(known);
    out.indices.extend_from_slice(&known.indices[here.clone()]);
    out.values.extend_from_slice(&known.values[here]);
    for list in lists {
        let here = part(list);
        let list = (&list.indices[here.clone()], &list.values[here]);
        next.clear();
        spardl_kernels::add_list(out, list, work, next);
        std::mem::swap(out, next);
    }
}

/// Adds the `lists`, in their order, to `values`, which begin at `start`; those of `work` come first, if it is given.
pub(super) fn load(
    kernels: Level,
    start: usize,
    work: Option<&[f32]>,
    values: &mut [f32],
    lists: &[Entries],
) {
    let mut at: Vec<usize> = lists
        .iter()
        .map(|list| first_from(&list.indices, start))
        .collect();
    let (mut sums, past_cache) = ([0.0; STRETCH], spardl_kernels::prefers_past_cache());
    for (first, values) in (start..).step_by(STRETCH).zip(values.chunks_mut(STRETCH)) {
        match work.map(|work| &work[first - start..][..values.len()]) {
            Some(work) if past_cache => {
                let sums = &mut sums[..values.len()];
                sums.copy_from_slice(work);
                add_next(kernels, first, sums, lists, &mut at);
                spardl_kernels::copy_past_cache(kernels, sums, values);
            }
            work => {
                if let Some(work) = work {
                    values.copy_from_slice(work);
                }
                add_next(kernels, first, values, lists, &mut at);
            }
        }
    }
}

/// Adds what the lists have for `values`, which begin at `start`, from the positions `at` on, and moves these.
fn add_next(kernels: Level, start: usize, values: &mut [f32], lists: &[Entries], at: &mut [usize]) {
    for (list, at) in lists.iter().zip(at) {
        // There are no more entries than elements.
        let most = list.len().min(*at + values.len());
        let count = first_from(&list.indices[*at..most], start + values.len());
        let range = *at..*at + count;
        let (indices, added) = (&list.indices[range.clone()], &list.values[range]);
        spardl_kernels::add_at(kernels, values, start as u32, indices, added);
        *at += count;
    }
}

/// In `range`, whose elements `work` has, writes the values of `known` where the index is among `finals`. `scratch` is empty.
pub(super) fn write_final(
    window: &mut Window,
    kernels: Level,
    range: Range<usize>,
    work: &mut [f32],
    known: &Entries,
    finals: &[u32],
    scratch: &mut Entries,
) {
    let first = range.start;
    let mut at = first_from(&known.indices, range.start);
    let mut at_final = first_from(finals, range.start);
    let crowded = first_from(finals, range.end) - at_final >= range.len() / CROWDED_FINALS;
    for start in range.step_by(Window::LEN) {
        window.move_to(start as u32);
        if crowded {
            let work = &mut work[start - first..];
            window.fill(work);
            at += window.put(&known.indices[at..], &known.values[at..]);
            at_final += window.copy_to(&finals[at_final..], work);
        } else {
            at_final += window.mark(&finals[at_final..]);
            at += window.common(kernels, &known.indices[at..], &known.values[at..], scratch);
        }
    }
    let shift = |index: &mut u32| *index -= first as u32;
    scratch.indices.iter_mut().for_each(shift);
    spardl_kernels::scatter(kernels, work, &scratch.indices, &scratch.values);
}

/// The position of the first of the ascending indices that is not below `start`.
pub(super) fn first_from(indices: &[u32], start: usize) -> usize {
    indices.partition_point(|&index| (index as usize) < start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ascending list with about one entry in `every` elements, from a fixed sequence of numbers.
    fn list(seed: u32, len: u32, every: u32) -> Entries {
        let number = |i: u32| (i ^ seed.wrapping_mul(40_503)).wrapping_mul(2_654_435_761) >> 7;
        let indices: Vec<u32> = (0..len)
            .filter(|&i| number(i).is_multiple_of(every))
            .collect();
        let value = |&i: &u32| number(i.wrapping_add(1)) as f32 * 1e-3 - 9000.0;
        let values = indices.iter().map(value).collect();
        Entries { indices, values }
    }

    #[test]
    fn lists_of_few_entries_are_merged_as_by_windows() {
        const LEN: u32 = 5 * Window::LEN as u32;
        let work: Vec<f32> = (0..LEN).map(|i| i as f32 * 0.37 - 3000.0).collect();
        let few = |seed: u32| list(seed, LEN, 1500);
        for (known, lists) in [
            (few(1), vec![few(2)]),
            (few(1), vec![few(2), few(2), few(1), few(3)]),
            (Entries::default(), vec![few(2), Entries::default()]),
            (few(4), vec![few(5), list(6, 10, 1)]),
        ] {
            for range in [0..LEN as usize, Window::LEN..3 * Window::LEN] {
                let (mut windows, mut sparse) = (Entries::default(), Entries::default());
                let (mut window, mut spare) = (Window::new(0), Entries::default());
                let out = [&mut sparse, &mut spare];
                fold_sparse(range.clone(), &work, &known, &lists, out);
                // Enough entries elsewhere, in a list of its own, that windows are used.
                let far = list(7, LEN, 40);
                let far_from = |list: &Entries| {
                    let is_far = |index: &u32| !sparse.indices.contains(index);
                    let here = list.indices.iter().zip(&list.values);
                    let here = here.filter(|(index, _)| is_far(index));
                    let (indices, values) = here.map(|(&index, &value)| (index, value)).unzip();
                    Entries { indices, values }
                };
                let mut more = lists.clone();
                more.push(far_from(&far));
                let level = Level::best();
                let out = [&mut windows, &mut Entries::default()];
                fold(&mut window, level, range.clone(), &work, &known, &more, out);
                let found = windows.indices.iter().zip(&windows.values);
                let found: Vec<(u32, u32)> = found
                    .filter(|(index, _)| sparse.indices.binary_search(index).is_ok())
                    .map(|(index, value)| (*index, value.to_bits()))
                    .collect();
                let values = sparse.values.iter().map(|value| value.to_bits());
                let expected: Vec<(u32, u32)> =
                    sparse.indices.iter().copied().zip(values).collect();
                assert!(windows.len() > range.len() / SPARSE, "windows were used");
                assert_eq!(found, expected);
            }
        }
    }
}
