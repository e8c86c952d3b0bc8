//! The thresholds and the regions that live on from step to step, and when they are computed anew.
//!
//! All but the local threshold is replicated: it changes only with what every worker sees (k, the gathered counts), by
//! `+ - * /`, so it has the same bits everywhere without a message.

use spardl_core::{ConfigError, MethodState, Partition, list};

/// The constants of a published program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// VGG-16 on CIFAR-10.
    #[default]
    Vgg,
    /// LSTM on AN4.
    Lstm,
    /// BERT on Wikipedia.
    Bert,
}

impl Preset {
    /// All presets, by name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("vgg", Self::Vgg),
        ("lstm", Self::Lstm),
        ("bert", Self::Bert),
    ];

    pub(super) const fn bands(self) -> &'static Bands {
        match self {
            Self::Vgg => &VGG,
            Self::Lstm => &LSTM,
            Self::Bert => &BERT,
        }
    }
}

/// A fraction of k.
type OfK = (usize, usize);

/// How the thresholds follow the counts.
#[derive(Debug)]
pub(super) struct Bands {
    /// tau'.
    pub(super) exact_every: u64,
    /// tau.
    pub(super) repartition_every: u64,
    /// Above this count the local threshold is raised before it is used.
    raise_above: Option<OfK>,
    local: Band,
    global: Band,
}

/// Below `low` a threshold is divided by `down`, above `high` it is multiplied by `up`.
#[derive(Debug)]
struct Band {
    low: OfK,
    high: OfK,
    down: f32,
    up: f32,
}

impl Band {
    fn follow(&self, threshold: f32, count: usize, k: usize) -> f32 {
        if is_below(count, k, self.low) {
            threshold / self.down
        } else if is_above(count, k, self.high) {
            threshold * self.up
        } else {
            threshold
        }
    }
}

fn is_below(count: usize, k: usize, (part, whole): OfK) -> bool {
    count as u64 * (whole as u64) < k as u64 * part as u64
}

fn is_above(count: usize, k: usize, (part, whole): OfK) -> bool {
    count as u64 * whole as u64 > k as u64 * part as u64
}

/// Authors' VGG/allreducer.py and VGG/compression.py.
const VGG: Bands = Bands {
    exact_every: 32,
    repartition_every: 64,
    raise_above: Some((4, 3)),
    local: Band {
        low: (2, 3),
        high: (5, 4),
        down: 1.012,
        up: 1.012,
    },
    global: Band {
        low: (2, 3),
        high: (4, 3),
        down: 1.008,
        up: 1.008,
    },
};

/// Authors' LSTM/allreducer.py and LSTM/compression.py.
const LSTM: Bands = Bands {
    exact_every: 32,
    repartition_every: 64,
    raise_above: Some((3, 2)),
    local: Band {
        low: (3, 4),
        high: (5, 4),
        down: 1.012,
        up: 1.012,
    },
    global: Band {
        low: (3, 4),
        high: (5, 4),
        down: 1.01,
        up: 1.008,
    },
};

/// Authors' BERT/allreducer.py and BERT/compression.py.
const BERT: Bands = Bands {
    exact_every: 128,
    repartition_every: 64,
    raise_above: None,
    local: Band {
        low: (4, 5),
        high: (5, 4),
        down: 1.025,
        up: 1.025,
    },
    global: Band {
        low: (4, 5),
        high: (5, 4),
        down: 1.036,
        up: 1.025,
    },
};

/// Factor and number of the raises before a selection; authors' VGG and LSTM allreducer.py.
const RAISE: f32 = 1.03;
const RAISES: usize = 5;

/// Above this count, beyond every band, a threshold is set to the k-th largest of the entries that reached it: they are at
/// hand, and small factors would take too long.
const MANY: OfK = (3, 2);

/// The k-th largest magnitude of `values` when `count` is above [`MANY`].
fn kth_if_many(values: &[f32], count: usize, k: usize) -> Option<f32> {
    let rank = values.len().checked_sub(k)?;
    if k == 0 || !is_above(count, k, MANY) {
        return None;
    }
    let mut keys: Vec<u32> = values.iter().map(|&value| list::magnitude(value)).collect();
    Some(f32::from_bits(*keys.select_nth_unstable(rank).1))
}

/// Thresholds, regions and the time left until they are computed anew.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    bands: &'static Bands,
    exact_every: u64,
    repartition_every: u64,
    /// 0 before the first.
    local: f32,
    /// 0 before the first.
    global: f32,
    pub(super) regions: Partition,
    until_exact: u64,
    until_repartition: u64,
    /// The k of the last exact step.
    k: usize,
    /// Were the shares of the last update skewed?
    pub(super) skewed: bool,
}

