//! Gaussiank (Shi et al., "Understanding Top-k Sparsification in Distributed Deep Learning", 2019): a threshold from mean and
//! deviation in place of an exact top-k.
//!
//! The idea: if the elements were normally distributed, those of magnitude above `mean + z * deviation` with
//! `z = Phi^-1(1 - density/2)` would be about k. Each worker computes its own threshold, corrects it a few times when the count
//! is off, and sends what lies above; all lists are gathered and added in rank order as in TopkA.
//!
//! Words: *density* = k/n; a *correction* divides the threshold when the count is too low (multiplies it when too high, preset
//! vgg only). Presets are those of the published programs: *vgg* (default) up to 20 steps of 1.02 into 3k/4..5k/4; *lstm* up to
//! 50 steps of 1.012 down to 3k/4; *bert* up to 20 steps of 1.012 down to 5k/6, only when the first count is below 3k/4. *paper*
//! is the coarser loop of the paper's own authors: up to five counts, after each of which the threshold is halved below 2k/3 or
//! made half as large again above 4k/3.
//!
//! Example, 5 workers, n = 8, k = 2, so z = 1.15. Worker 0 has (0 6 0 1 -1 0 0 2): mean 1, deviation 2.2, threshold 3.54, it
//! sends {1:6}; one entry is not below 3k/4 = 1. Worker 1 has 3 everywhere: deviation 0, nothing lies strictly above 3; one
//! correction later all eight do, and 4k = 8 may be sent. The others have zeros and send nothing. The update is 3 everywhere
//! but for the 9 at index 1.
//!
//! Rounds: ceil(log2 P). Bytes: at most 4 k (P - 1) entries per worker, about k (P - 1) when the threshold is right.
//!
//! Local work: besides the pass, mean and deviation read the array once more; it is what the method needs. The counts of the
//! corrections look only at the candidates of the pass, which goes somewhat below the last step's lowest threshold; the
//! array is scanned again only when a threshold falls below that.
//!
//! Limitations: gradients have heavier tails than a normal distribution, so the count can be far from k. The mean is added
//! although magnitudes are compared: negating the input may change the selection. The update has up to 4 k P entries.
//!
//! Differs from the authors' code: at most 4k entries are sent, the largest (the paper's authors send the first k that they find,
//! by index, so that late elements wait); when nothing is selected and the input is not zero, the
//! k largest are; k >= n sends everything, k = 0 nothing. One all-gather of lists instead of three (counts, indices, values).
//! The quantile is Acklam's rational approximation (relative error 1.2e-9); it and the threshold may use `ln`, since each
//! worker's threshold is its own and need not agree with any other.

mod normal;
mod preset;

use crate::Options;
use crate::list_gather::{self, Deliver, Select, Worker};
use crate::registry::Entry;
use crate::usual::Length;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, Input, Laws, Layout, Machine,
    Selector, Support, ValueType, World,
};

use normal::{moments, upper_quantile};
pub use preset::Preset;
use preset::{COARSE_COUNTS, coarse_move};

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "gaussian-k",
    summary: "what exceeds a threshold from mean and deviation, gathered by all and summed",
    options: &[(
        "preset",
        "vgg, lstm, bert, paper: how the threshold is corrected when the count is off",
    )],
    source: include_str!("mod.rs"),
    variants: |_| {
        Options::variants(&[
            &[("preset", "lstm")],
            &[("preset", "bert")],
            &[("preset", "paper")],
        ])
    },
    build: |options| Ok(Box::new(GaussianK::from_options(options)?)),
};

/// All-gather of every worker's entries above its own threshold.
#[derive(Clone, Copy, Debug, Default)]
pub struct GaussianK {
    /// How entries travel.
    pub codec: Codec,
    /// How the threshold is corrected.
    pub preset: Preset,
}

impl GaussianK {
    /// Gaussiank with the options that concern it.
    ///
    /// # Errors
    /// When `preset` is not one.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let parse = |name: &str| {
            Preset::ALL
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, p)| *p)
        };
        let preset = options.parsed(
            "gaussian-k",
            "preset",
            Preset::default(),
            "vgg, lstm, bert or paper",
            parse,
        )?;
        Ok(Self {
            codec: options.codec,
            preset,
        })
    }
}

