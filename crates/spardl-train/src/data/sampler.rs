//! Which samples a worker takes at a step.

use std::ops::Range;

use super::DataError;
use super::random::{Permutation, combine};

/// Which samples a worker takes at a step: for every epoch a permutation of all samples, cut into steps, the steps into ranks.
///
/// No sample is taken twice in an epoch, by whichever worker; what does not fill a step at the end of an epoch is left for
/// another epoch. Pure functions: nothing is carried from step to step, so a run can be taken up anywhere.
///
/// ```
/// use spardl_train::data::Sampler;
/// let sampler = |rank| Sampler::new(100, 4, rank, 8, 42).unwrap();
/// assert_eq!(sampler(0).steps(), 3);
/// assert_eq!(sampler(1).step(5, 2).len(), 8);
/// assert!(sampler(0).step(5, 2).iter().all(|sample| !sampler(1).step(5, 2).contains(sample)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    samples: usize,
    workers: usize,
    rank: usize,
    batch_size: usize,
    seed: u64,
}

impl Sampler {
    /// The share of one rank, in batches.
    ///
    /// # Errors
    /// When the samples do not suffice for one step, or a number makes no sense.
    pub fn new(
        samples: usize,
        workers: usize,
        rank: usize,
        batch_size: usize,
        seed: u64,
    ) -> Result<Self, DataError> {
        if rank >= workers || batch_size == 0 {
            return Err(DataError::Request(format!(
                "rank {rank} of {workers} workers with {batch_size} samples a step: expected a rank below the number of \
                 workers and at least one sample"
            )));
        }
        if u32::try_from(samples).is_err() {
            return Err(DataError::Request(format!(
                "{samples} samples are more than can be numbered: expected at most {}",
                u32::MAX
            )));
        }
        match workers.checked_mul(batch_size) {
            Some(step) if step <= samples => Ok(Self {
                samples,
                workers,
                rank,
                batch_size,
                seed,
            }),
            _ => Err(DataError::TooFew {
                samples,
                workers,
                batch_size,
            }),
        }
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> usize {
        self.samples / (self.workers * self.batch_size)
    }

    /// The rank whose samples these are.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The seed that permutations and [`seed_for`](super::seed_for) are made of.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The samples of this rank at a step.
    ///
    /// # Panics
    /// If the epoch has no such step.
    pub fn step(&self, epoch: usize, step: usize) -> Vec<u32> {
        assert!(
            step < self.steps(),
            "step {step} of an epoch of {} steps",
            self.steps()
        );
        let permutation = Permutation::new(combine(self.seed, epoch as u64), self.samples);
        let first = (step * self.workers + self.rank) * self.batch_size;
        (first..first + self.batch_size)
            .map(|place| permutation.get(place) as u32)
            .collect()
    }
}

/// The part of `len` samples that a rank of a world looks at: without overlap, all covered, sizes that differ by one at most.
///
/// # Panics
/// If the world has no such rank.
pub fn share(len: usize, world: usize, rank: usize) -> Range<usize> {
    assert!(rank < world, "rank {rank} of a world of {world}");
    let (each, more) = (len / world, len % world);
    let first = rank * each + rank.min(more);
    first..first + each + usize::from(rank < more)
}
