//! The Elias-Fano coding of ascending positions; the format is in the documentation of the codec.

/// Width of the low parts.
fn low_width(block_len: u32, count: usize) -> u32 {
    (u64::from(block_len) / count.max(1) as u64)
        .checked_ilog2()
        .unwrap_or(0)
}

/// Bytes of the low parts and of the bitmap.
fn lens(block_len: u32, count: usize) -> (u64, u64) {
    if count == 0 {
        return (0, 0);
    }
    let width = low_width(block_len, count);
    let count = count as u64;
    let low = count.saturating_mul(width.into());
    let high = count.saturating_add(u64::from(block_len.saturating_sub(1) >> width));
    (low.div_ceil(8), high.div_ceil(8))
}

/// Bytes of `count` positions in a block of `block_len`.
pub(super) fn len(block_len: u32, count: usize) -> usize {
    let (low, high) = lens(block_len, count);
    usize::try_from(low.saturating_add(high)).unwrap_or(usize::MAX)
}

/// Writes the positions `index - start` to `bytes`, which are zero and [`len`] many.
pub(super) fn write(start: u32, block_len: u32, indices: &[u32], bytes: &mut [u8]) {
    let width = low_width(block_len, indices.len());
    let (low, high) = bytes.split_at_mut(lens(block_len, indices.len()).0 as usize);
    write_low(start, width, indices, low);
    write_high(start, width, indices, high);
}

fn write_low(start: u32, width: u32, indices: &[u32], bytes: &mut [u8]) {
    if width == 0 {
        return;
    }
    let mask = (1u64 << width) - 1;
    let (mut word, mut filled, mut at) = (0u64, 0, 0);
    for index in indices {
        let low = u64::from(index.wrapping_sub(start)) & mask;
        word |= low << filled;
        filled += width;
        if filled >= u64::BITS {
            store(bytes, at, word);
            at += 1;
            filled -= u64::BITS;
            word = low >> (width - filled);
        }
    }
    store(bytes, at, word);
}

fn write_high(start: u32, width: u32, indices: &[u32], bytes: &mut [u8]) {
    let (mut word, mut at) = (0u64, 0);
    for (entry, index) in indices.iter().enumerate() {
        let bit = (index.wrapping_sub(start) >> width) as usize + entry;
        if bit / 64 != at {
            store(bytes, at, word);
            at = bit / 64;
            word = 0;
        }
        word |= 1 << (bit % 64);
    }
    store(bytes, at, word);
}

/// Reads as many positions as there are `slots` and adds `start`. `bytes` has [`len`] bytes.
///
/// False if they do not ascend inside the block; the slots are then unspecified.
pub(super) fn read(bytes: &[u8], start: u32, block_len: u32, slots: &mut [u32]) -> bool {
    let width = low_width(block_len, slots.len());
    let mask = (1u64 << width) - 1;
    let high = &bytes[lens(block_len, slots.len()).0 as usize..];
    let words = high.len().div_ceil(8);
    let ones: usize = (0..words)
        .map(|at| load(high, at * 8).count_ones() as usize)
        .sum();
    if ones != slots.len() {
        return false;
    }

    let mut rest = slots;
    let mut entry = 0;
    // One above the position before: what the next may not be below.
    let mut least = 0;
    let mut ascending = true;
    for at in 0..words {
        let mut word = load(high, at * 8);
        let (now, later) = rest.split_at_mut(word.count_ones() as usize);
        for slot in now {
            let bit = at as u64 * 64 + u64::from(word.trailing_zeros());
            word &= word - 1;
            let low_bit = entry * u64::from(width);
            let low = load(bytes, (low_bit / 8) as usize) >> (low_bit % 8) & mask;
            // No overflow: `bit - entry` is below 2^33 and the width below 32.
            let position = (bit - entry) << width | low;
            ascending &= position >= least;
            least = position + 1;
            *slot = start.wrapping_add(position as u32);
            entry += 1;
        }
        rest = later;
    }
    ascending && least <= u64::from(block_len)
}

/// The 8 bytes from `at`, with zeros after the end.
fn load(bytes: &[u8], at: usize) -> u64 {
    let bytes = &bytes[at.min(bytes.len())..];
    if let Some(word) = bytes.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Writes the 8 bytes of word number `at`, without those after the end.
fn store(bytes: &mut [u8], at: usize, word: u64) {
    let bytes = bytes.get_mut(at * 8..).unwrap_or_default();
    let len = bytes.len().min(8);
    bytes[..len].copy_from_slice(&word.to_le_bytes()[..len]);
}
