//! Merging of ascending lists of one block, window by window.

use std::ops::Range;

use spardl_kernels::{Entries, Level, Window};

/// One received entry in so many elements touches about every second cache line: to read them all in order is then the faster way.
const CROWDED: usize = 32;

/// With one final entry in so many elements, to copy the values of `work` is faster than to mark the entries that are both known and final.
const CROWDED_FINALS: usize = 6;

/// Elements of a crowded block that are added to at a time: they stay in the second-level cache for all lists.
const STRETCH: usize = 1 << 15;

/// In `range`, `known` plus the received `lists` in their order; where an index is not known yet, its value in `work` comes first.
pub(super) fn fold(
    window: &mut Window,
    kernels: Level,
    range: Range<usize>,
    work: &[f32],
    known: &Entries,
    lists: &[Entries],
    out: &mut Entries,
) {
    let first = |list: &Entries| first_from(&list.indices, range.start);
    let mut at: Vec<usize> = std::iter::once(known).chain(lists).map(first).collect();
    let ends = lists
        .iter()
        .map(|list| first_from(&list.indices, range.end));
    let received: usize = ends.zip(&at[1..]).map(|(end, first)| end - first).sum();
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
    let mut first = 0;
    while first < values.len() {
        let end = values.len().min(first + STRETCH);
        if let Some(work) = work {
            values[first..end].copy_from_slice(&work[first..end]);
        }
        for (list, at) in lists.iter().zip(&mut at) {
            // A stretch has no more entries than elements.
            let most = list.len().min(*at + STRETCH);
            let count = first_from(&list.indices[*at..most], start + end);
            let range = *at..*at + count;
            let (indices, added) = (&list.indices[range.clone()], &list.values[range]);
            spardl_kernels::add_at(
                kernels,
                &mut values[first..end],
                (start + first) as u32,
                indices,
                added,
            );
            *at += count;
        }
        first = end;
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
