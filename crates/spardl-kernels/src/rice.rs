//! The Rice coding of ascending positions in a block: Elias-Fano's layout over the gaps between positions.
//!
//! A gap is how many positions lie between a position and the one before it. It is cut in two as Elias-Fano cuts a position, at the
//! same width `l`: the low `l` bits are packed, the rest is written in unary, so many zeros and a one. All gaps together are less than the
//! block, so the zeros are at most those of Elias-Fano: never longer, and about half a bit per position shorter where positions are
//! spread at random, because what the low parts add up to need not be written. The price is a running sum to read them, and a length that
//! depends on the positions.

use crate::elias_fano::{GROUP, by_width, lens, load, low_width, pack, store};
use crate::{Level, portable};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Bytes of the positions `index - start`, which ascend inside a block of `block_len`; at most [`crate::elias_fano::len`] of as many.
pub fn len(level: Level, start: u32, block_len: u32, indices: &[u32]) -> usize {
    let width = low_width(block_len, indices.len());
    let zeros = dispatch!(level, zeros(width, start, indices));
    let (low, _) = lens(block_len, indices.len());
    low + (zeros as usize + indices.len()).div_ceil(8)
}

/// [`len`] of `count` positions that are spread at random over the block, which each element is in with the same probability.
pub fn usual_len(block_len: u32, count: usize) -> usize {
    let (low, most) = lens(block_len, count);
    let part = (count as f64 / f64::from(block_len.max(1))).min(1.0);
    // The gaps are geometric: so many of them reach 2^l, as many of those twice that, and so on.
    let reach = (1.0 - part).powf(f64::from(low_width(block_len, count)).exp2());
    let bits = count as f64 * (1.0 + reach / (1.0 - reach).max(f64::MIN_POSITIVE));
    low + ((bits / 8.0).ceil() as usize).min(most)
}

/// Writes the positions `index - start` to `bytes`, which are zero and [`len`] many.
///
/// # Panics
///
/// May panic, or write what cannot be read, unless the indices ascend inside `start..start + block_len`.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Level, rice};
///
/// let (level, indices) = (Level::best(), [103, 107, 108, 130]);
/// let mut bytes = vec![0; rice::len(level, 100, 32, &indices)];
/// rice::write(level, 100, 32, &indices, &mut bytes);
/// let mut again = Vec::new();
/// assert_eq!(rice::read(level, &bytes, 100, 32, 4, &mut again), Some(bytes.len()));
/// assert_eq!(again, indices);
/// ```
pub fn write(level: Level, start: u32, block_len: u32, indices: &[u32], bytes: &mut [u8]) {
    let width = low_width(block_len, indices.len());
    let (low, high) = bytes.split_at_mut(lens(block_len, indices.len()).0);
    dispatch!(level, write_gaps(width, start, indices, low, high));
}

/// Reads `count` positions of a block of `block_len` from the first of `bytes`, adds `start` and appends them to `out`. Returns how many
/// bytes they took.
///
/// `None`, and `out` as it was, if the bytes are not `count` gaps. What is left for the caller to check is that the indices ascend and
/// stay inside the block.
pub fn read(
    level: Level,
    bytes: &[u8],
    start: u32,
    block_len: u32,
    count: usize,
    out: &mut Vec<u32>,
) -> Option<usize> {
    if count == 0 {
        return Some(0);
    }
    let (low, most) = lens(block_len, count);
    let (_, high) = bytes.split_at_checked(low)?;
    let high = &high[..high.len().min(most)];
    let end = dispatch!(level, end_of_ones(high, count))?;
    let (from, width) = (out.len(), low_width(block_len, count));
    if !dispatch!(level, read_high(&high[..end], count, out)) {
        return None;
    }
    dispatch!(level, sum_gaps(width, bytes, start, &mut out[from..]));
    Some(low + end)
}

/// The zeros of the unary parts.
#[inline(always)]
pub(crate) fn zeros(width: u32, start: u32, indices: &[u32]) -> u64 {
    let mut sum = indices
        .first()
        .map_or(0, |first| u64::from(first.wrapping_sub(start) >> width));
    // A loop and no iterator's sum, so that it is compiled for the level.
    for pair in indices.windows(2) {
        sum += u64::from(pair[1].wrapping_sub(pair[0]).wrapping_sub(1) >> width);
    }
    sum
}

