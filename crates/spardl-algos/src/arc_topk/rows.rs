//! The rows of a bucket, their sketch, and which of them it points at.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use spardl_core::{Layout, algorithm::Part};

use super::Row;
use crate::splitmix::{mix, number};

/// A tensor of one dimension with this many elements is no bias but a flattened matrix; so is a bucket without structure.
const LONG: usize = 1 << 16;
/// Sums that run side by side, so that the compiler can use wide registers; their order is part of the result.
const LANES: usize = 16;
const SIGN: u32 = 1 << 31;

/// The most elements of a row of `part`, when `k` of `len` are asked for.
fn row_len(part: &Part, row: Row, columns: u32, len: usize, k: usize) -> usize {
    let auto = || (len * columns as usize).div_ceil(k.max(1)).max(1);
    match row {
        Row::Elements(elements) => elements as usize,
        Row::Matrix if part.shape.len() > 1 => part.len() / part.shape[0].max(1),
        Row::Matrix if part.len() < LONG.min(len) => 1,
        Row::Matrix | Row::Auto => auto(),
    }
    .max(1)
}

/// How many values the sketch has.
pub(super) fn sketch_len(layout: &Layout, row: Row, columns: u32, k: usize) -> usize {
    let len = layout.len() as usize;
    let values = |part: &Part| {
        let count = part.len().div_ceil(row_len(part, row, columns, len, k));
        let each = |i: usize| even(part.len(), count, i).len();
        // Rows of a tensor differ by at most one element.
        let (short, rest) = (part.len() / count.max(1), part.len() % count.max(1));
        debug_assert!(count == 0 || each(0) == short || each(0) == short + 1);
        let columns = columns as usize;
        (count - rest) * short.min(columns) + rest * (short + 1).min(columns)
    };
    layout.parts().iter().map(values).sum()
}

/// Piece `i` of `count` nearly equal ones of `len` elements.
fn even(len: usize, count: usize, i: usize) -> Range<usize> {
    let cut = |i: usize| (i as u64 * len as u64 / count as u64) as usize;
    cut(i)..cut(i + 1)
}

/// The rows of a bucket.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Where they begin, and where the last ends.
    cuts: Vec<u32>,
    columns: usize,
}

impl Rows {
    /// Rows for `k` entries; none crosses the border of a tensor.
    pub(super) fn new(layout: &Layout, row: Row, columns: u32, k: usize) -> Self {
        let len = layout.len() as usize;
        let mut cuts = vec![0];
        for part in layout.parts() {
            let count = part.len().div_ceil(row_len(part, row, columns, len, k));
            let end = |i| part.offset + even(part.len(), count, i).end as u32;
            cuts.extend((0..count).map(end));
        }
        Self {
            cuts,
            columns: columns as usize,
        }
    }

    fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        let pairs = self.cuts.windows(2);
        pairs.map(|pair| pair[0] as usize..pair[1] as usize)
    }

    /// The sketch of this worker's `work`, in place of what `out` held. A row of no more elements than columns is its own.
    pub(super) fn sketch(&self, seed: u64, step: u64, work: &[f32], out: &mut Vec<f32>) {
        let longest = self.iter().map(|row| row.len()).max().unwrap_or(0);
        let key = number(mix(seed), step);
        let signs: Vec<Vec<u32>> = (0..self.columns as u64)
            .map(|column| signs(number(key, column), longest))
            .collect();
        out.clear();
        for row in self.iter() {
            let elements = &work[row];
            if elements.len() <= self.columns {
                out.extend_from_slice(elements);
            } else {
                out.extend(signs.iter().map(|signs| signed_sum(elements, signs)));
            }
        }
    }

    /// The indices of the `k` elements of the best rows, ascending. The last row is cut, from a place that moves with the step.
    pub(super) fn best(&self, sketch: &[f32], k: usize, step: u64) -> Vec<u32> {
        let mut heap: BinaryHeap<(u64, Reverse<usize>)> = self.scores(sketch).collect();
        let (mut chosen, mut left) = (Vec::new(), k);
        while left > 0 {
            let Some((_, Reverse(row))) = heap.pop() else {
                break;
            };
            let (start, end) = (self.cuts[row], self.cuts[row + 1]);
            let len = (end - start) as usize;
            if len <= left {
                chosen.push(start..end);
            } else {
                chosen.extend(window(start, len, left, step));
            }
            left -= len.min(left);
        }
        chosen.sort_unstable_by_key(|range| range.start);
        chosen.into_iter().flatten().collect()
    }

    /// The scores as numbers that compare alike, with the rows.
    fn scores(&self, sketch: &[f32]) -> impl Iterator<Item = (u64, Reverse<usize>)> {
        let mut at = 0;
        self.iter().enumerate().map(move |(number, row)| {
            let count = row.len().min(self.columns);
            let columns = &sketch[at..at + count];
            at += count;
            // f64: squares of f32 neither overflow nor vanish.
            let squares: f64 = columns.iter().map(|&c| f64::from(c) * f64::from(c)).sum();
            // Elements themselves add up to the square, random combinations to its estimate, once per column.
            let estimates = if row.len() <= self.columns { 1 } else { count };
            let score = squares / estimates as f64 / row.len() as f64;
            let score = if score.is_nan() { f64::INFINITY } else { score };
            // Magnitudes compare as their bits do.
            (score.to_bits(), Reverse(number))
        })
    }
}

