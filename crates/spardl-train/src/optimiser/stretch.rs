//! Which elements have weight decay, and which are always reduced whole.

use std::ops::Range;

use spardl::Layout;

/// Neighbouring elements that are treated alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) range: Range<usize>,
    /// Have they weight decay?
    pub(super) decays: bool,
    /// Are they always reduced whole?
    pub(super) is_whole: bool,
}

/// The fewest stretches in which all elements are treated alike.
pub(super) fn stretches(
    layout: &Layout,
    no_decay_below: usize,
    whole_below: usize,
) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for part in layout.parts() {
        let (start, dims) = (part.offset as usize, part.shape.len());
        let next = Stretch {
            range: start..start + part.len(),
            decays: dims >= no_decay_below,
            is_whole: dims < whole_below,
        };
        match stretches.last_mut() {
            Some(last) if (last.decays, last.is_whole) == (next.decays, next.is_whole) => {
                last.range.end = next.range.end;
            }
            _ => stretches.push(next),
        }
    }
    stretches
}
