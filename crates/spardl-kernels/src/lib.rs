//! SIMD kernels of spardl, with run-time dispatch.
//!
//! A worker touches every element of its gradient exactly once per step, in [`accumulate`]; everything after that pass is
//! proportional to the number of selected entries. This crate holds that pass and the few other loops that are worth
//! vector instructions. It is the only crate of the project, besides those that call foreign code, with `unsafe`.
//!
//! Three rules hold for every function:
//!
//! - **Every [`Level`] gives the same bits.** `portable.rs` is the definition; the other levels are tested against it. (Which NaN
//!   a NaN result is, is not defined.)
//! - **A level the CPU lacks is not undefined behaviour**, it runs the portable code.
//! - **Zeros and subnormals are ordinary.** `-0.0` counts as zero; subnormals are neither flushed nor skipped. Magnitudes are
//!   compared as integers (`bits & 0x7fff_ffff`), which orders them like the numbers and puts infinities and NaN on top: the
//!   same comparison finds candidates and non-finite values.
//!
//! `cargo run --release -p spardl-kernels --example pass` times everything against the plain loop `a[i] += b[i]`; the figures,
//! and why the pass looks as it does, are at the top of `avx512/pass.rs`.

/// Calls the function of the same name in the module of the level.
macro_rules! dispatch {
    ($level:expr, $function:ident ($($argument:expr),*)) => {
        match $level.usable() {
            Level::Portable => portable::$function($($argument),*),
            // SAFETY: `usable` returns a level only if the CPU has every feature of it, and these functions need no other.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512::$function($($argument),*) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => portable::$function($($argument),*),
        }
    };
}

pub mod elias_fano;
mod entries;
mod expand;
pub mod few_bits;
mod level;
mod pages;
mod portable;
mod product;
pub mod rice;
mod source;
mod union;
mod window;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use entries::Entries;
pub use expand::{copy_past_cache, expand, prefers_past_cache};
pub use level::Level;
pub use pages::{prefer_huge_pages, zeroed};
pub use product::{Factor, add_product};
pub use source::{Scaled, Source};
pub use union::add_list;
pub use window::Window;

use source::each_type;

/// All bits of an f32 but the sign.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// Magnitude bits of infinity; finite values lie below.
const INFINITE: u32 = 0x7f80_0000;
/// A limit that no magnitude reaches.
const UNREACHABLE: u32 = MAGNITUDE + 1;
/// Independent partial sums of [`sum`] and [`sum_of_squares`]: four AVX-512 or eight AVX2 registers of f64, enough to hide the
/// latency of an addition.
const LANES: usize = 32;

/// `work[i] = residual[i] + gradient[i]`, and the candidates among them.
///
/// The gradient is read in its own type, widened to f32 and multiplied by its scale; the product is rounded before it is added, at
/// every level. Appends `(base + i, work[i])` where `|work[i]| >= threshold` and `work[i] != 0`. With a threshold of infinity nothing is
/// extracted (the fastest path; NaN does the same), with a threshold of zero or less every non-zero value is.
///
/// Returns `false` when any `work[i]` is NaN or infinite; the contents of `work` and of what was appended to `out` are then
/// unspecified. What `out` held before the call stays.
///
/// # Panics
///
/// If the slices differ in length, or `base + i` does not fit a `u32`.
///
/// # Example
///
/// ```
/// use half::bf16;
/// use spardl_kernels::{accumulate, Entries, Level, Scaled, Source};
///
/// let (residual, gradient) = ([1.0, -4.0, 0.0, 2.0], [1.0, -1.0, 0.5, 1.0]);
/// let mut work = [0.0; 4];
/// let mut out = Entries::new();
/// let all = gradient[..].into();
/// assert!(accumulate(Level::best(), &residual, all, &mut work, 100, 3.0, &mut out));
/// assert_eq!(work, [2.0, -5.0, 0.5, 3.0]);
/// assert_eq!(out.indices, [101, 103]);
/// assert_eq!(out.values, [-5.0, 3.0]);
///
/// let narrow = gradient.map(bf16::from_f32);
/// let halved = Scaled { source: Source::Bf16(&narrow), scale: 0.5 };
/// assert!(accumulate(Level::best(), &residual, halved, &mut work, 0, f32::INFINITY, &mut out));
/// assert_eq!(work, [1.5, -4.5, 0.25, 2.5]);
/// ```
pub fn accumulate(
    level: Level,
    residual: &[f32],
    gradient: Scaled<'_>,
    work: &mut [f32],
    base: u32,
    threshold: f32,
    out: &mut Entries,
) -> bool {
    assert_eq!(
        residual.len(),
        work.len(),
        "residual and work differ in length"
    );
    check_gradient(gradient, work);
    check_range(base, work.len());
    let (limit, Scaled { source, scale }) = (limit(threshold), gradient);
    each_type!(source, values => dispatch!(
        level,
        accumulate(residual, values, scale, work, base, limit, out)
    ))
}