impl Controller {
    pub(super) fn new(config: &super::OkTopk, workers: usize, len: u32) -> Self {
        Self {
            bands: config.preset.bands(),
            exact_every: config.exact_every,
            repartition_every: config.repartition_every,
            local: 0.0,
            global: 0.0,
            regions: Partition::even(len, workers),
            until_exact: 0,
            until_repartition: 0,
            k: 0,
            skewed: false,
        }
    }

    /// Starts a step: are its thresholds computed exactly, and its regions cut anew? The same answer on all workers.
    pub(super) fn start(&mut self, k: usize) -> (bool, bool) {
        if k == 0 {
            return (false, false);
        }
        let full = k >= self.regions.len() as usize;
        let moved = k.abs_diff(self.k) > self.k / 4;
        let exact = full || moved || self.until_exact == 0;
        let repartition = self.until_repartition == 0;
        if exact {
            self.until_exact = self.exact_every;
            self.k = k;
        }
        if repartition {
            self.until_repartition = self.repartition_every;
        }
        self.until_exact -= 1;
        self.until_repartition -= 1;
        (exact, repartition)
    }

    /// The local threshold, if there is one.
    pub(super) fn local(&self) -> Option<f32> {
        (self.local > 0.0).then_some(self.local)
    }

    /// The global threshold, if there is one.
    pub(super) fn global(&self) -> Option<f32> {
        (self.global > 0.0).then_some(self.global)
    }

    /// Raises the local threshold while too many entries reach it, as counted by `count`.
    pub(super) fn raise_local(&mut self, k: usize, count: impl Fn(f32) -> usize) {
        let Some(limit) = self.bands.raise_above else {
            return;
        };
        for _ in 0..RAISES {
            if !is_above(count(self.local), k, limit) {
                return;
            }
            self.local = usable(self.local * RAISE);
        }
    }

    /// Learns from what was selected by the local threshold.
    pub(super) fn follow_local(&mut self, selected: &[f32], k: usize) {
        let band = &self.bands.local;
        self.local = usable(match kth_if_many(selected, selected.len(), k) {
            Some(kth) => kth,
            None => band.follow(self.local, selected.len(), k),
        });
    }

    /// Takes the k-th largest magnitude of this worker as its threshold.
    pub(super) fn set_local(&mut self, threshold: f32) {
        self.local = usable(threshold);
    }

    /// Learns from an update that `gathered` entries were gathered for. After an empty one the next step is exact.
    pub(super) fn follow_global(&mut self, update: &[f32], gathered: usize, k: usize) {
        if gathered == 0 {
            self.until_exact = 0;
        }
        let band = &self.bands.global;
        self.global = usable(match kth_if_many(update, gathered, k) {
            Some(kth) => kth,
            None => band.follow(self.global, gathered, k),
        });
    }

    /// Takes the k-th largest magnitude of the sums as the threshold; without one the next step is exact again.
    pub(super) fn set_global(&mut self, threshold: Option<f32>) {
        match threshold {
            Some(threshold) => self.global = usable(threshold),
            None => self.until_exact = 0,
        }
    }

    pub(super) fn save(&self) -> MethodState {
        let bounds = (0..self.regions.blocks()).map(|region| self.regions.range(region).end as u64);
        MethodState::default()
            .with_f32("thresholds", [self.local, self.global])
            .with_u64(
                "counters",
                [
                    self.until_exact,
                    self.until_repartition,
                    self.k as u64,
                    u64::from(self.skewed),
                ],
            )
            .with_u64("boundaries", bounds.collect::<Vec<u64>>())
    }

    /// What is saved but for the threshold that each worker has for itself.
    pub(super) fn replicated(&self) -> MethodState {
        self.save().with_f32("thresholds", [self.global])
    }

    pub(super) fn load(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        let len = self.regions.len();
        let bounds = state.u64("boundaries")?;
        let cuts = bounds
            .iter()
            .map(|&cut| u32::try_from(cut).unwrap_or(u32::MAX));
        let regions = Partition::from_cuts(len, cuts)
            .filter(|regions| regions.blocks() == self.regions.blocks())
            .ok_or_else(|| {
                let expected = format!("{} ascending up to {len}", self.regions.blocks());
                mismatch("boundaries", expected, bounds)
            })?;
        let thresholds = state.f32("thresholds")?;
        let &[local, global] = thresholds else {
            return Err(mismatch("thresholds", "2 values".to_owned(), thresholds));
        };
        if ![local, global].iter().all(|t| t.is_finite() && *t >= 0.0) {
            let expected = "finite and not negative".to_owned();
            return Err(mismatch("thresholds", expected, thresholds));
        }
        let counters = state.u64("counters")?;
        let &[until_exact, until_repartition, k, skewed] = counters else {
            return Err(mismatch("counters", "4 values".to_owned(), counters));
        };
        let (exact, repartition) = (self.exact_every, self.repartition_every);
        if until_exact > exact || until_repartition > repartition || k > u64::from(u32::MAX) {
            let expected = format!("at most {exact}, {repartition} and a k of 32 bits");
            return Err(mismatch("counters", expected, counters));
        }
        (self.local, self.global, self.regions) = (local, global, regions);
        (self.until_exact, self.until_repartition) = (until_exact, until_repartition);
        (self.k, self.skewed) = (k as usize, skewed != 0);
        Ok(())
    }
}

