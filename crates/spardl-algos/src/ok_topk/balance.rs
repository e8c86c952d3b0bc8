//! Balance: shares of very different size are cut into nearly equal pieces before the all-gather.
//!
//! All shares one after the other make one list. Piece `i` is the `i`-th of P runs of it, of floor or ceil of the average;
//! who sends what to whom is the intersection of shares and pieces, and everybody computes it from the counts. The
//! order is kept, so the pieces are still ascending.
//!
//! Example, shares of 6, 0, 1, 0, 0 entries: the pieces have 2, 2, 1, 1, 1. Worker 0 keeps two entries and sends two to worker 1,
//! one to 2, one to 3; worker 2 sends its entry to worker 4.

use std::ops::Range;

use spardl_core::codec::Block;
use spardl_core::{Entries, Group, Payload, ProtocolError, Received, Round, list};

/// When the shares of the owners are balanced before the all-gather; never in an exact step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// When the largest share exceeds the trigger times the average (the paper).
    #[default]
    Auto,
    /// In every step (the authors' BERT program).
    Always,
    /// In no step (the authors' VGG and LSTM programs).
    Never,
}

impl Balance {
    /// All choices, by name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("always", Self::Always),
        ("never", Self::Never),
    ];
}

/// Ok-Topk sec. 3.1.2.
pub(super) const TRIGGER: f64 = 4.0;

/// Does the largest count exceed `trigger` times the average?
pub(super) fn is_skewed(counts: &[usize], trigger: f64) -> bool {
    let total: usize = counts.iter().sum();
    let largest = counts.iter().max().copied().unwrap_or(0);
    largest as f64 * counts.len() as f64 > trigger * total as f64
}

/// Who sends which entries to whom.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Where each share begins in the list of all, and its end.
    shares: Vec<usize>,
    /// Where each piece begins, and the end.
    pieces: Vec<usize>,
}

impl Plan {
    /// The plan for shares of these sizes, with a piece for each.
    pub(super) fn new(counts: &[usize]) -> Self {
        let shares = prefix_sums(counts.iter().copied());
        let (total, workers) = (shares[counts.len()], counts.len());
        let sizes = (0..workers).map(|i| total / workers + usize::from(i < total % workers));
        let pieces = prefix_sums(sizes);
        Self { shares, pieces }
    }

    /// The entries of share `from` that belong to piece `to`, as positions in the share; possibly none.
    pub(super) fn slice(&self, from: usize, to: usize) -> Range<usize> {
        let start = self.shares[from].max(self.pieces[to]);
        let end = self.shares[from + 1].min(self.pieces[to + 1]);
        let first = self.shares[from];
        if start < end {
            start - first..end - first
        } else {
            0..0
        }
    }

    /// How many entries of share `from` go to other workers.
    pub(super) fn moved_from(&self, from: usize) -> usize {
        self.shares[from + 1] - self.shares[from] - self.slice(from, from).len()
    }

    /// How many entries piece `to` has.
    pub(super) fn piece_len(&self, to: usize) -> usize {
        self.pieces[to + 1] - self.pieces[to]
    }

    /// The shares that piece `to` has entries of.
    pub(super) fn sources(&self, to: usize) -> impl Iterator<Item = usize> {
        (0..self.shares.len() - 1).filter(move |&from| !self.slice(from, to).is_empty())
    }
}

/// The plan at work; `regions` says how the lists of the shares travel.
impl Plan {
    /// The one round that turns shares into pieces: nothing between workers whose share and piece do not meet. What the value
    /// type takes from the entries that move is appended to `errors`.
    pub(super) fn round(
        &self,
        group: Group,
        share: &Entries,
        regions: &[Block],
        errors: &mut Entries,
    ) -> Round {
        let (own, mut round) = (group.position(), Round::new());
        for peer in (0..group.size()).filter(|&peer| peer != own) {
            let (out, back) = (self.slice(own, peer), self.slice(peer, own));
            if !out.is_empty() {
                let mut payload = Payload::with_capacity(part_of(&regions[own], out.len()).bound());
                let mut part = Entries {
                    indices: share.indices[out.clone()].to_vec(),
                    values: share.values[out].to_vec(),
                };
                list::quantise(regions[own].codec.values, &mut part, errors);
                regions[own].encode(&part, payload.body_mut());
                round = round.send(group.rank(peer), payload);
            }
            if !back.is_empty() {
                round = round.expect(
                    group.rank(peer),
                    part_of(&regions[peer], back.len()).bound(),
                );
            }
        }
        round
    }