/// `left` elements of a row of `len` from `start` on, ascending: a window that moves on by its length in every step.
fn window(start: u32, len: usize, left: usize, step: u64) -> impl Iterator<Item = Range<u32>> {
    let first = ((step % len as u64) * left as u64 % len as u64) as usize;
    let wrapped = (first + left).saturating_sub(len);
    let at = |place: usize| start + place as u32;
    let ranges = [at(0)..at(wrapped), at(first)..at((first + left).min(len))];
    ranges.into_iter().filter(|range| !range.is_empty())
}

/// A sign bit per element of a row.
fn signs(key: u64, len: usize) -> Vec<u32> {
    let word = |i: usize| number(key, i as u64 / 64) >> (i % 64);
    (0..len).map(|i| (word(i) as u32 & 1) << 31).collect()
}

/// The sum of the elements with these signs, the same bits on every machine.
fn signed_sum(elements: &[f32], signs: &[u32]) -> f32 {
    let signed = |(x, sign): (&f32, &u32)| f32::from_bits(x.to_bits() ^ (sign & SIGN));
    let (chunks, rest) = elements.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for (chunk, signs) in chunks.iter().zip(signs.chunks_exact(LANES)) {
        for (lane, pair) in lanes.iter_mut().zip(chunk.iter().zip(signs)) {
            *lane += signed(pair);
        }
    }
    let tail = rest.iter().zip(&signs[chunks.len() * LANES..]);
    lanes.iter().sum::<f32>() + tail.map(signed).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let shapes = [vec![6, 10], vec![7], vec![], vec![0, 3], vec![5, 4, 2]];
        let named = shapes.into_iter().enumerate();
        Layout::new(named.map(|(i, shape)| (format!("t{i}"), shape))).unwrap()
    }

    #[test]
    fn rows_tile_the_bucket_within_its_tensors_and_the_sketch_has_the_length_foretold() {
        let layout = layout();
        let len = layout.len();
        for row in [Row::Auto, Row::Matrix, Row::Elements(4)] {
            for (columns, k) in [(1, 1), (1, 30), (3, 30), (4, 107)] {
                let rows = Rows::new(&layout, row, columns, k);
                assert_eq!(rows.cuts.last(), Some(&len), "{row}");
                assert!(rows.cuts.is_sorted());
                for part in layout.parts().iter().filter(|part| !part.is_empty()) {
                    assert!(rows.cuts.contains(&part.offset), "{row} cuts tensors");
                }
                let (mut sketch, work) = (Vec::new(), vec![1.0; len as usize]);
                rows.sketch(1, 2, &work, &mut sketch);
                let foretold = sketch_len(&layout, row, columns, k);
                assert_eq!(sketch.len(), foretold, "{row} {columns} {k}");
                for wanted in [0, 1, 17, k, len as usize] {
                    let best = rows.best(&sketch, wanted, 5);
                    assert_eq!(best.len(), wanted.min(len as usize), "{row}");
                    assert!(best.windows(2).all(|pair| pair[0] < pair[1]));
                    assert!(best.last().is_none_or(|&last| last < len));
                }
            }
        }
    }

    #[test]
    fn rows_of_tensors_are_their_own() {
        let rows = Rows::new(&layout(), Row::Matrix, 4, 9);
        let lens: Vec<usize> = rows.iter().map(|row| row.len()).collect();
        assert_eq!(lens, [vec![10; 6], vec![1; 8], vec![8; 5]].concat());
    }

    #[test]
    fn a_sketch_is_linear_and_a_lone_element_shows_exactly() {
        let layout = Layout::flat(200);
        let rows = Rows::new(&layout, Row::Elements(50), 2, 10);
        let sketch = |work: &[f32]| {
            let mut out = Vec::new();
            rows.sketch(3, 4, work, &mut out);
            out
        };
        let a: Vec<f32> = (0..200u8).map(f32::from).collect();
        let mut b = vec![0.0; 200];
        b[77] = 5.0;
        let both: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let sums: Vec<f32> = sketch(&a)
            .iter()
            .zip(sketch(&b))
            .map(|(a, b)| a + b)
            .collect();
        assert_eq!(sketch(&both), sums);
        let magnitudes: Vec<f32> = sketch(&b).iter().map(|value| value.abs()).collect();
        assert_eq!(magnitudes, [0.0, 0.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_cut_row_has_its_elements_delivered_in_turn() {
        for (len, left) in [(7, 3), (7, 1), (10, 4), (5, 4)] {
            let mut seen = vec![0; len];
            for step in 0..2 * len as u64 {
                let all: Vec<u32> = window(100, len, left, step).flatten().collect();
                assert_eq!(all.len(), left);
                assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
                all.iter().for_each(|&i| seen[i as usize - 100] += 1);
            }
            assert!(
                seen.iter().all(|&count| count > 0),
                "{len} {left}: {seen:?}"
            );
        }
    }
}
