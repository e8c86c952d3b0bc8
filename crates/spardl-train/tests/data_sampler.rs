//! Which samples a worker takes, and the batches made of them ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use spardl_train::data::{DataError, Prefetch, Prepared, Sampler, seed_for, share};
use spardl_train::{Batch, Dataset, Input};

proptest! {
    #[test]
    fn an_epoch_takes_every_sample_at_most_once_and_leaves_less_than_a_step(
        samples in 1usize..400, workers in 1usize..9, batch_size in 1usize..9, seed: u64, epoch in 0usize..1000,
    ) {
        let step = workers * batch_size;
        prop_assume!(step <= samples);
        let mut taken = vec![0; samples];
        for rank in 0..workers {
            let sampler = Sampler::new(samples, workers, rank, batch_size, seed).unwrap();
            prop_assert_eq!(sampler.steps(), samples / step);
            for step in 0..sampler.steps() {
                let mine = sampler.step(epoch, step);
                prop_assert_eq!(mine.len(), batch_size);
                mine.iter().for_each(|&sample| taken[sample as usize] += 1);
            }
        }
        prop_assert!(taken.iter().all(|&times| times <= 1));
        prop_assert!(taken.iter().filter(|&&times| times == 0).count() < step);
    }

    #[test]
    fn the_same_step_is_the_same_set_of_samples_for_every_number_of_workers(seed: u64, epoch in 0usize..50) {
        let global = |workers: usize| -> Vec<u32> {
            let share = |rank| Sampler::new(480, workers, rank, 48 / workers, seed).unwrap().step(epoch, 7);
            (0..workers).flat_map(share).collect()
        };
        for workers in [2, 3, 4, 6, 8] {
            prop_assert_eq!(global(workers), global(1));
        }
    }

    #[test]
    fn shares_follow_one_another_and_cover_everything(len in 0usize..1000, world in 1usize..40) {
        let mut end = 0;
        for rank in 0..world {
            let share = share(len, world, rank);
            prop_assert_eq!(share.start, end);
            prop_assert!(share.len().abs_diff(len / world) <= 1);
            end = share.end;
        }
        prop_assert_eq!(end, len);
    }
}

#[test]
fn epochs_and_seeds_have_orders_of_their_own() {
    let step = |seed, epoch| Sampler::new(1000, 1, 0, 500, seed).unwrap().step(epoch, 0);
    assert_eq!(step(1, 0), step(1, 0));
    assert_ne!(step(1, 0), step(1, 1));
    assert_ne!(step(1, 0), step(2, 0));
    assert_ne!(step(1, 1), step(2, 0));
}

#[test]
fn too_few_samples_are_refused_with_advice() {
    let error = Sampler::new(63, 8, 0, 8, 1).unwrap_err();
    assert!(matches!(
        error,
        DataError::TooFew {
            samples: 63,
            workers: 8,
            batch_size: 8
        }
    ));
    assert_eq!(
        error.to_string(),
        "63 samples are too few for one step of 8 workers with 8 samples each: use more samples, a smaller batch or fewer workers"
    );
    assert!(matches!(
        Sampler::new(9, 2, 2, 1, 0),
        Err(DataError::Request(_))
    ));
    assert!(matches!(
        Sampler::new(9, 1, 0, 0, 0),
        Err(DataError::Request(_))
    ));
    assert!(matches!(
        Sampler::new(9, usize::MAX, 0, 2, 0),
        Err(DataError::TooFew { .. })
    ));
}

/// Samples that are their own numbers; from the `bad`th batch on they fail.
#[derive(Debug)]
struct Numbers {
    made: AtomicUsize,
    bad: usize,
    panics: bool,
}

impl Numbers {
    fn new(bad: usize, panics: bool) -> Arc<Self> {
        Arc::new(Self {
            made: AtomicUsize::new(0),
            bad,
            panics,
        })
    }
}

impl Dataset for Numbers {
    fn len(&self) -> usize {
        40
    }

    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError> {
        if self.made.fetch_add(1, Ordering::SeqCst) >= self.bad {
            assert!(!self.panics, "sample {} is cursed", samples[0]);
            return Err(DataError::Request("a file is gone".to_owned()));
        }
        let noise = seed.map_or(0, |seed| seed as u32);
        Ok(Batch {
            len: samples.len(),
            input: Input::Tokens(samples.to_vec()),
            targets: vec![noise],
        })
    }
}

fn sampler() -> Sampler {
    Sampler::new(40, 2, 1, 4, 9).unwrap()
}

fn all(from: (usize, usize)) -> Vec<Prepared> {
    let prefetch = Prefetch::start(Numbers::new(usize::MAX, false), sampler(), from, 3).unwrap();
    prefetch.map(Result::unwrap).collect()
}

#[test]
fn batches_come_in_order_with_the_samples_and_seeds_of_their_steps() {
    let batches = all((0, 0));
    let places: Vec<(usize, usize)> = batches.iter().map(|b| (b.epoch, b.step)).collect();
    let expected: Vec<_> = (0..3)
        .flat_map(|epoch| (0..5).map(move |step| (epoch, step)))
        .collect();
    assert_eq!(places, expected);
    for Prepared {
        epoch,
        step,
        seed,
        batch,
    } in batches
    {
        assert_eq!(seed, seed_for(9, epoch, step, 1));
        assert_eq!(batch.input, Input::Tokens(sampler().step(epoch, step)));
        assert_eq!(batch.targets, [seed as u32]);
    }
}

#[test]
fn a_start_in_the_middle_gives_what_going_through_gives() {
    let whole = all((0, 0));
    for from in 0..whole.len() {
        assert_eq!(all((from / 5, from % 5)), whole[from..]);
    }
    assert_eq!(all((0, 5)), whole[5..]);
    assert_eq!(all((3, 0)), []);
}

#[test]
fn no_more_than_two_batches_are_made_ahead() {
    let numbers = Numbers::new(usize::MAX, false);
    let mut prefetch = Prefetch::start(
        Arc::clone(&numbers) as Arc<dyn Dataset>,
        sampler(),
        (0, 0),
        3,
    )
    .unwrap();
    for taken in 1..5 {
        prefetch.next().unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(numbers.made.load(Ordering::SeqCst) <= taken + 2);
    }
    drop(prefetch);
    assert_eq!(Arc::strong_count(&numbers), 1, "the thread has ended");
}

#[test]
fn an_error_comes_in_its_turn_and_ends_the_batches() {
    for panics in [false, true] {
        let mut prefetch = Prefetch::start(Numbers::new(3, panics), sampler(), (0, 0), 3).unwrap();
        for _ in 0..3 {
            prefetch.next().unwrap().unwrap();
        }
        match prefetch.next().unwrap().unwrap_err() {
            DataError::Thread(message) if panics => {
                assert!(message.ends_with("is cursed"), "{message}")
            }
            DataError::Request(_) if !panics => {}
            other => panic!("{other}"),
        }
        assert!(prefetch.next().is_none());
    }
}
