//! Synthetic gradients: named distributions, seeded, correlated between workers as asked.
//!
//! Element `i` of a gradient is a pure function of (seed, worker, sample, i), so gradients can be made in any order and on
//! any number of threads with the same bits.

use std::fmt;
use std::str::FromStr;

use spardl_core::{ConfigError, Layout};

/// How the elements of a synthetic gradient are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// Independent, magnitudes with a power-law tail of index 4, as gradients of trained networks have.
    #[default]
    HeavyTailed,
    /// Heavy-tailed within layers whose scales differ over three decades: the hard case for per-block quotas.
    Layered,
    /// Independent and normal.
    Normal,
    /// Heavy-tailed, but nine in ten elements are zero, as embeddings give.
    Sparse,
}

impl Distribution {
    /// All distributions, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("heavy-tailed", Self::HeavyTailed),
        ("layered", Self::Layered),
        ("normal", Self::Normal),
        ("sparse", Self::Sparse),
    ];
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, distribution)| *distribution).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "'{text}' is not a distribution: use one of {}",
                names.join(", ")
            )
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(_, distribution)| distribution == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// A family of gradients of one length.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// How the elements are distributed.
    pub distribution: Distribution,
    /// The part of the variance that all workers share, 0 to 1.
    pub correlation: f32,
    /// The seed.
    pub seed: u64,
}

impl Synthetic {
    /// Writes gradient number `sample` of `worker` over `out`.
    pub fn fill(&self, worker: u32, sample: u32, out: &mut [f32]) {
        let own = Stream::new(self.seed, worker.wrapping_add(1), sample);
        let shared = Stream::new(self.seed, 0, sample);
        let (a, b) = (
            (1.0 - self.correlation).max(0.0).sqrt(),
            self.correlation.max(0.0).sqrt(),
        );
        for (i, value) in (0u64..).zip(out.iter_mut()) {
            *value = self.element(own, i);
            if b > 0.0 {
                *value = a * *value + b * self.element(shared, i);
            }
        }
        if self.distribution == Distribution::Layered {
            for (layer, range) in layer_ranges(out.len()).into_iter().enumerate() {
                let scale = layer_scale(self.seed, layer as u64);
                out[range].iter_mut().for_each(|value| *value *= scale);
            }
        }
    }

    fn element(&self, stream: Stream, i: u64) -> f32 {
        match self.distribution {
            Distribution::HeavyTailed | Distribution::Layered => heavy_tailed(stream.bits(i)),
            Distribution::Normal => normal(stream.bits(i)),
            Distribution::Sparse => {
                let bits = stream.bits(i);
                let kept = (bits >> 40).is_multiple_of(10);
                heavy_tailed(bits.rotate_left(17)) * f32::from(u8::from(kept))
            }
        }
    }
}

/// The layers of VGG-16 for CIFAR, 14,728,266 parameters, from the last to the first as buckets have them; other lengths
/// get layers in the same proportions.
///
/// # Errors
/// Never for a length that fits 32 bits.
pub fn layers(len: u32) -> Result<Layout, ConfigError> {
    let ranges = layer_ranges(len as usize);
    Layout::new(
        ranges
            .into_iter()
            .enumerate()
            .map(|(i, range)| (format!("layer{i}"), matrix(range.len()))),
    )
}

/// The shape of a layer: a matrix as close to a square as its length allows.
fn matrix(len: usize) -> Vec<usize> {
    let rows = (2..=len.isqrt())
        .rev()
        .find(|rows| len.is_multiple_of(*rows));
    rows.map_or(vec![len], |rows| vec![rows, len / rows])
}

/// Sizes of VGG-16's layers (weights of each convolution, then all biases and normalisations, then the classifier).
const VGG16: [u64; 15] = [
    1_728, 36_864, 73_728, 147_456, 294_912, 589_824, 589_824, 1_179_648, 2_359_296, 2_359_296,
    2_359_296, 2_359_296, 2_359_296, 12_672, 5_130,
];

fn layer_ranges(len: usize) -> Vec<std::ops::Range<usize>> {
    let total: u64 = VGG16.iter().sum();
    let mut ranges = Vec::with_capacity(VGG16.len());
    let (mut before, mut start) = (0, 0);
    for size in VGG16.iter().rev() {
        before += size;
        let end = (u128::from(before) * len as u128 / u128::from(total)) as usize;
        ranges.push(start..end);
        start = end;
    }
    ranges
}

/// A scale between 0.001 and 1, another for each layer.
fn layer_scale(seed: u64, layer: u64) -> f32 {
    let unit = Stream::new(seed, u32::MAX, 0).bits(layer) as f64 / u64::MAX as f64;
    10f64.powf(-3.0 * unit) as f32
}

/// Counter-based random bits (the finaliser of SplitMix64 over a keyed counter).
#[derive(Clone, Copy)]
struct Stream(u64);

impl Stream {
    const fn new(seed: u64, worker: u32, sample: u32) -> Self {
        Self(mix(
            mix(seed ^ 0x5eed) ^ ((worker as u64) << 32 | sample as u64)
        ))
    }

    const fn bits(self, i: u64) -> u64 {
        mix(self.0.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `u^(-1/4) - 1` with a random sign: finite variance, infinite kurtosis.
fn heavy_tailed(bits: u64) -> f32 {
    let unit = ((bits >> 40) as f32 + 1.0) / (1u32 << 24) as f32;
    let magnitude = 1.0 / unit.sqrt().sqrt() - 1.0;
    f32::from_bits(magnitude.to_bits() | ((bits as u32) & 0x8000_0000))
}

/// Nearly normal: the centred sum of four 16-bit uniforms, with its tails cut at 3.5 standard deviations.
fn normal(bits: u64) -> f32 {
    let part = |shift: u32| ((bits >> shift) & 0xffff) as f32;
    let sum = part(0) + part(16) + part(32) + part(48);
    (sum / 65536.0 - 2.0) * 3f32.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(distribution: Distribution, correlation: f32, worker: u32) -> Vec<f32> {
        let mut out = vec![0.0; 20_000];
        Synthetic {
            distribution,
            correlation,
            seed: 3,
        }
        .fill(worker, 0, &mut out);
        out
    }

    #[test]
    fn gradients_are_finite_reproducible_and_differ_between_workers() {
        for (_, distribution) in Distribution::ALL {
            let one = made(distribution, 0.0, 1);
            assert_eq!(one, made(distribution, 0.0, 1));
            assert_ne!(one, made(distribution, 0.0, 2));
            assert!(one.iter().all(|v| v.is_finite()));
        }
    }

    #[test]
    fn full_correlation_makes_all_workers_alike() {
        assert_eq!(
            made(Distribution::Normal, 1.0, 1),
            made(Distribution::Normal, 1.0, 5)
        );
    }

    #[test]
    fn layers_tile_any_length_and_are_those_of_vgg16_at_its_length() {
        for len in [0, 1, 100, 12_345, 14_728_266] {
            let layout = layers(len).unwrap();
            assert_eq!(layout.len(), len);
        }
        let layout = layers(14_728_266).unwrap();
        assert_eq!(
            layout.parts().last().map(spardl_core::algorithm::Part::len),
            Some(1_728)
        );
    }
}