impl Algorithm for GaussianK {
    fn name(&self) -> &'static str {
        "gaussian-k"
    }

    fn describe(&self) -> String {
        let (preset, values) = (self.preset.name(), self.codec);
        format!("gaussian-k preset={preset} values={values}")
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let select = Threshold::new(self.preset);
        let worker = Worker::new(world, layout.len(), self.codec, Deliver::Whole, select);
        Ok(Box::new(worker))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let most = Threshold::new(self.preset).most(k, len);
        list_gather::cost(Length::Most, self.codec, workers, len, most)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let len = layout.len();
        list_gather::cost(Length::Usual, self.codec, workers, len, k.min(len as usize)).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::FourKPerWorker,
            ..Laws::default()
        }
    }
}

/// Selection above `mean + z * deviation`.
#[derive(Debug)]
struct Threshold {
    preset: Preset,
    /// The lowest threshold of the last step, to guess how low the next pass must go; it never changes a result.
    lowest: f32,
}

impl Threshold {
    const fn new(preset: Preset) -> Self {
        Self {
            preset,
            lowest: 0.0,
        }
    }

    fn pass(&self, selector: &mut Selector, feedback: &mut Feedback, input: Input<'_>) {
        if self.lowest > 0.0 && self.lowest.is_finite() {
            selector.pass_above(feedback, input.gradient, &[self.lowest * REACH]);
        } else {
            selector.pass(feedback, input.gradient, &[input.k]);
        }
    }

    /// The corrected threshold: strictly above it lie the entries to send.
    fn corrected(&mut self, selector: &mut Selector, work: &[f32], k: usize) -> f32 {
        let (mean, deviation) = moments(work);
        let mut threshold = mean + upper_quantile(k as f64 / work.len() as f64 / 2.0) * deviation;
        let Some(loops) = self.preset.correction(k) else {
            return self.coarsely_corrected(selector, work, k, threshold);
        };
        let first = count(selector, work, threshold);
        self.lowest = threshold as f32;
        if first < loops.too_few {
            let mut now = first;
            for _ in 0..loops.steps {
                if now >= loops.enough {
                    break;
                }
                threshold /= loops.step;
                now = count(selector, work, threshold);
            }
            self.lowest = threshold as f32;
        } else if first > loops.too_many {
            let mut now = first;
            for _ in 0..loops.steps {
                if now <= loops.too_many {
                    break;
                }
                threshold *= loops.step;
                now = count(selector, work, threshold);
            }
        }
        threshold as f32
    }

    /// The paper's loop. Its last count is what is sent, whatever it is.
    fn coarsely_corrected(
        &mut self,
        selector: &mut Selector,
        work: &[f32],
        k: usize,
        mut threshold: f64,
    ) -> f32 {
        self.lowest = threshold as f32;
        for _ in 1..COARSE_COUNTS {
            let Some(factor) = coarse_move(count(selector, work, threshold), k) else {
                break;
            };
            threshold *= factor;
            self.lowest = self.lowest.min(threshold as f32);
        }
        threshold as f32
    }
}

/// A pass or a scan goes to this part of the threshold it is for, so that small moves need no other.
const REACH: f32 = 0.9;

impl Select for Threshold {
    fn most(&self, k: usize, len: u32) -> usize {
        k.saturating_mul(4).min(len as usize)
    }

    fn select(
        &mut self,
        selector: &mut Selector,
        feedback: &mut Feedback,
        input: Input<'_>,
        values: ValueType,
    ) -> Entries {
        let (k, len) = (input.k, feedback.len());
        let mut own = Entries::default();
        if k == 0 || k >= len {
            selector.pass(feedback, input.gradient, &[k]);
            selector.take_top(0, feedback.work(), k, values, &mut own);
            return own;
        }
        self.pass(selector, feedback, input);
        let work = feedback.work();
        let threshold = strictly_above(self.corrected(selector, work, k));
        let most = self.most(k, len as u32);
        selector.take_above(0, work, threshold, most, values, &mut own);
        if own.is_empty() {
            selector.take_top(0, work, k, values, &mut own);
        }
        own
    }
}

/// How many magnitudes exceed the threshold.
fn count(selector: &mut Selector, work: &[f32], threshold: f64) -> usize {
    let least = strictly_above(threshold as f32);
    if least < selector.floor(0) {
        selector.reach(0, work, least * REACH);
    }
    selector.count_above(0, least)
}

