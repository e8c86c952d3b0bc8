//! The driver over threads: same bits as the simulator, commit, abort, skip.

use std::time::Duration;

use spardl_core::{Algorithm, Input, Layout, Outcome, SkipReason, Update};
use spardl_drive::conformance::Toy;
use spardl_drive::{BucketId, Counts, DriveError, Driver, OnNonFinite, Transport, run_workers};
use spardl_sim::Cluster;

const LIMIT: Duration = Duration::from_secs(20);
const FIRST: BucketId = BucketId::new(0);

fn gradient(rank: u32, bucket: u32, step: u64, len: usize) -> Vec<f32> {
    let seed = u64::from(rank) * 7919 + u64::from(bucket) * 104_729 + step * 31;
    let value = |i: usize| ((seed + i as u64 * 2_654_435_761) % 2001) as f32 / 16.0 - 60.0;
    (0..len).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn update_bits(update: Update<'_>, len: usize) -> Vec<u32> {
    let mut dense = vec![0.0; len];
    update.write_scaled(1.0, &mut dense);
    bits(&dense)
}

/// Update and residual of every worker after each of `steps` steps.
type Trace = Vec<Vec<(Vec<u32>, Vec<u32>)>>;

fn trace_of_threads(toy: Toy, size: u32, len: usize, bucket: u32, steps: u64) -> Trace {
    run_workers(size, |transport| {
        let rank = transport.world().rank().get();
        let layouts = vec![Layout::flat(len as u32); bucket as usize + 1];
        let mut driver = Driver::for_layouts(transport, &toy, &layouts)
            .unwrap()
            .with_timeout(LIMIT);
        let trace = (0..steps).map(|step| {
            let gradients: Vec<_> = (0..=bucket).map(|b| gradient(rank, b, step, len)).collect();
            let inputs: Vec<_> = gradients
                .iter()
                .map(|gradient| Input::new(gradient, 1, step))
                .collect();
            driver.all_reduce(&inputs).unwrap();
            let id = BucketId::new(bucket);
            (
                update_bits(driver.update(id), len),
                bits(driver.collective(id).residual()),
            )
        });
        trace.collect()
    })
    .unwrap()
}

fn trace_of_simulator(toy: Toy, size: u32, len: usize, bucket: u32, steps: u64) -> Trace {
    let mut cluster = Cluster::new(&toy, size, &Layout::flat(len as u32)).unwrap();
    let mut trace = vec![Vec::new(); size as usize];
    for step in 0..steps {
        let gradients: Vec<_> = (0..size)
            .map(|rank| gradient(rank, bucket, step, len))
            .collect();
        cluster.step(&gradients, 1, step).unwrap();
        cluster.commit().unwrap();
        for (trace, worker) in trace.iter_mut().zip(cluster.workers()) {
            trace.push((update_bits(worker.update(), len), bits(worker.residual())));
        }
    }
    trace
}

#[test]
fn threads_and_the_simulator_give_the_same_bits() {
    for toy in [Toy::Gather, Toy::Direct] {
        for size in [1, 2, 3, 4, 5, 8] {
            for len in [0, 1, 1000] {
                let threads = trace_of_threads(toy, size, len, 2, 3);
                assert_eq!(
                    threads,
                    trace_of_simulator(toy, size, len, 2, 3),
                    "{toy:?} {size} {len}"
                );
                assert!(threads.iter().all(|worker| worker[2].0 == threads[0][2].0));
            }
        }
    }
}

#[test]
fn the_report_counts_what_the_cost_announces() {
    let (size, len) = (5, 100);
    for toy in [Toy::Gather, Toy::Direct] {
        let reports = run_workers(size, |transport| {
            let layouts = vec![Layout::flat(len); 3];
            let mut driver = Driver::for_layouts(transport, &toy, &layouts)
                .unwrap()
                .with_timeout(LIMIT);
            let gradient = vec![1.5; len as usize];
            driver
                .all_reduce(&[Input::new(&gradient, 1, 0); 3])
                .unwrap()
        })
        .unwrap();
        let cost = toy.cost(size, &Layout::flat(len), 1, 0);
        let (mut sent, mut received) = (0, 0);
        for report in &reports {
            assert_eq!(report.buckets.len(), 3);
            assert!(report.all_updated());
            for bucket in &report.buckets {
                assert!(cost.rounds.contains(&bucket.counts.rounds));
                assert_eq!(bucket.counts.messages, cost.messages);
                assert!(bucket.counts.bytes_sent <= cost.bytes_max);
                let Counts {
                    path_messages,
                    path_bytes,
                    bytes_sent,
                    bytes_received,
                    ..
                } = bucket.counts;
                assert!(path_messages >= cost.messages);
                assert!(path_bytes >= bytes_sent.max(bytes_received));
                assert!(path_bytes <= bytes_sent + bytes_received);
                assert_eq!(bucket.counts.stats.selected, u64::from(len));
            }
            sent += report.total().bytes_sent;
            received += report.total().bytes_received;
        }
        assert_eq!(sent, received);
    }
}

type Ending = (Result<Vec<Outcome>, DriveError>, Vec<Vec<f32>>);

/// One step with bucket 1 of rank 0 holding NaN; returns the outcome and what was committed in the two buckets.
fn step_with_nan(policy: OnNonFinite) -> Vec<Ending> {
    run_workers(3, |transport| {
        let rank = transport.world().rank().get();
        let layouts = [Layout::flat(2), Layout::flat(2)];
        let mut driver = Driver::for_layouts(transport, &Toy::Gather, &layouts)
            .unwrap()
            .with_timeout(LIMIT)
            .with_on_non_finite(policy);
        let good = [1.25, 2.5];
        let bad = if rank == 0 { [f32::NAN, 1.0] } else { good };
        let inputs = [&good, &bad].map(|gradient| Input::new(gradient, 1, 0));
        let outcome = driver
            .all_reduce(&inputs)
            .map(|report| report.buckets.iter().map(|bucket| bucket.outcome).collect());
        let residuals = driver
            .collectives()
            .iter()
            .map(|c| c.residual().to_vec())
            .collect();
        (outcome, residuals)
    })
    .unwrap()
}

#[test]
fn a_non_finite_bucket_ends_as_the_policy_says_on_all_workers() {
    let skipped = Outcome::Skipped(SkipReason::NonFinite);
    for (outcome, residuals) in step_with_nan(OnNonFinite::SkipBucket) {
        assert_eq!(outcome.unwrap(), [Outcome::Updated, skipped]);
        assert_eq!(residuals, [[0.25, 0.5], [0.0, 0.0]]);
    }
    for (outcome, residuals) in step_with_nan(OnNonFinite::SkipStep) {
        assert_eq!(outcome.unwrap(), [Outcome::Updated, skipped]);
        assert_eq!(residuals, [[0.0, 0.0], [0.0, 0.0]]);
    }
    for (outcome, residuals) in step_with_nan(OnNonFinite::Raise) {
        let error = outcome.unwrap_err();
        assert_eq!(
            error.to_string(),
            "bucket 1: a gradient held NaN or an infinity"
        );
        assert_eq!(residuals, [[0.0, 0.0], [0.0, 0.0]]);
    }
}

#[test]
fn an_aborted_step_leaves_no_trace_and_an_unsettled_one_must_be_settled() {
    run_workers(3, |transport| {
        let mut driver = Driver::for_layouts(transport, &Toy::Direct, &[Layout::flat(1)])
            .unwrap()
            .with_timeout(LIMIT);
        let input = |step| Input::new(&[1.75], 1, step);
        driver.all_reduce(&[input(0)]).unwrap();
        let before = driver.collective(FIRST).state();
        driver.step(&[input(1)]).unwrap();
        let first_try = update_bits(driver.update(FIRST), 1);
        let unsettled = driver.step(&[input(2)]).unwrap_err().to_string();
        assert!(unsettled.contains("begin was called while"), "{unsettled}");
        driver.abort();
        assert_eq!(driver.collective(FIRST).state(), before);
        assert_eq!(driver.update(FIRST).nnz(), 0);
        driver.step(&[input(1)]).unwrap();
        assert_eq!(update_bits(driver.update(FIRST), 1), first_try);
        driver.commit().unwrap();
        assert_eq!(driver.collective(FIRST).residual(), [0.5]);
        assert!(driver.commit().is_err());
    })
    .unwrap();
}

#[test]
fn buckets_can_be_begun_one_by_one_in_any_order() {
    run_workers(4, |transport| {
        let rank = transport.world().rank().get();
        let layouts = vec![Layout::flat(1); 4];
        let mut driver = Driver::for_layouts(transport, &Toy::Gather, &layouts)
            .unwrap()
            .with_timeout(LIMIT);
        for i in 0..4 {
            let bucket = BucketId::new((i + rank) % 4);
            let gradient = [bucket.get() as f32];
            driver.begin(bucket, Input::new(&gradient, 1, 0)).unwrap();
        }
        driver.finish().unwrap();
        driver.commit().unwrap();
        for bucket in 0..4 {
            let sum = update_bits(driver.update(BucketId::new(bucket)), 1);
            assert_eq!(sum, bits(&[4.0 * bucket as f32]));
        }
    })
    .unwrap();
}

#[test]
fn a_step_is_over_the_buckets_that_were_begun() {
    run_workers(3, |transport| {
        let layouts = vec![Layout::flat(1); 3];
        let mut driver = Driver::for_layouts(transport, &Toy::Gather, &layouts)
            .unwrap()
            .with_timeout(LIMIT);
        assert!(driver.finish().unwrap().buckets.is_empty());
        assert!(driver.commit().is_err(), "nothing to commit");
        let input = |step| Input::new(&[1.25], 1, step);
        for (step, begun) in (0..).zip([&[1][..], &[2, 0], &[]]) {
            let begun: Vec<_> = begun.iter().map(|&bucket| BucketId::new(bucket)).collect();
            for &bucket in &begun {
                driver.begin(bucket, input(step)).unwrap();
            }
            while !driver.poll().unwrap() {
                std::thread::yield_now();
            }
            let report = driver.finish().unwrap();
            let mut reported: Vec<_> = report.buckets.iter().map(|b| b.bucket).collect();
            assert!(reported.is_sorted());
            reported.sort_by_key(|bucket| begun.iter().position(|b| b == bucket));
            assert_eq!(reported, begun);
            assert_eq!(driver.commit().is_ok(), !begun.is_empty());
        }
        for collective in driver.collectives() {
            assert_eq!(collective.residual(), [0.25], "each took part once");
        }
    })
    .unwrap();
}

#[test]
fn a_poll_beyond_the_deadline_names_who_is_missing() {
    let errors = run_workers(2, |transport| {
        let rank = transport.world().rank().get();
        let driver = Driver::for_layouts(transport, &Toy::Gather, &[Layout::flat(1)]).unwrap();
        let mut driver = driver.with_timeout(Duration::from_millis(30));
        let mut error = None;
        if rank == 0 {
            driver.begin(FIRST, Input::new(&[1.0], 1, 0)).unwrap();
            while error.is_none() {
                error = driver.poll().err();
            }
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
        error
    });
    let error = errors.unwrap().swap_remove(0).unwrap();
    assert!(error.is_peer_fault() && !error.is_secondary(), "{error}");
    let text = error.to_string();
    assert!(
        text.ends_with("in round 0 of bucket 0 for rank 1"),
        "{text}"
    );
}

#[test]
fn mistakes_of_the_caller_are_named() {
    run_workers(1, |transport| {
        let stranger = Toy::Gather
            .collective(spardl_core::World::new(1, 2).unwrap(), &Layout::flat(1))
            .unwrap();
        let error = Driver::new(transport, vec![stranger])
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "bucket 0 is for rank 1 of 2, the transport is for rank 0 of 1"
        );
    })
    .unwrap();
    run_workers(1, |transport| {
        let mut driver = Driver::for_layouts(transport, &Toy::Gather, &[Layout::flat(3)]).unwrap();
        let error = driver.all_reduce(&[]).unwrap_err().to_string();
        assert_eq!(error, "0 inputs for 1 buckets: give one input per bucket");
        let short = Input::new(&[1.0], 1, 0);
        let error = driver.all_reduce(&[short]).unwrap_err().to_string();
        assert!(error.contains("the gradient has 1 elements"), "{error}");
        let fits = Input::new(&[1.0; 3], 1, 0);
        driver.all_reduce(&[fits]).unwrap();
    })
    .unwrap();
}
