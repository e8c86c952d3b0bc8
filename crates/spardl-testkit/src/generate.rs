//! Gradients for tests: integer-valued, so that sums in f32 are exact and laws are checked with `==`.

use spardl_core::Layout;

/// A small deterministic generator (SplitMix64): the tests need no statistics, only variety.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers from this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}

/// Integer-valued gradients of `workers` workers: many ties and zeros, a few large values.
pub fn integers(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(seed);
    let mut value = || {
        let magnitude = match numbers.below(10) {
            0..3 => 0,
            3..8 => numbers.below(8),
            8 => numbers.below(100),
            _ => numbers.below(2000),
        } as f32;
        if numbers.below(2) == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    (0..workers)
        .map(|_| (0..len).map(|_| value()).collect())
        .collect()
}

/// A bucket of `len` elements: of many tensors, or one without structure where the number of workers is a multiple of three.
pub fn layout(workers: u32, len: usize) -> Layout {
    match workers.is_multiple_of(3) {
        true => Layout::flat(len as u32),
        false => layered(len),
    }
}

/// The bucket without structure and, unless it is tiny, the one of many tensors.
pub fn layouts(len: usize) -> Vec<Layout> {
    let mut layouts = vec![Layout::flat(len as u32)];
    layouts.extend((len >= 8).then(|| layered(len)));
    layouts
}

/// A bucket of many tensors: matrices, vectors, a scalar and an empty one among them; a tiny one has no structure.
///
/// # Panics
/// Never: the parts fit the length.
pub fn layered(len: usize) -> Layout {
    if len < 8 {
        return Layout::flat(len as u32);
    }
    let columns = (len / 2).isqrt();
    let left = len - columns * columns - 1;
    let tensors = [
        ("square", vec![columns, columns]),
        ("scalar", Vec::new()),
        ("empty", vec![0, 3]),
        ("cube", vec![2, 1, left / 4]),
        ("vector", vec![left - left / 4 * 2]),
    ];
    Layout::new(tensors).expect("a few elements")
}

/// Gradients with fractions and a heavy tail: sums round, so the order of additions shows.
pub fn fractions(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(seed);
    let mut value = || {
        let unit = (numbers.below(1 << 24) as f32 + 1.0) / (1 << 24) as f32;
        let sign = if numbers.below(2) == 0 { 1.0 } else { -1.0 };
        sign * (1.0 / unit.sqrt() - 1.0)
    };
    (0..workers)
        .map(|_| (0..len).map(|_| value()).collect())
        .collect()
}

/// Integers from 1 to 9: no sum of up to 28 workers is zero or loses a bit in bf16.
pub fn digits(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(seed);
    (0..workers)
        .map(|_| (0..len).map(|_| (1 + numbers.below(9)) as f32).collect())
        .collect()
}

/// The same gradient on all workers: positive, no two values alike, none zero. So all select the same entries, nothing
/// cancels, and every list is as long as it may be.
pub fn unanimous(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(seed);
    let mut gradient: Vec<f32> = (0..len).map(|i| 1.0 + i as f32 / 1024.0).collect();
    for i in (1..len).rev() {
        gradient.swap(i, numbers.below(i as u64 + 1) as usize);
    }
    vec![gradient; workers as usize]
}

/// Finite gradients some of whose sums overflow: small values among some near the largest there is.
pub fn near_overflow(seed: u64, workers: u32, len: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(seed);
    let mut value = || {
        let magnitude = match numbers.below(40) {
            0 => f32::MAX,
            1 => f32::MAX * 0.9,
            2 => f32::MAX / 2.0,
            3 => f32::MAX / 5.0,
            _ => numbers.below(100) as f32,
        };
        if numbers.below(2) == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    (0..workers)
        .map(|_| (0..len).map(|_| value()).collect())
        .collect()
}

/// One worker's gradient of a step whose lists have the lengths that estimates assume: `k` entries of about the same size, as
/// many in every `workers`-th part of the bucket, and zeros. Those of a worker are in places of its own, unless all share them:
/// then give all the same `rank`.
pub fn spikes(seed: u64, (rank, workers): (u32, u32), k: usize, out: &mut [f32]) {
    out.fill(0.0);
    let mut numbers = Numbers::new(seed << 32 | u64::from(rank));
    let (parts, each) = (workers as usize, k / workers as usize);
    for part in 0..parts {
        let (start, end) = (out.len() * part / parts, out.len() * (part + 1) / parts);
        let mut left = each.min(end - start);
        while left > 0 {
            let at = start + numbers.below((end - start) as u64) as usize;
            if out[at] == 0.0 {
                let sign = if numbers.below(2) == 0 { 1.0 } else { -1.0 };
                out[at] = sign * (1.0 + numbers.below(1 << 16) as f32 / (1 << 20) as f32);
                left -= 1;
            }
        }
    }
}
