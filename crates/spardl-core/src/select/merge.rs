//! Merging of ascending lists of one block, window by window.

use std::ops::Range;

use spardl_kernels::{Entries, Level, Window};

/// One received entry in so many elements touches about every second cache line: to read them all in order is then the faster way.
const CROWDED: usize = 32;

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
            window.fill(work);
        }
        at[0] += window.put(&known.indices[at[0]..], &known.values[at[0]..]);
        for (list, at) in lists.iter().zip(&mut at[1..]) {
            *at += window.add(work, &list.indices[*at..], &list.values[*at..]);
        }
        window.drain(kernels, out);
    }
}

/// The entries of `known` in `range` whose indices are among `finals`.
pub(super) fn intersect(
    window: &mut Window,
    kernels: Level,
    range: Range<usize>,
    known: &Entries,
    finals: &[u32],
    out: &mut Entries,
) {
    let mut at = first_from(&known.indices, range.start);
    let mut at_final = first_from(finals, range.start);
    for start in range.step_by(Window::LEN) {
        window.move_to(start as u32);
        at_final += window.mark(&finals[at_final..]);
        at += window.common(kernels, &known.indices[at..], &known.values[at..], out);
    }
}

/// The position of the first of the ascending indices that is not below `start`.
fn first_from(indices: &[u32], start: usize) -> usize {
    indices.partition_point(|&index| (index as usize) < start)
}
