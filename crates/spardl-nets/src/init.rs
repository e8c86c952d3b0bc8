//! The first values of the parameters: a function of the seed, the name and the shape.
//!
//! Every parameter has its own ChaCha stream, keyed by its name, and the logarithms and cosines come from a portable
//! library, so that the bits are equal in every thread and on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All equal.
    Constant(f32),
    /// Uniform between minus and plus this bound.
    Uniform(f64),
    /// Normal with this standard deviation.
    Normal(f64),
}

/// What is known about a parameter when it gets its first values.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its dotted name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How many inputs an output of its layer has; a bias has that of the weight before it.
    pub fan_in: usize,
}

impl Site {
    /// Does the name end so?
    pub fn is(&self, ending: &str) -> bool {
        self.name.ends_with(ending)
    }

    /// How many outputs an input of a convolution's layer has.
    pub fn fan_out(&self) -> usize {
        match self.shape[..] {
            [outputs, _, rows, columns] => outputs * rows * columns,
            [_, outputs] => outputs,
            _ => 1,
        }
    }
}

/// As PyTorch does by default: uniform within one over the square root of the inputs; normalisation layers begin as identity.
pub fn usual(site: &Site) -> Init {
    if site.is("gamma") {
        Init::Constant(1.0)
    } else if site.is("beta") {
        Init::Constant(0.0)
    } else {
        Init::Uniform((1.0 / site.fan_in as f64).sqrt())
    }
}

/// He et al. for networks of convolutions and ReLU: normal, as wide as the outputs ask for; the rest as usual.
pub fn kaiming(site: &Site) -> Init {
    if site.shape.len() == 4 {
        Init::Normal((2.0 / site.fan_out() as f64).sqrt())
    } else {
        usual(site)
    }
}

/// The first values of the parameter at `site`, which begins as `init` says.
pub fn draw(init: Init, seed: u64, site: &Site) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(hash(&site.name));
    let len = site.shape.iter().product();
    match init {
        Init::Constant(value) => vec![value; len],
        Init::Uniform(bound) => (0..len)
            .map(|_| (bound * (2.0 * unit(&mut generator) - 1.0)) as f32)
            .collect(),
        Init::Normal(deviation) => normal(&mut generator, deviation, len),
    }
}

/// Box and Muller: two uniform numbers make two normal ones.
fn normal(generator: &mut ChaCha8Rng, deviation: f64, len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len + 1);
    while values.len() < len {
        let radius = deviation * libm::sqrt(-2.0 * libm::log(unit(generator)));
        let (sine, cosine) = libm::sincos(std::f64::consts::TAU * unit(generator));
        values.push((radius * cosine) as f32);
        values.push((radius * sine) as f32);
    }
    values.truncate(len);
    values
}

/// Uniform between 0 and 1, both excluded.
fn unit(generator: &mut ChaCha8Rng) -> f64 {
    (f64::from(generator.next_u32()) + 0.5) / 4_294_967_296.0
}

/// FNV-1a: names are few, they only must not meet.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, len: usize) -> Site {
        Site {
            name: name.to_owned(),
            shape: vec![len],
            fan_in: 1,
        }
    }

    #[test]
    fn a_name_and_a_seed_give_one_stream() {
        let draw_4 = |seed, name| draw(Init::Uniform(1.0), seed, &site(name, 4));
        assert_eq!(draw_4(1, "conv.weight"), draw_4(1, "conv.weight"));
        assert_ne!(draw_4(1, "conv.weight"), draw_4(2, "conv.weight"));
        assert_ne!(draw_4(1, "conv.weight"), draw_4(1, "conv.bias"));
    }

    #[test]
    fn normal_values_have_the_deviation_asked_for() {
        let values = draw(Init::Normal(0.5), 3, &site("x", 100_001));
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 100_001.0;
        let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 100_001.0;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((square.sqrt() - 0.5).abs() < 0.01, "{square}");
    }
}
