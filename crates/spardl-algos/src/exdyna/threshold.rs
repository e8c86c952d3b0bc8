//! The threshold that all workers share: how it starts and how it follows the number of selected entries.
//!
//! Every worker computes it from the same numbers by `+ - * / sqrt` alone, so it has the same bits everywhere.

use std::fmt;
use std::str::FromStr;

/// The shared threshold and how strongly it is corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Threshold {
    /// The least magnitude selected; `None` until there is data.
    pub(super) value: Option<f32>,
    /// How often the corrections from outside the band are halved (in the exponent).
    halvings: u32,
    /// Was the last correction from outside the band upwards, and how many were so in a row?
    up: bool,
    run: u64,
}

/// Corrections are halved at most so often: then a factor of 2 has become 1.011.
const MOST_HALVINGS: u32 = 6;

impl Threshold {
    /// Follows a step that selected `selected` entries of a target of `k`; never 0, never infinite.
    ///
    /// A residual piles up just below the threshold, so a small change of it can change the number of entries a lot, and the
    /// corrected rule by itself may swing over the band for ever (after a tenfold drop of the gradients it did). So each time
    /// a correction from outside the band reverses the one before, it is halved; from the third in a row on, doubled.
    pub(super) fn follow(&mut self, controller: Controller, selected: u64, k: usize) {
        let Some(value) = self.value else { return };
        let ratio = selected as f32 / k as f32;
        let mut factor = controller.factor(ratio);
        if controller.leaps(ratio) {
            let up = factor > 1.0;
            if up != self.up && self.run > 0 {
                self.halvings = (self.halvings + 1).min(MOST_HALVINGS);
                self.run = 0;
            } else if self.run >= 2 {
                self.halvings = self.halvings.saturating_sub(1);
            }
            self.up = up;
            self.run = self.run.saturating_add(1);
            for _ in 0..self.halvings {
                factor = factor.sqrt();
            }
        }
        self.value = Some((value * factor).clamp(f32::MIN_POSITIVE, f32::MAX));
    }

    /// The state as numbers: the value if there is one; halvings, direction and run.
    pub(super) fn save(&self) -> (Vec<f32>, Vec<u64>) {
        let damping = vec![self.halvings.into(), self.up.into(), self.run];
        (self.value.into_iter().collect(), damping)
    }

    /// Takes back what [`Threshold::save`] gave; `None` when it cannot have come from there.
    pub(super) fn load(value: &[f32], damping: &[u64]) -> Option<Self> {
        let value = match value {
            [] => None,
            [one] if one.is_finite() && *one > 0.0 => Some(*one),
            _ => return None,
        };
        let &[halvings, up @ (0 | 1), run] = damping else {
            return None;
        };
        let halvings = u32::try_from(halvings).ok()?;
        (halvings <= MOST_HALVINGS).then_some(Self {
            value,
            halvings,
            up: up == 1,
            run,
        })
    }
}

/// How the threshold follows the number of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controller {
    /// Small steps inside the band of half to twice the target, in the direction of the target; outside it the ratio itself.
    #[default]
    Corrected,
    /// The authors' code: small steps only, and inside 0.909 to 1.1 of the target always up.
    Published,
}

/// Where the threshold starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the mean of the workers' k-th largest magnitudes, one small gather.
    #[default]
    Data,
    /// At 1 / (2 sqrt k), whatever the data (the authors' code).
    Published,
}

impl Controller {
    /// What the threshold is multiplied by when the last step selected `ratio` times the target.
    fn factor(self, ratio: f32) -> f32 {
        // The four factors and the limits 1.1 and 0.909: authors' gradient_reducers.py:772-788.
        match self {
            _ if self.leaps(ratio) => ratio.clamp(0.5, 2.0),
            _ if ratio > 1.1 => 1.005,
            _ if ratio <= 0.909 => 0.995,
            Self::Corrected if ratio <= 1.0 => 0.9987,
            _ => 1.00125,
        }
    }

    /// Is the ratio outside the band in which small steps are taken?
    fn leaps(self, ratio: f32) -> bool {
        self == Self::Corrected && !(0.5..=2.0).contains(&ratio)
    }
}

impl Start {
    /// The published start.
    pub(super) fn published(k: usize) -> f32 {
        1.0 / (2.0 * (k as f32).sqrt())
    }

