//! What a worker selects from its own array, in one pass over the gradient.

use spardl_core::{Entries, Feedback, Gradient, Selector, ValueType, list};

use super::CAP;
use super::controller::Controller;

/// Accumulates `gradient` and takes the selection of this step: the `k` largest entries when the step is exact or the
/// threshold would find nothing, else what reaches the local threshold. Leaves the threshold of the next step in `control`.
pub(super) fn select(
    selector: &mut Selector,
    control: &mut Controller,
    feedback: &mut Feedback,
    gradient: Gradient<'_>,
    k: usize,
    exact: bool,
    values: ValueType,
) -> Entries {
    let mut selection = Entries::default();
    if k == 0 {
        selector.pass_above(feedback, gradient, &[f32::INFINITY]);
        return selection;
    }
    match control.local() {
        Some(threshold) if !exact => {
            selector.pass_above(feedback, gradient, &[threshold]);
            control.raise_local(k, |threshold| selector.count_above(0, threshold));
            let threshold = control.local().expect("a threshold is only raised");
            let cap = k.saturating_mul(CAP);
            selector.take_above(0, feedback.work(), threshold, cap, values, &mut selection);
            if !selection.is_empty() {
                control.follow_local(&selection.values, k);
                return selection;
            }
        }
        _ => selector.pass(feedback, gradient, &[k]),
    }
    selector.take_top(0, feedback.work(), k, values, &mut selection);
    if let Some(threshold) = least(&selection.values) {
        control.set_local(threshold);
    }
    selection
}

/// The smallest magnitude; none of an empty list.
pub(super) fn least(values: &[f32]) -> Option<f32> {
    let smallest = values.iter().map(|&value| list::magnitude(value)).min();
    smallest.map(f32::from_bits)
}

/// The cuts that this worker proposes, so that each region holds the same part of its selected `indices`; even ones of
/// `0..len` when it selected nothing.
pub(super) fn propose_cuts(indices: &[u32], workers: usize, len: u32) -> Vec<i64> {
    let cut = |i: usize| match indices.len() {
        0 => (i as u64 * u64::from(len) / workers as u64) as i64,
        count => i64::from(indices[(count as u64 * i as u64 / workers as u64) as usize]),
    };
    (1..workers).map(cut).collect()
}

/// The mean of all proposals, from their sums. Means of ascending cuts ascend; the clamp only matters when a peer is broken.
pub(super) fn mean_cuts(sums: &[i64], workers: usize, len: u32) -> Vec<u32> {
    let mut last = 0;
    let mut cuts: Vec<u32> = sums
        .iter()
        .map(|sum| {
            last = (sum / workers as i64).clamp(last, i64::from(len));
            last as u32
        })
        .collect();
    cuts.push(len);
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cuts_of_the_example_are_the_mean_of_the_proposals() {
        let selections: [&[u32]; 5] = [&[0, 5], &[0, 9], &[2, 5], &[0, 7], &[7, 9]];
        let mut sums = [0; 4];
        for selection in selections {
            let cuts = propose_cuts(selection, 5, 10);
            sums.iter_mut().zip(cuts).for_each(|(sum, cut)| *sum += cut);
        }
        assert_eq!(mean_cuts(&sums, 5, 10), [1, 1, 7, 7, 10]);
        assert_eq!(propose_cuts(&[], 5, 10), [2, 4, 6, 8]);
    }

    #[test]
    fn damaged_sums_still_give_ascending_cuts() {
        let cuts = mean_cuts(&[i64::MAX, -5, i64::MIN, 7], 5, 10);
        assert_eq!(cuts, [10, 10, 10, 10, 10]);
        assert_eq!(mean_cuts(&[-50, 20, 5], 4, 10), [0, 5, 5, 10]);
    }
}