fn mismatch<T: std::fmt::Debug>(name: &str, expected: String, got: &[T]) -> ConfigError {
    ConfigError::StateMismatch {
        what: name.to_owned(),
        expected,
        got: format!("{got:?}"),
    }
}

/// A threshold is never zero, which would select everything, nor infinite, which would select nothing for ever.
fn usable(threshold: f32) -> f32 {
    threshold.clamp(f32::MIN_POSITIVE, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::OkTopk;
    use super::*;

    #[test]
    fn a_step_is_exact_at_first_every_tau_prime_when_k_moves_and_when_full() {
        let mut controller = Controller::new(&OkTopk::default(), 3, 1000);
        assert_eq!(controller.start(0), (false, false));
        let starts: Vec<_> = (0..65).map(|_| controller.start(10)).collect();
        let exact: Vec<usize> = (0..65).filter(|&t| starts[t].0).collect();
        let repartition: Vec<usize> = (0..65).filter(|&t| starts[t].1).collect();
        assert_eq!((exact, repartition), (vec![0, 32, 64], vec![0, 64]));
        assert!(!controller.start(12).0, "a fifth more is followed");
        assert!(controller.start(13).0, "a third more is not");
        assert!(!controller.start(13).0);
        assert!(controller.start(1000).0 && controller.start(1000).0);
    }

    #[test]
    fn counters_that_no_step_leaves_behind_are_refused() {
        let mut controller = Controller::new(&OkTopk::default(), 3, 1000);
        controller.start(10);
        let saved = controller.save();
        let counters = saved.u64("counters").unwrap().to_vec();
        controller.load(&saved).unwrap();
        for (place, wrong) in [(0, 33), (1, 65), (2, 1 << 32), (2, u64::MAX)] {
            let mut damaged = counters.clone();
            damaged[place] = wrong;
            let error = controller.load(&saved.clone().with_u64("counters", damaged));
            let words = error.unwrap_err().to_string();
            assert!(
                words.contains("at most 32, 64 and a k of 32 bits"),
                "{words}"
            );
        }
        assert_eq!(controller.start(10), (false, false), "as it was");
    }

    #[test]
    fn thresholds_stay_positive_and_finite_whatever_the_counts() {
        for (_, preset) in Preset::ALL {
            let config = OkTopk {
                preset,
                ..OkTopk::default()
            };
            for count in [0, 1400] {
                let mut controller = Controller::new(&config, 2, 100_000);
                controller.set_local(1.0);
                controller.set_global(Some(1.0));
                let values = vec![f32::MAX; count];
                for _ in 0..20_000 {
                    controller.raise_local(1000, |_| count);
                    controller.follow_local(&values, 1000);
                    controller.follow_global(&values, count, 1000);
                }
                for threshold in [controller.local, controller.global] {
                    assert!(threshold.is_finite() && threshold > 0.0);
                    assert_eq!(threshold > 1.0, count > 1000);
                }
            }
        }
    }

    #[test]
    fn far_too_many_entries_set_the_threshold_to_the_kth() {
        let mut controller = Controller::new(&OkTopk::default(), 2, 1000);
        controller.set_local(1.0);
        controller.set_global(Some(1.0));
        let values: Vec<f32> = (1..=16).map(|v| v as f32).collect();
        controller.follow_local(&values[..15], 10);
        controller.follow_global(&values, 16, 10);
        assert_eq!(
            controller.local, 1.012,
            "one and a half times k is followed"
        );
        assert_eq!(controller.global, 7.0);
    }

    #[test]
    fn a_saved_state_comes_back_and_a_foreign_one_is_refused() {
        let mut controller = Controller::new(&OkTopk::default(), 3, 1000);
        controller.start(10);
        controller.set_local(0.25);
        controller.set_global(Some(0.5));
        controller.regions = Partition::from_cuts(1000, [10, 10, 1000]).unwrap();
        let state = controller.save();
        let mut other = Controller::new(&OkTopk::default(), 3, 1000);
        other.load(&state).unwrap();
        assert_eq!(other.save(), state);
        for (workers, len) in [(2, 1000), (3, 999)] {
            let mut foreign = Controller::new(&OkTopk::default(), workers, len);
            assert!(foreign.load(&state).is_err());
        }
        let negative = state.with_f32("thresholds", [-1.0, 1.0]);
        assert!(other.load(&negative).is_err());
    }
}
