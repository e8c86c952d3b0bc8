//! The gradients of a bench, in memory before anything is timed.

use std::borrow::Cow;
use std::thread;

use spardl_sim::gradient::Synthetic;

use super::Args;

/// Samples, dealt to the workers in turn and step by step, again and again.
#[derive(Debug)]
pub(super) struct Gradients<'a> {
    samples: Cow<'a, [Vec<f32>]>,
    workers: usize,
    /// The only worker whose gradients are here.
    only: Option<usize>,
}

impl<'a> Gradients<'a> {
    /// Samples of a file; there is at least one.
    pub(super) fn recorded(samples: &'a [Vec<f32>], workers: u32) -> Self {
        Self {
            samples: Cow::Borrowed(samples),
            workers: workers as usize,
            only: None,
        }
    }

    /// Synthetic gradients of all workers or of `only` one, the same ones either way, made on all cores.
    pub(super) fn synthetic(args: &Args, workers: u32, only: Option<u32>, elements: u32) -> Self {
        let Args {
            samples,
            distribution,
            correlation,
            seed,
            ..
        } = *args;
        let family = Synthetic {
            distribution,
            correlation,
            seed,
        };
        let first = only.unwrap_or(0);
        let made = if only.is_some() { 1 } else { workers };
        let blank = |_| spardl_kernels::zeroed(elements as usize);
        let mut samples: Vec<Vec<f32>> = (0..samples * made).map(blank).collect();
        let mut jobs: Vec<(u32, &mut Vec<f32>)> = (0..).zip(&mut samples).collect();
        let cores = thread::available_parallelism().map_or(1, Into::into);
        thread::scope(|scope| {
            let share = jobs.len().div_ceil(cores);
            while !jobs.is_empty() {
                let rest = jobs.split_off(share.min(jobs.len()));
                let mine = std::mem::replace(&mut jobs, rest);
                scope.spawn(move || {
                    for (at, out) in mine {
                        family.fill(first + at % made, at / made, out);
                    }
                });
            }
        });
        Self {
            samples: Cow::Owned(samples),
            workers: workers as usize,
            only: only.map(|worker| worker as usize),
        }
    }

    /// The gradient of `worker` in `step`.
    pub(super) fn of(&self, worker: usize, step: u64) -> &[f32] {
        let at = match self.only {
            Some(only) => {
                assert_eq!(
                    worker, only,
                    "only the gradients of worker {only} were made"
                );
                step
            }
            None => step * self.workers as u64 + worker as u64,
        };
        &self.samples[(at % self.samples.len() as u64) as usize]
    }

    /// The gradients of all workers in `step`.
    pub(super) fn all(&self, step: u64) -> Vec<&[f32]> {
        (0..self.workers)
            .map(|worker| self.of(worker, step))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches};

    use super::*;

    #[test]
    fn a_worker_alone_has_the_gradients_it_has_among_others() {
        let command = Args::augment_args(clap::Command::new("bench"));
        let matches = command.get_matches_from(["bench", "--seed", "7"]);
        let args = Args::from_arg_matches(&matches).expect("arguments");
        let all = Gradients::synthetic(&args, 3, None, 50);
        let only = Gradients::synthetic(&args, 3, Some(2), 50);
        for step in 0..9 {
            assert_eq!(all.of(2, step), only.of(2, step));
        }
    }

    #[test]
    fn recorded_samples_are_dealt_in_turn() {
        let samples: Vec<Vec<f32>> = (0..5u8).map(|i| vec![f32::from(i)]).collect();
        let gradients = Gradients::recorded(&samples, 3);
        let dealt: Vec<f32> = (0..3)
            .flat_map(|step| gradients.all(step))
            .map(|sample| sample[0])
            .collect();
        assert_eq!(dealt, [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0, 3.0]);
    }
}