    /// Piece `own`, from the own share and what was received of the others.
    pub(super) fn assemble(
        &self,
        own: usize,
        share: &Entries,
        regions: &[Block],
        received: Received<'_>,
    ) -> Result<Entries, ProtocolError> {
        let (mut piece, mut next) = (Entries::default(), 0);
        for from in self.sources(own) {
            let slice = self.slice(from, own);
            if from == own {
                piece
                    .indices
                    .extend_from_slice(&share.indices[slice.clone()]);
                piece.values.extend_from_slice(&share.values[slice]);
            } else {
                let block = part_of(&regions[from], slice.len());
                received.read(next, |reader| block.decode(reader, &mut piece))?;
                next += 1;
            }
        }
        Ok(piece)
    }

    /// How the lists of the pieces travel: each spans the regions that it has entries of.
    pub(super) fn pieces(&self, regions: &[Block]) -> Vec<Block> {
        let piece = |to: usize| {
            let first = self.sources(to).next().unwrap_or(0);
            let last = self.sources(to).last().unwrap_or(0);
            Block {
                codec: regions[first].codec,
                range: regions[first].range.start..regions[last].range.end,
                max: self.piece_len(to),
            }
        };
        (0..regions.len()).map(piece).collect()
    }
}

/// The block, for lists of at most `max` entries.
fn part_of(region: &Block, max: usize) -> Block {
    Block {
        max,
        ..region.clone()
    }
}

fn prefix_sums(sizes: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = sizes.scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use spardl_testkit::generate::Numbers;

    use super::*;

    fn covers(counts: &[usize]) {
        let (plan, workers) = (Plan::new(counts), counts.len());
        let total: usize = counts.iter().sum();
        let (mut next, mut at) = (vec![0; workers], 0);
        for to in 0..workers {
            let expected = total / workers + usize::from(to < total % workers);
            assert_eq!(plan.piece_len(to), expected, "{counts:?}");
            let mut got = 0;
            for from in plan.sources(to) {
                assert!(from >= at, "pieces take the shares in order: {counts:?}");
                at = from;
                let slice = plan.slice(from, to);
                assert_eq!(slice.start, next[from], "each entry once: {counts:?}");
                next[from] = slice.end;
                got += slice.len();
            }
            assert_eq!(got, expected, "{counts:?}");
        }
        assert_eq!(next, counts);
    }

    #[test]
    fn a_plan_covers_each_entry_once_in_order_and_meets_its_targets() {
        covers(&[6, 0, 1, 0, 0]);
        let mut numbers = Numbers::new(5);
        for case in 0..3000 {
            let workers = 1 + case % 17;
            let mut count = |_| match numbers.below(4) {
                0 => 0,
                1 => numbers.below(5) as usize,
                2 => numbers.below(100) as usize,
                _ => numbers.below(10_000) as usize,
            };
            let counts: Vec<usize> = (0..workers).map(&mut count).collect();
            covers(&counts);
        }
    }

    #[test]
    fn shares_are_skewed_when_the_largest_exceeds_the_trigger() {
        assert!(!is_skewed(&[4, 0, 0, 0], TRIGGER), "four times the average");
        assert!(is_skewed(&[6, 0, 1, 0, 0], TRIGGER));
        assert!(!is_skewed(&[3, 1, 1, 1, 1], TRIGGER));
        assert!(!is_skewed(&[0; 8], TRIGGER));
    }
}
