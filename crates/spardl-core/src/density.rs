//! How much of a gradient an update should have.

use std::fmt;

use crate::error::ConfigError;

/// The part of the entries that an update should have, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Density(f64);

impl Density {
    /// Every entry.
    pub const ALL: Self = Self(1.0);

    /// This part of the entries.
    ///
    /// # Errors
    /// When it is not a number from 0 to 1.
    pub fn new(density: f64) -> Result<Self, ConfigError> {
        if (0.0..=1.0).contains(&density) {
            Ok(Self(density))
        } else {
            Err(ConfigError::BadDensity { density })
        }
    }

    /// The part as a number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The entries of a bucket of `len` elements: at least one, so that no bucket starves.
    pub fn entries(self, len: usize) -> usize {
        ((self.0 * len as f64) as usize).clamp(len.min(1), len)
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_is_not_empty_has_at_least_one_entry() {
        let entries = |density, len| Density::new(density).expect("a density").entries(len);
        assert_eq!(entries(0.01, 50), 1);
        assert_eq!(entries(0.0, 50), 1);
        assert_eq!(entries(0.01, 0), 0);
        assert_eq!(entries(0.01, 12_345), 123);
        assert_eq!(entries(1.0, 7), 7);
    }

    #[test]
    fn what_is_no_part_of_a_whole_is_refused() {
        for density in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
            let error = Density::new(density).expect_err("refused").to_string();
            assert!(error.contains("a number from 0 to 1"), "{error}");
        }
    }
}