#[inline(always)]
pub(crate) fn write_gaps(width: u32, start: u32, indices: &[u32], low: &mut [u8], high: &mut [u8]) {
    by_width!(width, write_low(start, indices, low));
    let (mut word, mut at, mut bit) = (0u64, 0, 0);
    let mut put = |before: u32, index: u32| {
        bit += (index.wrapping_sub(before).wrapping_sub(1) >> width) as usize;
        if bit / 64 != at {
            store(high, at * 8, word);
            at = bit / 64;
            word = 0;
        }
        word |= 1 << (bit % 64);
        bit += 1;
    };
    if let Some(&first) = indices.first() {
        put(start.wrapping_sub(1), first);
    }
    for pair in indices.windows(2) {
        put(pair[0], pair[1]);
    }
    store(high, at * 8, word);
}

#[inline(always)]
fn write_low<const WIDTH: usize>(start: u32, indices: &[u32], bytes: &mut [u8]) {
    if WIDTH == 0 {
        return;
    }
    let mut last = start.wrapping_sub(1);
    let mut gaps = |group: &[u32; GROUP]| {
        let mut gaps = [last; GROUP];
        gaps[1..].copy_from_slice(&group[..GROUP - 1]);
        for (gap, index) in gaps.iter_mut().zip(group) {
            *gap = index.wrapping_sub(*gap).wrapping_sub(1);
        }
        last = group[GROUP - 1];
        pack::<WIDTH>(0, &gaps)
    };
    let (groups, tail) = indices.as_chunks();
    let (full, rest) = bytes.split_at_mut(groups.len() * WIDTH);
    for (group, bytes) in groups.iter().zip(full.chunks_exact_mut(WIDTH)) {
        bytes.copy_from_slice(&gaps(group)[..WIDTH]);
    }
    // The low part after the last is zero, as that of an index right after the one before it is.
    let mut group = [0; GROUP];
    group[..tail.len()].copy_from_slice(tail);
    for entry in tail.len().max(1)..GROUP {
        group[entry] = group[entry - 1].wrapping_add(1);
    }
    rest.copy_from_slice(&gaps(&group)[..rest.len()]);
}

/// How many of the bytes it takes to have `count` ones, at least 1; `None` if they have fewer.
#[inline(always)]
pub(crate) fn end_of_ones(bytes: &[u8], count: usize) -> Option<usize> {
    let mut left = count;
    for at in (0..bytes.len()).step_by(8) {
        let word = load(bytes, at);
        let ones = word.count_ones() as usize;
        if ones >= left {
            let mut rest = word;
            for _ in 1..left {
                rest &= rest - 1;
            }
            return Some(at + rest.trailing_zeros() as usize / 8 + 1);
        }
        left -= ones;
    }
    None
}

/// Completes the slots, which hold the zeros up to each one: adds what the low parts, from the first byte on, sum up to, and `start`.
#[inline(always)]
pub(crate) fn sum_gaps(width: u32, bytes: &[u8], start: u32, slots: &mut [u32]) {
    by_width!(width, complete(bytes, start, slots));
}

#[inline(always)]
fn complete<const WIDTH: usize>(bytes: &[u8], start: u32, slots: &mut [u32]) {
    let low = |word: u64, shift: usize| (word >> shift) as u32 & ((1 << WIDTH) - 1);
    // The position before the first: every gap leads to the position after it.
    let mut sum = start.wrapping_sub(1);
    let (mut at, mut done) = (0, 0);
    for group in slots.as_chunks_mut::<GROUP>().0 {
        // The last loads of a group reach into the bytes after it.
        let Some(window) = bytes.get(at..at + WIDTH + 8) else {
            break;
        };
        let mut sums = [0; GROUP];
        for (entry, to) in sums.iter_mut().enumerate() {
            *to = low(load(window, entry * WIDTH / 8), entry * WIDTH % 8) + 1;
        }
        // Sums of up to 2, 4 and 8 entries: three steps instead of eight that wait for each other.
        for reach in [1, 2, 4] {
            let before = sums;
            for (to, before) in sums[reach..].iter_mut().zip(before) {
                *to = to.wrapping_add(before);
            }
        }
        for (slot, low) in group.iter_mut().zip(sums) {
            *slot = sum.wrapping_add(low).wrapping_add(*slot << WIDTH);
        }
        sum = sum.wrapping_add(sums[GROUP - 1]);
        at += WIDTH;
        done += GROUP;
    }
    for (entry, slot) in slots.iter_mut().enumerate().skip(done) {
        let low = low(load(bytes, entry * WIDTH / 8), entry * WIDTH % 8);
        sum = sum.wrapping_add(low + 1);
        *slot = sum.wrapping_add(*slot << WIDTH);
    }
}
