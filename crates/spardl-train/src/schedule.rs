//! The learning rate and the density as functions of the position in training.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spardl::Density;

/// Where a ramp ends unless it says.
const RAMP_TO: f64 = 0.01;

/// Between which densities time decides unless it says: below a thousandth a step brings little, above a half it costs as much as
/// a dense one.
const AUTO_BOUNDS: (f64, f64) = (0.001, 0.5);

/// How the learning rate changes: a linear warm-up, then a factor at each of some epochs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LearningRate {
    /// The rate after the warm-up.
    pub base: f64,
    /// Epochs in which the rate rises linearly to `base`.
    pub warmup_epochs: f64,
    /// Where it rises from; `base / workers` when not given.
    pub warmup_from: Option<f64>,
    /// Epochs at which the rate is multiplied by `factor`.
    pub steps: Vec<f64>,
    /// See `steps`.
    pub factor: f64,
}

impl LearningRate {
    /// The same rate throughout.
    pub const fn constant(base: f64) -> Self {
        Self {
            base,
            warmup_epochs: 0.0,
            warmup_from: None,
            steps: Vec::new(),
            factor: 0.1,
        }
    }

    /// The rate at a position in epochs, for that many workers.
    pub fn at(&self, epoch: f64, workers: u32) -> f64 {
        if epoch < self.warmup_epochs {
            let share = self.base / f64::from(workers);
            let start = self.warmup_from.unwrap_or(share);
            return start + (self.base - start) * (epoch / self.warmup_epochs);
        }
        let passed = self.steps.iter().filter(|step| epoch >= **step).count();
        // Not powi: its bits may differ between machines, and replicas on several of them must agree.
        (0..passed).fold(self.base, |rate, _| rate * self.factor)
    }
}

/// How the density changes: each density from its epoch on, in rising order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Written")]
pub struct DensitySchedule {
    stages: Vec<(f64, Density)>,
    /// Between which densities time decides.
    bounds: Option<(f64, f64)>,
}

impl DensitySchedule {
    /// The same density throughout.
    pub fn constant(density: Density) -> Self {
        Self {
            stages: vec![(0.0, density)],
            bounds: None,
        }
    }

    /// As much as fits a budget of time, between two densities; the run begins with 1 %, or what is next to it.
    ///
    /// # Errors
    /// When they are not densities above zero in rising order.
    pub fn by_time(least: f64, most: f64) -> Result<Self, String> {
        let start = RAMP_TO.max(least).min(most);
        match Density::new(start) {
            Ok(start) if 0.0 < least && least <= most && most <= 1.0 => Ok(Self {
                stages: vec![(0.0, start)],
                bounds: Some((least, most)),
            }),
            _ => Err(format!(
                "density 'auto:{least}..{most}' is not auto:LEAST..MOST with numbers above 0 from 0 to 1 in rising order"
            )),
        }
    }

    /// Between which densities time decides, if it does.
    pub const fn bounds(&self) -> Option<(f64, f64)> {
        self.bounds
    }

    /// Quarters of the density with every epoch, as in Deep Gradient Compression: 1/4, 1/16, .. and then `last`.
    pub fn ramp(last: Density) -> Self {
        let mut stages = Vec::new();
        let mut density = 0.25;
        // Four to the tenth is a million: no density in use is lower.
        while density > last.get() && stages.len() < 10 {
            let stage = Density::new(density).expect("a part of one");
            stages.push((stages.len() as f64, stage));
            density /= 4.0;
        }
        stages.push((stages.len() as f64, last));
        Self {
            stages,
            bounds: None,
        }
    }

    /// The density at a position in epochs.
    pub fn at(&self, epoch: f64) -> Density {
        let reached = self.stages.iter().rev().find(|stage| epoch >= stage.0);
        let stage = reached.or(self.stages.first());
        stage.map_or(Density::ALL, |stage| stage.1)
    }
}

/// Reads `0.01`, or `0:0.25,1:0.0625,2:0.01`: each density from its epoch on; or `ramp:0.01`, a quarter of the density before
/// with every epoch until that one is reached, and `ramp` for `ramp:0.01`; or `auto:0.001..0.5`, as much as fits a budget of time,
/// and `auto` for that.
impl FromStr for DensitySchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(bounds) = text.strip_prefix("auto") {
            return auto(bounds).unwrap_or_else(|| {
                Err(format!(
                    "density '{text}' is not auto or auto:LEAST..MOST with numbers from 0 to 1"
                ))
            });
        }
        if let Some(last) = text.strip_prefix("ramp") {
            let last = match last {
                "" => Ok(RAMP_TO),
                last => last.strip_prefix(':').unwrap_or(last).parse(),
            };
            let last = last.ok().and_then(|number| Density::new(number).ok());
            let expected = || format!("density '{text}' is not ramp:D with D from 0 to 1");
            return last.map(Self::ramp).ok_or_else(expected);
        }
        let mut stages: Vec<(f64, Density)> = Vec::new();
        for part in text.split(',') {
            let (epoch, density) = part.split_once(':').unwrap_or(("0", part));
            let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
            let density = number(density).and_then(|number| Density::new(number).ok());
            let in_order =
                |epoch: &f64| stages.last().map_or(*epoch == 0.0, |last| *epoch > last.0);
            let (Some(epoch), Some(density)) = (number(epoch).filter(in_order), density) else {
                return Err(format!(
                    "density '{part}' is not a number from 0 to 1 or EPOCH:DENSITY,.. with rising epochs from 0"
                ));
            };
            stages.push((epoch, density));
        }
        Ok(Self {
            stages,
            bounds: None,
        })
    }
}