/// `work[i] = gradient[i]`, widened and scaled as in [`accumulate`], for methods without a residual.
///
/// Returns `false` when any value is NaN or infinite; the contents of `work` are then unspecified.
///
/// # Panics
///
/// If the slices differ in length.
pub fn copy(level: Level, gradient: Scaled<'_>, work: &mut [f32]) -> bool {
    check_gradient(gradient, work);
    let Scaled { source, scale } = gradient;
    each_type!(source, values => dispatch!(level, copy(values, scale, work)))
}

/// The extraction of [`accumulate`] alone, over an existing array: a rescan.
///
/// Infinite values and NaN count as larger than any finite threshold.
///
/// # Panics
///
/// If `base + i` does not fit a `u32`.
pub fn extract(level: Level, work: &[f32], base: u32, threshold: f32, out: &mut Entries) {
    extract_from(level, work, base, limit(threshold), out);
}

/// [`extract`] down to magnitude bits (`bits & 0x7fff_ffff`) of `limit`, which is at least 1.
///
/// # Panics
///
/// As [`extract`].
pub fn extract_from(level: Level, work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    check_range(base, work.len());
    if limit < UNREACHABLE {
        dispatch!(level, extract(work, base, limit.max(1), out));
    }
}

/// Appends the large entries of a list to `out`: those with magnitude bits (`bits & 0x7fff_ffff`) of at least `limit`, which is at
/// least 1. What then stays in their place, [`leave`] says.
///
/// # Panics
///
/// If `indices` and `values` differ in length.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Entries, Level, leave, take};
///
/// let (mut values, limit) = ([1.0, -4.0, 3.0], 3f32.to_bits());
/// let mut out = Entries::new();
/// take(Level::best(), &[7, 8, 20], &values, limit, &mut out);
/// assert_eq!(out.indices, [8, 20]);
/// assert_eq!(out.values, [-4.0, 3.0]);
/// leave(Level::best(), &mut values, limit, &[0.25, 0.0]);
/// assert_eq!(values, [1.0, 0.25, 0.0]);
/// ```
pub fn take(level: Level, indices: &[u32], values: &[f32], limit: u32, out: &mut Entries) {
    assert_eq!(
        indices.len(),
        values.len(),
        "indices and values differ in length"
    );
    dispatch!(level, take(indices, values, limit.max(1), out));
}

/// Puts `rests`, one after the other, in the place of the values with magnitude bits of at least `limit`, which is at least 1;
/// zeros when `rests` is empty.
///
/// # Panics
///
/// If there are rests, and not as many as such values.
pub fn leave(level: Level, values: &mut [f32], limit: u32, rests: &[f32]) {
    let limit = limit.max(1);
    if rests.is_empty() {
        dispatch!(level, clear(values, limit));
    } else {
        let count = count_at_least(level, values, limit);
        assert_eq!(count, rests.len(), "a rest for every value that was taken");
        dispatch!(level, leave(values, limit, rests));
    }
}

/// Moves the large values out of an array: appends `(base + i, values[i])` to `out` where the magnitude bits (`bits & 0x7fff_ffff`)
/// are at least `limit`, which is at least 1, and leaves zeros there.
///
/// # Panics
///
/// If `base + i` does not fit a `u32`.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Entries, Level, take_out};
///
/// let (mut values, mut out) = ([1.0, -4.0, 0.0, 2.0], Entries::new());
/// take_out(Level::best(), &mut values, 100, 2.0_f32.to_bits(), &mut out);
/// assert_eq!(out.indices, [101, 103]);
/// assert_eq!(out.values, [-4.0, 2.0]);
/// assert_eq!(values, [1.0, 0.0, 0.0, 0.0]);
/// ```
pub fn take_out(level: Level, values: &mut [f32], base: u32, limit: u32, out: &mut Entries) {
    check_range(base, values.len());
    dispatch!(level, take_out(values, base, limit.max(1), out));
}

/// Does each index exceed the one before it?
pub fn ascends(level: Level, indices: &[u32]) -> bool {
    dispatch!(level, ascends(indices))
}

/// Is any of the values zero, of either sign?
pub fn any_zero(level: Level, values: &[f32]) -> bool {
    dispatch!(level, any_zero(values))
}

/// How many values have magnitude bits (`bits & 0x7fff_ffff`) of at least `limit`.
pub fn count_at_least(level: Level, values: &[f32], limit: u32) -> usize {
    dispatch!(level, count_at_least(values, limit))
}

/// Appends the magnitude bits of the values for which they lie in `low..high`, in order. Returns how many values have magnitude
/// bits of at least `high`.
///
/// # Panics
///
/// If `low` is larger than `high`.
pub fn keys_between(
    level: Level,
    values: &[f32],
    low: u32,
    high: u32,
    out: &mut Vec<u32>,
) -> usize {
    assert!(low <= high, "the range of keys ends before it starts");
    dispatch!(level, keys_between(values, low, high, out))
}

