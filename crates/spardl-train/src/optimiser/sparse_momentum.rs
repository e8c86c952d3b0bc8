//! Momentum hand-over: how much momentum is left to the optimiser while mass waits in the residual.
//!
//! Mass that waits is delivered late, which is what momentum does too. Both together are too much of it. So the optimiser keeps
//! just the momentum that is missing. Gradient descent finds it for every element by itself (`by_wait.rs`). Adam, whose step is
//! not in proportion to what is delivered, takes one number for all: with a first moment of `m` a gradient acts `m / (1 - m)`
//! steps late on average, and mass of which a part `d` leaves in a step `(1 - d) / d` steps late; the difference is left to it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The momentum of steps that hold mass back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Written")]
pub enum SparseMomentum {
    /// What waiting does not do by itself: all where nothing waited, none after long waits.
    #[default]
    Auto,
    /// This much.
    Fixed(f32),
}

impl SparseMomentum {
    /// The momentum that all elements have in a step of this density, where that of a dense step is `momentum`.
    pub fn at(self, momentum: f32, density: f64) -> f32 {
        match self {
            _ if density >= 1.0 => momentum,
            Self::Fixed(fixed) => fixed,
            Self::Auto => {
                let of_momentum = f64::from(momentum) / (1.0 - f64::from(momentum));
                let of_residual = (1.0 - density) / density;
                let rest = of_momentum - of_residual;
                // A density of zero delivers nothing: there is no momentum to choose.
                if rest > 0.0 {
                    (rest / (1.0 + rest)) as f32
                } else {
                    0.0
                }
            }
        }
    }
}

impl FromStr for SparseMomentum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().ok().filter(|x| (0.0..1.0).contains(x));
        let expected = || format!("'{text}' is neither auto nor a number from 0 to below 1");
        number.map(Self::Fixed).ok_or_else(expected)
    }
}

impl fmt::Display for SparseMomentum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(fixed) => fixed.fmt(f),
        }
    }
}

impl From<SparseMomentum> for String {
    fn from(momentum: SparseMomentum) -> Self {
        momentum.to_string()
    }
}

/// In a file: a word, or just a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl TryFrom<Written> for SparseMomentum {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_residual_takes_the_place_of_momentum_and_a_dense_step_keeps_it() {
        let auto = |density| SparseMomentum::Auto.at(0.9, density);
        assert_eq!(auto(1.0), 0.9);
        assert_eq!([auto(0.1), auto(0.01), auto(0.0)], [0.0; 3]);
        // Momentum 0.9 is 9 steps late, a density of 1/4 makes 3 of them: 6 are left.
        assert!((auto(0.25) - 6.0 / 7.0).abs() < 1e-6);
        assert_eq!(SparseMomentum::Auto.at(0.0, 0.5), 0.0);
        let half = SparseMomentum::Fixed(0.5);
        assert_eq!((half.at(0.9, 0.01), half.at(0.9, 1.0)), (0.5, 0.9));
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["auto", "0.5", "0"] {
            let read: SparseMomentum = text.parse().expect("valid");
            assert_eq!(read.to_string(), text);
        }
        let number: SparseMomentum = serde_json::from_str("0.5").expect("a number");
        assert_eq!(number, SparseMomentum::Fixed(0.5));
        for text in ["1", "-0.1", "nan", "none", ""] {
            let error = text.parse::<SparseMomentum>().expect_err(text);
            assert!(error.contains("from 0 to below 1"), "{error}");
        }
    }
}
