//! The kernels in plain Rust: the fallback on every CPU and the oracle for the others.
//!
//! The bodies that the compiler vectorises by itself are `inline(always)`, so that `avx2.rs` and `avx512` can compile the same
//! source for a wider instruction set. That cannot change a bit: Rust never fuses or reorders floating-point operations, and the
//! sums spell out their lanes.

pub(crate) use crate::elias_fano::{read_high, read_low, write_parts};
pub(crate) use crate::few_bits::loops::{
    codes, extent, join, ladder_codes, ladder_values, levels_of, planes, to_levels,
};
pub(crate) use crate::rice::{end_of_ones, sum_gaps, write_gaps, zeros};

use crate::source::Element;
use crate::window::{Marks, Sums};
use crate::{Entries, INFINITE, LANES, MAGNITUDE, UNREACHABLE, Window};

/// Elements per branch on "is there a candidate here". Small enough that the scalar scan of a group with a hit stays cheap.
const GROUP: usize = 32;

/// The bit of [`reaches`] that counts.
const TOP: u32 = 1 << 31;

/// Elements between two looks at the finite check.
const CHUNK: usize = 4096;

pub(crate) fn accumulate<E: Element>(
    residual: &[f32],
    gradient: &[E],
    scale: f32,
    work: &mut [f32],
    base: u32,
    limit: u32,
    out: &mut Entries,
) -> bool {
    let mut overflow = 0;
    let groups = residual
        .chunks(GROUP)
        .zip(gradient.chunks(GROUP))
        .zip(work.chunks_mut(GROUP));
    for (group, ((r, g), w)) in groups.enumerate() {
        let mut found = 0;
        for ((w, r), g) in w.iter_mut().zip(r).zip(g) {
            *w = r + g.widen() * scale;
            found |= reaches(*w, limit);
            overflow |= reaches(*w, INFINITE);
        }
        if found & TOP != 0 {
            scan(w, base + (group * GROUP) as u32, limit, out);
        }
    }
    overflow & TOP == 0
}

#[inline(always)]
pub(crate) fn copy<E: Element>(gradient: &[E], scale: f32, work: &mut [f32]) -> bool {
    let mut overflow = 0;
    for (w, g) in work.iter_mut().zip(gradient) {
        *w = g.widen() * scale;
        overflow |= reaches(*w, INFINITE);
    }
    overflow & TOP == 0
}

pub(crate) fn extract(work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    for (group, w) in work.chunks(GROUP).enumerate() {
        if any_reaches(w, limit) {
            scan(w, base + (group * GROUP) as u32, limit, out);
        }
    }
}

pub(crate) fn drain(marks: &mut Marks, sums: &Sums, start: u32, most: usize, out: &mut Entries) {
    out.reserve(most);
    for (slot, (mark, &value)) in marks.iter_mut().zip(sums).enumerate() {
        if std::mem::take(mark) != 0 {
            out.push(start + slot as u32, value);
        }
    }
}

#[inline(always)]
pub(crate) fn count_at_least(values: &[f32], limit: u32) -> usize {
    let mut count = 0;
    for chunk in values.chunks(CHUNK) {
        // Counted in u32 lanes: a wider sum would halve the lanes. A loop and no iterator's sum: that is a function of its own, which is not
        // compiled for the level.
        let mut found = 0u32;
        for value in chunk {
            found += u32::from(value.to_bits() & MAGNITUDE >= limit);
        }
        count += found as usize;
    }
    count
}

/// A fold, because a loop that can leave early is not vectorised.
#[inline(always)]
pub(crate) fn ascends(indices: &[u32]) -> bool {
    let pairs = indices.iter().zip(indices.get(1..).unwrap_or_default());
    pairs.fold(true, |ascends, (before, after)| ascends & (before < after))
}

#[inline(always)]
pub(crate) fn any_zero(values: &[f32]) -> bool {
    values
        .iter()
        .fold(false, |any, value| any | (value.to_bits() << 1 == 0))
}

#[inline(always)]
pub(crate) fn keys_between(values: &[f32], low: u32, high: u32, out: &mut Vec<u32>) -> usize {
    let keys = values.iter().map(|value| value.to_bits() & MAGNITUDE);
    out.extend(keys.filter(|key| (low..high).contains(key)));
    count_at_least(values, high)
}

#[inline(always)]
pub(crate) fn common(
    marks: &Marks,
    start: u32,
    indices: &[u32],
    values: &[f32],
    out: &mut Entries,
) -> usize {
    let inside = |index: u32| (index.wrapping_sub(start) as usize) < Window::LEN;
    let count = indices.iter().take_while(|&&index| inside(index)).count();
    let mut end = out.len();
    out.indices.resize(end + count, 0);
    out.values.resize(end + count, 0.0);
    for (&index, &value) in indices[..count].iter().zip(values) {
        out.indices[end] = index;
        out.values[end] = value;
        end += usize::from(marks[index.wrapping_sub(start) as usize % Window::LEN]);
    }
    out.indices.truncate(end);
    out.values.truncate(end);
    count
}

/// Written without branches on the data, which no predictor could guess: every entry goes to the end of the list, and the end
/// moves when it is to stay there.
#[inline(always)]
pub(crate) fn take(indices: &[u32], values: &[f32], limit: u32, out: &mut Entries) {
    let mut end = out.len();
    out.indices.resize(end + indices.len(), 0);
    out.values.resize(end + indices.len(), 0.0);
    for (&index, &value) in indices.iter().zip(values) {
        out.indices[end] = index;
        out.values[end] = value;
        end += usize::from(value.to_bits() & MAGNITUDE >= limit);
    }
    out.indices.truncate(end);
    out.values.truncate(end);
}