/// `a[i] += b[i]`.
///
/// # Panics
///
/// If the slices differ in length.
pub fn add_assign(level: Level, a: &mut [f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "the slices differ in length");
    dispatch!(level, add_assign(a, b));
}

/// Are all values finite?
pub fn all_finite(level: Level, a: &[f32]) -> bool {
    dispatch!(level, all_finite(a))
}

/// Sum of squares in f64.
///
/// The order is fixed: element `i` goes to partial sum `i % 32`, and the 32 partial sums are added pairwise, halves first.
pub fn sum_of_squares(level: Level, a: &[f32]) -> f64 {
    dispatch!(level, sum_of_squares(a))
}

/// Sum in f64, in the order of [`sum_of_squares`].
pub fn sum(level: Level, a: &[f32]) -> f64 {
    dispatch!(level, sum(a))
}

/// Rounds each value to bf16, to nearest, ties to even.
///
/// A NaN stays a NaN of the same sign; what exceeds the largest bf16 by half a step becomes infinite. (The CPU's own
/// conversion instruction flushes subnormals to zero and is not used.)
///
/// # Panics
///
/// If the slices differ in length.
pub fn to_bf16(level: Level, src: &[f32], dst: &mut [u16]) {
    assert_eq!(src.len(), dst.len(), "the slices differ in length");
    dispatch!(level, to_bf16(src, dst));
}

/// Rounds each value to bf16 as [`to_bf16`] does and leaves `value - rounded`, which is exact, in `errors`; zero where the rounded
/// value is not finite.
///
/// # Panics
///
/// If the slices differ in length.
pub fn round_bf16(level: Level, values: &mut [f32], errors: &mut [f32]) {
    assert_eq!(values.len(), errors.len(), "the slices differ in length");
    dispatch!(level, round_bf16(values, errors));
}

/// Widens bf16 patterns to f32; exact.
///
/// # Panics
///
/// If the slices differ in length.
pub fn from_bf16(level: Level, src: &[u16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "the slices differ in length");
    dispatch!(level, from_bf16(src, dst));
}

/// Appends `dense[indices[j]]` for each `j` to `out` and leaves zeros there.
///
/// Fast when the indices ascend; correct in any order. Of equal indices the first gets the value.
///
/// # Panics
///
/// If an index is out of range; `dense` and `out` are then unchanged.
pub fn take_at(level: Level, dense: &mut [f32], indices: &[u32], out: &mut Vec<f32>) {
    dispatch!(level, take_at(dense, indices, out));
}

/// `dense[indices[j]] = values[j]` for each `j`.
///
/// Fast when the indices ascend; correct in any order. Of equal indices the last wins.
///
/// # Panics
///
/// If `indices` and `values` differ in length or an index is out of range; `dense` is then unchanged.
pub fn scatter(level: Level, dense: &mut [f32], indices: &[u32], values: &[f32]) {
    assert_eq!(
        indices.len(),
        values.len(),
        "indices and values differ in length"
    );
    dispatch!(level, scatter(dense, indices, values));
}

/// `dense[indices[j] - base] += values[j]` for each `j`, in order. Fast where the entries lie close together.
///
/// # Panics
///
/// If `indices` and `values` differ in length, or an index is out of range: what comes before it may be added then.
pub fn add_at(level: Level, dense: &mut [f32], base: u32, indices: &[u32], values: &[f32]) {
    assert_eq!(
        indices.len(),
        values.len(),
        "indices and values differ in length"
    );
    dispatch!(level, add_at(dense, base, indices, values));
}

/// `to[indices[j]] = from[indices[j]]` for each `j`.
///
/// # Panics
///
/// If an index is out of range for one of them; `to` is then unchanged.
pub fn copy_at(level: Level, from: &[f32], to: &mut [f32], indices: &[u32]) {
    dispatch!(level, copy_at(from, to, indices));
}

/// `dense[indices[j]] = 0` for each `j` where the magnitude bits (`bits & 0x7fff_ffff`) are at least `limit`.
///
/// # Panics
///
/// If an index is out of range; `dense` is then unchanged.
pub fn clear_at(level: Level, dense: &mut [f32], indices: &[u32], limit: u32) {
    dispatch!(level, clear_at(dense, indices, limit));
}

/// The smallest magnitude bits that make a candidate. At least 1, so that no zero is one.
fn limit(threshold: f32) -> u32 {
    if threshold.is_nan() || threshold == f32::INFINITY {
        UNREACHABLE
    } else if threshold > 0.0 {
        threshold.to_bits()
    } else {
        1
    }
}

fn check_gradient(gradient: Scaled<'_>, work: &[f32]) {
    assert_eq!(
        gradient.source.len(),
        work.len(),
        "gradient and work differ in length"
    );
}

fn check_range(base: u32, len: usize) {
    assert!(
        len as u64 + u64::from(base) <= 1 << 32,
        "{len} indices from {base} do not fit u32"
    );
}
