//! Dropout whose masks are a function of a seed.
//!
//! burn's own dropout draws from a generator that all threads share, so that a step could not be repeated. Here the mask of
//! the n-th dropout layer of a pass is the n-th ChaCha stream of the seed.

use std::cell::Cell;

use burn::tensor::{Tensor, TensorData};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The random numbers of one pass.
pub(crate) struct Noise {
    seed: Option<u64>,
    layer: Cell<u64>,
}

impl Noise {
    /// For a training pass.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            layer: Cell::new(0),
        }
    }

    /// For a pass as in use: nothing is dropped.
    pub(crate) fn none() -> Self {
        Self {
            seed: None,
            layer: Cell::new(0),
        }
    }

    /// Sets each element to zero with probability `rate` and scales the others up, so that the mean stays.
    pub(crate) fn drop<const D: usize>(&self, x: Tensor<D>, rate: f64) -> Tensor<D> {
        let Some(seed) = self.seed else { return x };
        let layer = self.layer.replace(self.layer.get() + 1);
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(layer);
        let shape = x.shape();
        let mask = mask(&mut generator, shape.num_elements(), rate);
        let device = x.device();
        x * Tensor::from_data(TensorData::new(mask, shape), &device)
    }
}

fn mask(generator: &mut ChaCha8Rng, len: usize, rate: f64) -> Vec<f32> {
    let limit = (rate * 65536.0) as u16;
    let keep = (1.0 / (1.0 - f64::from(limit) / 65536.0)) as f32;
    let mut random = vec![0u8; 2 * len];
    generator.fill_bytes(&mut random);
    random
        .chunks_exact(2)
        .map(|pair| {
            let kept = u16::from_le_bytes([pair[0], pair[1]]) >= limit;
            if kept { keep } else { 0.0 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn dropped(noise: &Noise, rate: f64) -> Vec<f32> {
        let x = Tensor::<2>::ones([100, 50], &Device::flex());
        noise.drop(x, rate).into_data().try_to_vec().unwrap()
    }

    #[test]
    fn the_same_seed_drops_the_same_elements_and_layers_differ() {
        let (a, b) = (Noise::seeded(7), Noise::seeded(7));
        let (first, second) = (dropped(&a, 0.5), dropped(&a, 0.5));
        assert_eq!(first, dropped(&b, 0.5));
        assert_ne!(first, second);
        assert_ne!(first, dropped(&Noise::seeded(8), 0.5));
    }

    #[test]
    fn the_mean_stays_and_the_rate_is_met() {
        let values = dropped(&Noise::seeded(1), 0.2);
        let zeros = values.iter().filter(|&&value| value == 0.0).count();
        assert!((900..1100).contains(&zeros), "{zeros}");
        let mean = values.iter().sum::<f32>() / 5000.0;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn nothing_is_dropped_without_a_seed() {
        assert!(
            dropped(&Noise::none(), 0.5)
                .iter()
                .all(|&value| value == 1.0)
        );
    }
}
