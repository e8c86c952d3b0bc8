//! The Elias-Fano coding of ascending positions in a block.
//!
//! Each position is cut in two. The low `l` bits, with `l = floor(log2(block_len / count))`, are packed one after the other. The
//! high parts ascend, so their gaps are written in unary: a bitmap in which bit `high[i] + i` is set for every position `i`. Both
//! parts start at a byte, bits are filled from the lowest up. The largest bit that can be set is
//! `((block_len - 1) >> l) + count - 1`, so the bitmap has `((block_len - 1) >> l) + count` bits.
//!
//! Low parts go in groups of eight, which are as many bytes as a low part has bits. The loops over groups are compiled once
//! per width: with all shifts known they take a third of the time.

use crate::{Level, portable};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Low parts per group.
pub(crate) const GROUP: usize = 8;

/// Calls a function that is compiled for each width of the low parts.
macro_rules! by_width {
    ($width:expr, $function:ident $arguments:tt) => {
        by_width!($width, $function $arguments: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
            16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    ($width:expr, $function:ident $arguments:tt: $($case:literal)*) => {
        match $width {
            $($case => $function::<$case> $arguments,)*
            _ => unreachable!("low parts have less than 32 bits"),
        }
    };
}

pub(crate) use by_width;

/// Bytes of `count` positions in a block of `block_len`. Saturates: a length that does not fit is more than any message has.
pub fn len(block_len: u32, count: usize) -> usize {
    let (low, high) = lens(block_len, count);
    low.saturating_add(high)
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
/// use spardl_kernels::{Level, elias_fano};
///
/// let mut bytes = vec![0; elias_fano::len(32, 4)];
/// elias_fano::write(Level::best(), 100, 32, &[103, 107, 108, 130], &mut bytes);
/// assert_eq!(bytes, [0x3b, 0x0c, 0x4b]);
/// let mut indices = Vec::new();
/// assert!(elias_fano::read(Level::best(), &bytes, 100, 32, 4, &mut indices));
/// assert_eq!(indices, [103, 107, 108, 130]);
/// ```
pub fn write(level: Level, start: u32, block_len: u32, indices: &[u32], bytes: &mut [u8]) {
    let width = low_width(block_len, indices.len());
    let (low, high) = bytes.split_at_mut(lens(block_len, indices.len()).0);
    dispatch!(level, write_parts(width, start, indices, low, high));
}

/// Reads `count` positions of a block of `block_len`, adds `start` and appends them to `out`.
///
/// False, and `out` as it was, if the bytes are not [`len`] many or the bitmap is not one of so many positions in the block. If
/// true, what is left for the caller to check is that the indices ascend and stay inside the block.
pub fn read(
    level: Level,
    bytes: &[u8],
    start: u32,
    block_len: u32,
    count: usize,
    out: &mut Vec<u32>,
) -> bool {
    if count > block_len as usize || bytes.len() != len(block_len, count) {
        return false;
    }
    if count == 0 {
        return true;
    }
    let width = low_width(block_len, count);
    let high = &bytes[lens(block_len, count).0..];
    let used = count as u64 + u64::from((block_len - 1) >> width);
    let unused = high.len() as u64 * 8 - used;
    let clear = high.last().map_or(8, |last| last.leading_zeros());
    let from = out.len();
    if u64::from(clear) < unused || !dispatch!(level, read_high(high, count, out)) {
        return false;
    }
    dispatch!(level, read_low(width, bytes, start, &mut out[from..]));
    true
}

/// Width of the low parts, less than 32.
pub(crate) fn low_width(block_len: u32, count: usize) -> u32 {
    let per_entry = u64::from(block_len) / count.max(1) as u64;
    per_entry.checked_ilog2().unwrap_or(0)
}

/// Bytes of the low parts and of the bitmap.
pub(crate) fn lens(block_len: u32, count: usize) -> (usize, usize) {
    if count == 0 {
        return (0, 0);
    }
    let width = low_width(block_len, count);
    let count = count as u64;
    let low = count.saturating_mul(width.into());
    let high = count.saturating_add(u64::from(block_len.saturating_sub(1) >> width));
    let bytes = |bits: u64| usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
    (bytes(low), bytes(high))
}

#[inline(always)]
pub(crate) fn write_parts(
    width: u32,
    start: u32,
    indices: &[u32],
    low: &mut [u8],
    high: &mut [u8],
) {
    by_width!(width, write_low(start, indices, low));
    write_high(start, width, indices, high);
}

#[inline(always)]
fn write_low<const WIDTH: usize>(start: u32, indices: &[u32], bytes: &mut [u8]) {
    if WIDTH == 0 {
        return;
    }
    let (groups, tail) = indices.as_chunks();
    let (full, last) = bytes.split_at_mut(groups.len() * WIDTH);
    for (group, bytes) in groups.iter().zip(full.chunks_exact_mut(WIDTH)) {
        bytes.copy_from_slice(&pack::<WIDTH>(start, group)[..WIDTH]);
    }
    let mut group = [start; GROUP];
    group[..tail.len()].copy_from_slice(tail);
    last.copy_from_slice(&pack::<WIDTH>(start, &group)[..last.len()]);
}

/// The low parts of a group, in the first `WIDTH` bytes.
#[inline(always)]
pub(crate) fn pack<const WIDTH: usize>(start: u32, group: &[u32; GROUP]) -> [u8; 32] {
    let mut words = [0u64; 4];
    for (entry, index) in group.iter().enumerate() {
        let low = u64::from(index.wrapping_sub(start)) & ((1 << WIDTH) - 1);
        let (word, shift) = (entry * WIDTH / 64, entry * WIDTH % 64);
        words[word] |= low << shift;
        if shift + WIDTH > 64 {
            words[word + 1] |= low >> (64 - shift);
        }
    }
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

/// Sets bit `high[i] + i` for each entry `i`, a word at a time.
#[inline(always)]
fn write_high(start: u32, width: u32, indices: &[u32], bytes: &mut [u8]) {
    let (mut word, mut at) = (0u64, 0);
    for (entry, index) in indices.iter().enumerate() {
        let bit = (index.wrapping_sub(start) >> width) as usize + entry;
        if bit / 64 != at {
            store(bytes, at * 8, word);
            at = bit / 64;
            word = 0;
        }
        word |= 1 << (bit % 64);
    }
    store(bytes, at * 8, word);
}

/// The words of a bitmap.
#[inline(always)]
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    (0..bytes.len()).step_by(8).map(|at| load(bytes, at))
}

/// Appends the high parts: the zeros before each one of the bitmap. False, and nothing appended, unless there are `count` ones.
#[inline(always)]
pub(crate) fn read_high(bytes: &[u8], count: usize, out: &mut Vec<u32>) -> bool {
    let ones: usize = words(bytes).map(|word| word.count_ones() as usize).sum();
    if ones != count {
        return false;
    }
    let from = out.len();
    out.resize(from + count, 0);
    let mut rest = &mut out[from..];
    let mut before = 0;
    for mut word in words(bytes) {
        let ones = word.count_ones();
        let (now, later) = rest.split_at_mut(ones as usize);
        for (slot, earlier) in now.iter_mut().zip(0..) {
            // The zeros before a one are its place less the ones before it.
            *slot = before + (word.trailing_zeros() - earlier);
            word &= word - 1;
        }
        before = before.wrapping_add(u64::BITS - ones);
        rest = later;
    }
    true
}

/// Completes the slots, which hold the high parts: adds the low parts, from the first byte on, and `start`. The bytes after the
/// low parts are not used, but having them is faster.
#[inline(always)]
pub(crate) fn read_low(width: u32, bytes: &[u8], start: u32, slots: &mut [u32]) {
    by_width!(width, complete(bytes, start, slots));
}

#[inline(always)]
fn complete<const WIDTH: usize>(bytes: &[u8], start: u32, slots: &mut [u32]) {
    let complete = |slot: &mut u32, word: u64, shift: usize| {
        let low = (word >> shift) as u32 & ((1 << WIDTH) - 1);
        *slot = start.wrapping_add(*slot << WIDTH | low);
    };
    let (mut at, mut done) = (0, 0);
    for group in slots.as_chunks_mut::<GROUP>().0 {
        // The last loads of a group reach into the bytes after it.
        let Some(window) = bytes.get(at..at + WIDTH + 8) else {
            break;
        };
        for (entry, slot) in group.iter_mut().enumerate() {
            complete(slot, load(window, entry * WIDTH / 8), entry * WIDTH % 8);
        }
        at += WIDTH;
        done += GROUP;
    }
    for (entry, slot) in slots.iter_mut().enumerate().skip(done) {
        complete(slot, load(bytes, entry * WIDTH / 8), entry * WIDTH % 8);
    }
}

/// The 8 bytes from `at`, with zeros after the end.
#[inline(always)]
pub(crate) fn load(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).unwrap_or_default();
    if let Some(word) = bytes.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Writes 8 bytes from `at`, without those after the end.
#[inline(always)]
pub(crate) fn store(bytes: &mut [u8], at: usize, word: u64) {
    let bytes = bytes.get_mut(at..).unwrap_or_default();
    if let Some(chunk) = bytes.first_chunk_mut() {
        *chunk = word.to_le_bytes();
    } else {
        let len = bytes.len();
        bytes.copy_from_slice(&word.to_le_bytes()[..len]);
    }
}