pub(crate) fn take_out(values: &mut [f32], base: u32, limit: u32, out: &mut Entries) {
    for (group, values) in values.chunks_mut(GROUP).enumerate() {
        if any_reaches(values, limit) {
            scan(values, base + (group * GROUP) as u32, limit, out);
            clear(values, limit);
        }
    }
}

/// There are as many `rests` as values that reach the limit.
#[inline(always)]
pub(crate) fn leave(values: &mut [f32], limit: u32, rests: &[f32]) {
    let mut next = 0;
    for value in values {
        let taken = value.to_bits() & MAGNITUDE >= limit;
        let rest = rests.get(next).copied().unwrap_or_default();
        *value = if taken { rest } else { *value };
        next += usize::from(taken);
    }
}

#[inline(always)]
pub(crate) fn clear(values: &mut [f32], limit: u32) {
    for value in values {
        let taken = value.to_bits() & MAGNITUDE >= limit;
        *value = if taken { 0.0 } else { *value };
    }
}

fn scan(work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    for (offset, &value) in work.iter().enumerate() {
        if value.to_bits() & MAGNITUDE >= limit {
            out.push(base + offset as u32, value);
        }
    }
}

/// A number whose top bit says whether the magnitude of `value` reaches `limit` (at least 1, at most [`UNREACHABLE`]).
///
/// Such numbers can be ORed over many values. Taking the maximum instead reads better, but the baseline of x86-64 has no
/// instruction for it, and it made these loops up to 1.3 times as slow.
#[inline(always)]
fn reaches(value: f32, limit: u32) -> u32 {
    (value.to_bits() & MAGNITUDE) + (UNREACHABLE - limit)
}

#[inline(always)]
fn any_reaches(a: &[f32], limit: u32) -> bool {
    a.iter()
        .fold(0, |found, &value| found | reaches(value, limit))
        & TOP
        != 0
}

#[inline(always)]
pub(crate) fn add_assign(a: &mut [f32], b: &[f32]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
}

#[inline(always)]
pub(crate) fn all_finite(a: &[f32]) -> bool {
    a.chunks(CHUNK).all(|chunk| !any_reaches(chunk, INFINITE))
}

#[inline(always)]
pub(crate) fn sum_of_squares(a: &[f32]) -> f64 {
    // The square of an f32 is exact in f64 (48 bits), so only the additions round.
    sum_lanes(a, |value| f64::from(value) * f64::from(value))
}

#[inline(always)]
pub(crate) fn sum(a: &[f32]) -> f64 {
    sum_lanes(a, f64::from)
}

/// Element `i` goes to lane `i % LANES`; the lanes are then added pairwise, halves first.
#[inline(always)]
fn sum_lanes(a: &[f32], term: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (rows, rest) = a.as_chunks::<LANES>();
    for row in rows {
        for (lane, &value) in lanes.iter_mut().zip(row) {
            *lane += term(value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane += term(value);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
pub(crate) fn to_bf16(src: &[f32], dst: &mut [u16]) {
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst = (nearest_bf16(*src) >> 16) as u16;
    }
}

#[inline(always)]
pub(crate) fn round_bf16(values: &mut [f32], errors: &mut [f32]) {
    for (value, error) in values.iter_mut().zip(errors) {
        let rounded = f32::from_bits(nearest_bf16(*value));
        let finite = rounded.to_bits() & MAGNITUDE < INFINITE;
        *error = if finite { *value - rounded } else { 0.0 };
        *value = rounded;
    }
}

/// The bits of the value as bf16 keeps it.
#[inline(always)]
fn nearest_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // A NaN whose payload sits in the low half would turn into an infinity: set the quiet bit.
    let quiet = bits | 0x0040_0000;
    (if bits & MAGNITUDE > INFINITE {
        quiet
    } else {
        rounded
    }) & 0xffff_0000
}

#[inline(always)]
pub(crate) fn from_bf16(src: &[u16], dst: &mut [f32]) {
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst = f32::from_bits(u32::from(*src) << 16);
    }
}

pub(crate) fn take_at(dense: &mut [f32], indices: &[u32], out: &mut Vec<f32>) {
    check_indices(dense.len(), indices);
    let taken = indices
        .iter()
        .map(|&index| std::mem::take(&mut dense[index as usize]));
    out.extend(taken);
}

pub(crate) fn scatter(dense: &mut [f32], indices: &[u32], values: &[f32]) {
    check_indices(dense.len(), indices);
    for (&index, &value) in indices.iter().zip(values) {
        dense[index as usize] = value;
    }
}

#[inline(always)]
pub(crate) fn add_at(dense: &mut [f32], base: u32, indices: &[u32], values: &[f32]) {
    for (&index, &value) in indices.iter().zip(values) {
        dense[index.wrapping_sub(base) as usize] += value;
    }
}

pub(crate) fn copy_at(from: &[f32], to: &mut [f32], indices: &[u32]) {
    check_indices(from.len().min(to.len()), indices);
    for &index in indices {
        to[index as usize] = from[index as usize];
    }
}

pub(crate) fn clear_at(dense: &mut [f32], indices: &[u32], limit: u32) {
    check_indices(dense.len(), indices);
    for &index in indices {
        let value = &mut dense[index as usize];
        let taken = value.to_bits() & MAGNITUDE >= limit;
        *value = if taken { 0.0 } else { *value };
    }
}

/// Panics unless every index is below `len`. A fold over all of them, because a loop that can leave early is not vectorised.
#[inline(always)]
pub(crate) fn check_indices(len: usize, indices: &[u32]) {
    if let Some(largest) = indices.iter().copied().reduce(u32::max) {
        assert!(
            (largest as usize) < len,
            "index {largest} is out of range for {len} elements"
        );
    }
}