    /// The start from every worker's k-th largest magnitude, in rank order; `None` when all are zero.
    pub(super) fn agreed(levels: &[f32]) -> Option<f32> {
        let (mut sum, mut count) = (0.0f64, 0u32);
        for &level in levels {
            if level.is_finite() && level > 0.0 {
                sum += f64::from(level);
                count += 1;
            }
        }
        (count > 0).then(|| ((sum / f64::from(count)) as f32).clamp(f32::MIN_POSITIVE, f32::MAX))
    }
}

impl FromStr for Controller {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "corrected" => Ok(Self::Corrected),
            "published" => Ok(Self::Published),
            _ => Err(format!(
                "'{text}' is not a controller: use corrected or published"
            )),
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrected => "corrected",
            Self::Published => "published",
        })
    }
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "data" => Ok(Self::Data),
            "published" => Ok(Self::Published),
            _ => Err(format!("'{text}' is not a start: use data or published")),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Published => "published",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: usize = 1000;

    fn started(value: f32) -> Threshold {
        Threshold {
            value: Some(value),
            ..Threshold::default()
        }
    }

    /// Mean of selected / k over the second half of `steps` on a population with count(threshold) = 1e6 exp(-threshold) and
    /// 2 % of noise: the oracle `threshold_loop` of the reference simulation.
    fn mean_ratio(controller: Controller, steps: u32) -> f64 {
        let (mut threshold, mut noise, mut sum) = (started(6.9), 1u64, 0.0);
        for step in 0..steps {
            let mut uniform = || {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (noise >> 40) as f64 / f64::from(1u32 << 24)
            };
            let normal: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            let value = f64::from(threshold.value.unwrap());
            let count = (1e6 * (-value).exp() * (0.02 * normal).exp()) as u64;
            sum += if step >= steps / 2 { count as f64 } else { 0.0 };
            threshold.follow(controller, count.max(1), K);
        }
        sum / f64::from(steps / 2) / K as f64
    }

    #[test]
    fn the_corrected_controller_meets_the_target_and_the_published_one_stays_below() {
        let corrected = mean_ratio(Controller::Corrected, 6000);
        assert!((corrected - 1.0).abs() < 0.02, "{corrected}");
        let published = mean_ratio(Controller::Published, 6000);
        assert!((published - 0.93).abs() < 0.02, "{published}");
    }

    #[test]
    fn factors_are_the_published_ones_with_the_dead_branch_mended() {
        let (corrected, published) = (Controller::Corrected, Controller::Published);
        for (selected, mended, original) in [
            (0, 0.5, 0.995),
            (300, 0.5, 0.995),
            (600, 0.995, 0.995),
            (950, 0.9987, 1.00125),
            (1050, 1.00125, 1.00125),
            (1500, 1.005, 1.005),
            (2500, 2.0, 1.005),
        ] {
            let ratio = selected as f32 / K as f32;
            assert_eq!(corrected.factor(ratio), mended, "{selected}");
            assert_eq!(published.factor(ratio), original, "{selected}");
        }
    }

    #[test]
    fn a_threshold_is_never_zero_or_infinite() {
        let (mut low, mut high) = (started(1.0), started(1.0));
        for _ in 0..400 {
            low.follow(Controller::Corrected, 0, K);
            high.follow(Controller::Corrected, 1 << 40, K);
        }
        assert_eq!(low.value, Some(f32::MIN_POSITIVE));
        assert_eq!(high.value, Some(f32::MAX));
        assert_eq!(Start::agreed(&[0.0, 0.0]), None);
        assert_eq!(Start::agreed(&[0.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn a_swing_over_the_band_is_damped_and_a_long_way_is_not() {
        // A pile just below 1: above it nothing is found, below it ten times too much.
        let mut swinging = started(1.1);
        let mut values = Vec::new();
        for _ in 0..40 {
            let value = swinging.value.unwrap();
            swinging.follow(
                Controller::Corrected,
                if value > 1.0 { 0 } else { 10_000 },
                K,
            );
            values.push(value);
        }
        assert!(
            values[20..]
                .iter()
                .all(|value| (0.97..1.03).contains(value)),
            "{values:?}"
        );
        // Then everything grows by a thousand.
        for _ in 0..20 {
            swinging.follow(Controller::Corrected, 50_000, K);
        }
        assert!(swinging.value.unwrap() > 1000.0);
        let (value, damping) = swinging.save();
        assert_eq!(Threshold::load(&value, &damping), Some(swinging));
        assert_eq!(Threshold::load(&[0.0], &damping), None);
        assert_eq!(Threshold::load(&value, &[99, 0, 1]), None);
    }
}
