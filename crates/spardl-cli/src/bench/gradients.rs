//! The gradients of a bench: four per worker, made before anything is timed.

use std::thread;

use spardl_sim::gradient::Synthetic;

use super::Args;

/// Gradients per worker; iterations cycle through them.
const SAMPLES: u32 = 4;

/// All gradients, by worker and sample.
#[derive(Debug)]
pub(super) struct Gradients {
    samples: Vec<Vec<Vec<f32>>>,
}

impl Gradients {
    /// Synthetic gradients as the arguments say, made on all cores.
    pub(super) fn synthetic(args: &Args, workers: u32, elements: u32) -> Self {
        let Args {
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
        let mut samples =
            vec![vec![vec![0.0; elements as usize]; SAMPLES as usize]; workers as usize];
        let mut jobs: Vec<(u32, u32, &mut Vec<f32>)> = Vec::new();
        for (worker, samples) in (0..).zip(&mut samples) {
            for (sample, out) in (0..).zip(samples) {
                jobs.push((worker, sample, out));
            }
        }
        let cores = thread::available_parallelism().map_or(1, Into::into);
        thread::scope(|scope| {
            let share = jobs.len().div_ceil(cores);
            while !jobs.is_empty() {
                let rest = jobs.split_off(share.min(jobs.len()));
                let mine = std::mem::replace(&mut jobs, rest);
                scope.spawn(move || {
                    for (worker, sample, out) in mine {
                        family.fill(worker, sample, out);
                    }
                });
            }
        });
        Self { samples }
    }

    /// The gradient of `worker` in `step`.
    pub(super) fn of(&self, worker: usize, step: u64) -> &[f32] {
        let samples = &self.samples[worker];
        &samples[(step % samples.len() as u64) as usize]
    }

    /// The gradients of all workers in `step`.
    pub(super) fn all(&self, step: u64) -> Vec<&[f32]> {
        (0..self.samples.len())
            .map(|worker| self.of(worker, step))
            .collect()
    }
}
