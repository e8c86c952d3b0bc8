//! A worker with several threads has the bits of one with a single thread, for every method.

use std::sync::Arc;

use spardl_core::Parallel;
use spardl_core::parallel::Job;
use spardl_drive::pool;
use spardl_testkit::{Trial, check, configurations, generate};

const LEN: usize = 50_000;
const STEPS: u64 = 3;

/// Threads that share even small buckets.
#[derive(Debug)]
struct Eager(Arc<dyn Parallel>);

impl Parallel for Eager {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        self.0.run(jobs);
    }

    fn grain(&self) -> usize {
        100
    }
}

/// So many threads that the thread of the caller plays, the last piece of work first: the cuts without the scheduler.
#[derive(Debug)]
struct Played(usize);

impl Parallel for Played {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().rev().for_each(|job| job());
    }

    fn grain(&self) -> usize {
        16
    }
}

/// Updates and what is kept, after each step.
type Steps = Vec<(Vec<u32>, Vec<check::Kept>)>;

fn steps(mut trial: Trial, workers: u32, threads: Option<&Arc<dyn Parallel>>) -> Steps {
    let len = trial.cluster.workers()[0].len();
    for worker in trial.cluster.workers_mut() {
        if let Some(threads) = threads {
            worker.set_threads(Arc::clone(threads));
        }
    }
    let step = |step| {
        let gradients = generate::fractions(step, workers, len);
        let update = check::bits(&trial.step(&gradients, len / 50, step));
        (update, trial.kept())
    };
    (0..STEPS).map(step).collect()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let eager = |threads| Arc::new(Eager(pool(threads).unwrap())) as Arc<dyn Parallel>;
    let pools: Vec<_> = [1, 2, 3].into_iter().map(eager).collect();
    for workers in [1, 3] {
        for algorithm in configurations::every(workers) {
            let trial = || Trial::new(&*algorithm, workers, LEN);
            let expected = steps(trial(), workers, None);
            for threads in &pools {
                let same = steps(trial(), workers, Some(threads)) == expected;
                assert!(same, "{} {threads:?}", trial().context);
            }
        }
    }
}

#[test]
fn every_world_up_to_forty_has_the_same_bits_with_any_number_of_threads() {
    for workers in 1..=40 {
        let threads: Arc<dyn Parallel> = Arc::new(Played(workers as usize % 3 + 1));
        for algorithm in configurations::every(workers) {
            let layout = generate::layout(workers, 400);
            let trial = || Trial::with_layout(&*algorithm, workers, &layout);
            let same = steps(trial(), workers, Some(&threads)) == steps(trial(), workers, None);
            assert!(same, "{} {threads:?}", trial().context);
        }
    }
}

#[test]
fn a_bad_value_in_any_piece_is_seen() {
    let threads: Arc<dyn Parallel> = Arc::new(Eager(pool(3).unwrap()));
    for algorithm in configurations::all(2) {
        let mut trial = Trial::new(&*algorithm, 2, LEN);
        for worker in trial.cluster.workers_mut() {
            worker.set_threads(Arc::clone(&threads));
        }
        trial.step(&generate::fractions(0, 2, LEN), LEN / 50, 0);
        let before = trial.kept();
        for place in [0, LEN / 3, LEN - 1] {
            let mut gradients = generate::fractions(1, 2, LEN);
            gradients[1][place] = f32::NAN;
            let report = trial.run(&gradients, LEN / 50, 1);
            let skipped =
                |outcome: &spardl_core::Outcome| *outcome != spardl_core::Outcome::Updated;
            assert!(report.outcomes.iter().all(skipped), "{}", trial.context);
            trial.cluster.abort();
            assert!(before == trial.kept(), "{}", trial.context);
        }
    }
}