/// What follows `auto`: nothing, or the bounds; `None` when it is something else.
fn auto(bounds: &str) -> Option<Result<DensitySchedule, String>> {
    let (least, most) = match bounds {
        "" => AUTO_BOUNDS,
        bounds => {
            let (least, most) = bounds.strip_prefix(':')?.split_once("..")?;
            (least.trim().parse().ok()?, most.trim().parse().ok()?)
        }
    };
    Some(DensitySchedule::by_time(least, most))
}

impl std::fmt::Display for DensitySchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((least, most)) = self.bounds {
            return write!(f, "auto:{least}..{most}");
        }
        match self.stages.as_slice() {
            [(_, density)] => density.fmt(f),
            stages => {
                let parts: Vec<String> = stages.iter().map(|(e, d)| format!("{e}:{d}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

impl From<DensitySchedule> for String {
    fn from(schedule: DensitySchedule) -> Self {
        schedule.to_string()
    }
}

/// A schedule in a file: text, or just a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl TryFrom<Written> for DensitySchedule {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(density) => density.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_warms_up_from_a_worker_s_share_and_drops_at_its_steps() {
        let rate = LearningRate {
            base: 0.8,
            warmup_epochs: 10.0,
            warmup_from: None,
            steps: vec![81.0, 122.0],
            factor: 0.1,
        };
        assert_eq!(rate.at(0.0, 4), 0.2);
        assert_eq!(rate.at(5.0, 4), 0.5);
        assert_eq!(rate.at(10.0, 4), 0.8);
        assert_eq!(rate.at(80.99, 4), 0.8);
        assert!((rate.at(81.0, 4) - 0.08).abs() < 1e-12);
        assert!((rate.at(500.0, 4) - 0.008).abs() < 1e-12);
        assert_eq!(LearningRate::constant(0.3).at(7.0, 8), 0.3);
        let from = LearningRate {
            warmup_from: Some(0.4),
            ..rate
        };
        assert_eq!([from.at(0.0, 4), from.at(10.0, 4)], [0.4, 0.8]);
    }

    #[test]
    fn a_density_holds_from_its_epoch_on() {
        let density: DensitySchedule = "0:0.25, 1:0.0625, 2.5:0.01".parse().expect("valid");
        let at = [0.0, 0.99, 1.0, 2.49, 2.5, 100.0].map(|epoch| density.at(epoch).get());
        assert_eq!(at, [0.25, 0.25, 0.0625, 0.0625, 0.01, 0.01]);
        assert_eq!(density.to_string(), "0:0.25,1:0.0625,2.5:0.01");
        let constant = DensitySchedule::constant(Density::new(0.01).expect("a density"));
        assert_eq!("0.01".parse(), Ok(constant.clone()));
        for written in ["0.01", "\"0.01\""] {
            let read: DensitySchedule = serde_json::from_str(written).expect("valid");
            assert_eq!(read, constant);
        }
    }

    #[test]
    fn a_ramp_quarters_the_density_with_every_epoch() {
        let ramp = |text: &str| text.parse::<DensitySchedule>().expect(text).to_string();
        assert_eq!(ramp("ramp"), "0:0.25,1:0.0625,2:0.015625,3:0.01");
        assert_eq!(ramp("ramp:0.05"), "0:0.25,1:0.0625,2:0.05");
        assert_eq!(ramp("ramp:0.5"), "0.5");
        assert_eq!(ramp(&ramp("ramp")), ramp("ramp"));
    }

    #[test]
    fn a_density_by_time_has_bounds_and_comes_back_as_it_was_written() {
        let auto: DensitySchedule = "auto".parse().expect("valid");
        assert_eq!(auto.bounds(), Some((0.001, 0.5)));
        assert_eq!(auto.at(3.0).get(), 0.01);
        let between: DensitySchedule = "auto:0.02..0.3".parse().expect("valid");
        assert_eq!(between.bounds(), Some((0.02, 0.3)));
        assert_eq!(between.at(0.0).get(), 0.02);
        assert_eq!(between.to_string().parse(), Ok(between));
        assert_eq!(
            "0.01".parse().map(|d: DensitySchedule| d.bounds()),
            Ok(None)
        );
    }

    #[test]
    fn a_density_that_is_none_is_refused_with_what_was_expected() {
        for text in [
            "",
            "x",
            "1.5",
            "-0.1",
            "nan",
            "1:0.1",
            "0:0.1,0:0.2",
            "0:0.1,x:0.2",
            "ramp:2",
            "ramp:",
            "automatic",
            "auto:0.1",
            "auto:0.5..0.1",
            "auto:0..0.1",
            "auto:0.1..2",
        ] {
            let error = text.parse::<DensitySchedule>().expect_err(text);
            assert!(error.contains("from 0 to 1"), "{error}");
        }
    }
}