/// The least magnitude that exceeds the threshold; 0 (every non-zero) when all do.
fn strictly_above(threshold: f32) -> f32 {
    if threshold >= 0.0 {
        threshold.next_up()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use spardl_sim::Cluster;
    use spardl_testkit::{check, generate};

    use super::*;

    #[test]
    fn the_example_of_the_header_comes_out() {
        let mut inputs = vec![vec![0.0; 8]; 5];
        inputs[0] = vec![0.0, 6.0, 0.0, 1.0, -1.0, 0.0, 0.0, 2.0];
        inputs[1] = vec![3.0; 8];
        let mut cluster = Cluster::new(&GaussianK::default(), 5, &Layout::flat(8)).unwrap();
        cluster.step(&inputs, 2, 0).unwrap();
        let update = check::agreed(cluster.workers(), "gaussian-k");
        assert_eq!(update, [3.0, 9.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
    }

    /// The selection by the published loops, each count over the whole array.
    fn published(values: &[f32], k: usize, preset: Preset) -> Vec<usize> {
        let (mean, deviation) = moments(values);
        let mut threshold = mean + upper_quantile(k as f64 / values.len() as f64 / 2.0) * deviation;
        let above = |threshold: f64| {
            let exceeds = |i: &usize| values[*i].abs() > threshold as f32;
            (0..values.len()).filter(exceeds).collect::<Vec<_>>()
        };
        let mut selected = above(threshold);
        let Some(loops) = preset.correction(k) else {
            // Counted, then moved, five times; the fifth move has no effect any more.
            let mut loops = 0;
            while loops < 5 {
                selected = above(threshold);
                if (selected.len() as f64) < 2.0 * k as f64 / 3.0 {
                    threshold *= 0.5;
                } else if selected.len() as f64 > 4.0 * k as f64 / 3.0 {
                    threshold *= 1.5;
                } else {
                    break;
                }
                loops += 1;
            }
            return selected;
        };
        let down = selected.len() < loops.too_few;
        let up = selected.len() > loops.too_many;
        for _ in 0..loops.steps {
            if down && selected.len() < loops.enough {
                threshold /= loops.step;
            } else if up && selected.len() > loops.too_many {
                threshold *= loops.step;
            }
            selected = above(threshold);
        }
        selected
    }

    #[test]
    fn counting_candidates_selects_what_counting_everything_does() {
        let (len, k) = (20_000, 200);
        for (_, preset) in Preset::ALL {
            let mut select = Threshold::new(preset);
            let mut selector = Selector::new(spardl_core::Partition::even(len, 1));
            for seed in 0..6 {
                // Scales change from step to step, so that the guessed reach is too low and too high.
                let scale = [1.0, 1.0, 8.0, 8.0, 0.1, 0.1][seed as usize];
                let mut gradient = generate::fractions(seed, 1, len as usize).swap_remove(0);
                gradient
                    .iter_mut()
                    .for_each(|v| *v = scale * v.abs().sqrt().copysign(*v));
                let expected = published(&gradient, k, preset);
                assert!((1..4 * k).contains(&expected.len()), "{}", expected.len());
                let mut feedback = Feedback::new(len as usize);
                let input = Input::new(&gradient, k, seed);
                let own = select.select(&mut selector, &mut feedback, input, ValueType::F32);
                let got: Vec<usize> = own.indices.iter().map(|&i| i as usize).collect();
                assert_eq!(got, expected, "{preset:?} step {seed}");
                assert!(selector.stats().rescans <= 6, "{:?}", selector.stats());
            }
        }
    }

    #[test]
    fn an_empty_selection_falls_back_and_a_large_one_is_capped() {
        let cases: [(Vec<f32>, usize); 3] = [
            // A single outlier in preset bert: the deviation is dominated by it.
            (
                (0..100).map(|i| if i == 7 { 1e6 } else { 1.0 }).collect(),
                1,
            ),
            (vec![-5.0; 100], 40),
            (vec![0.0; 100], 0),
        ];
        for (gradient, count) in cases {
            let mut cluster = Cluster::new(&GaussianK::default(), 1, &Layout::flat(100)).unwrap();
            cluster.step(&[gradient], 10, 0).unwrap();
            assert_eq!(cluster.workers()[0].update().nnz(), count);
        }
    }
}
