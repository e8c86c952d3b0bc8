//! What workers see of each other's failures over threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use spardl_core::{Input, Layout, Rank};
use spardl_drive::conformance::Toy;
use spardl_drive::{
    BucketId, DriveError, Driver, ThreadsTransport, Transport, TransportError, WorkersError,
    barrier, run_workers,
};

/// Far above what any of these tests takes: an error that comes by this deadline did not come promptly.
const LIMIT: Duration = Duration::from_secs(20);
const PROMPT: Duration = Duration::from_secs(5);
const BUCKET: BucketId = BucketId::new(0);

fn driver(transport: ThreadsTransport, toy: Toy) -> Driver<ThreadsTransport> {
    let layouts = [Layout::flat(3), Layout::flat(0)];
    Driver::for_layouts(transport, &toy, &layouts)
        .unwrap()
        .with_timeout(LIMIT)
}

fn step(driver: &mut Driver<ThreadsTransport>, k: usize, step: u64) -> Result<(), DriveError> {
    let inputs = [&[1.5, -2.25, 3.0][..], &[]].map(|gradient| Input::new(gradient, k, step));
    driver.all_reduce(&inputs).map(|_| ())
}

fn lost_peer(error: &DriveError) -> Option<Rank> {
    match error {
        DriveError::Transport(TransportError::PeerLost { peer, .. }) => Some(*peer),
        _ => None,
    }
}

#[test]
fn a_panicking_worker_is_named_and_the_others_lose_it_promptly() {
    for toy in [Toy::Gather, Toy::Direct] {
        for size in [2, 5, 8] {
            let errors = Mutex::new(Vec::new());
            let started = Instant::now();
            let result = run_workers(size, |transport| {
                let rank = transport.world().rank().get();
                let mut driver = driver(transport, toy);
                step(&mut driver, 1, 0).unwrap();
                assert_ne!(rank, 1, "out of luck");
                let before = driver.collective(BUCKET).state();
                let error = step(&mut driver, 1, 1).unwrap_err();
                assert_eq!(
                    driver.collective(BUCKET).state(),
                    before,
                    "nothing is left behind"
                );
                errors.lock().unwrap().push(error);
            });
            assert!(started.elapsed() < PROMPT);
            let Err(WorkersError::Panicked { panics }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(panics.len(), 1, "{panics:?}");
            assert_eq!(panics[0].rank, Rank::new(1));
            assert!(panics[0].message.contains("out of luck"));
            let errors = errors.into_inner().unwrap();
            assert_eq!(errors.len(), size as usize - 1);
            for error in errors {
                assert_eq!(lost_peer(&error), Some(Rank::new(1)), "{error}");
            }
        }
    }
}

#[test]
fn a_worker_that_leaves_during_a_wait_ends_the_wait() {
    let errors = run_workers(2, |transport| {
        if transport.world().rank().get() == 1 {
            thread::sleep(Duration::from_millis(100));
            return None;
        }
        let started = Instant::now();
        let error = step(&mut driver(transport, Toy::Direct), 1, 0).unwrap_err();
        assert!(started.elapsed() < PROMPT);
        Some(error.to_string())
    });
    assert_eq!(
        errors.unwrap(),
        [
            Some("rank 0 lost rank 1 in round 0 of bucket 0".to_owned()),
            None
        ]
    );
}

#[test]
fn leaving_after_the_last_step_disturbs_nobody() {
    for toy in [Toy::Gather, Toy::Direct] {
        for slow in 0..5 {
            let results = run_workers(5, |transport| {
                let rank = transport.world().rank().get();
                let mut driver = driver(transport, toy);
                step(&mut driver, 1, 0)?;
                if rank == slow {
                    thread::sleep(Duration::from_millis(10));
                }
                step(&mut driver, 1, 1)
            });
            for result in results.unwrap() {
                result.unwrap();
            }
        }
    }
}

/// Tries a step until it works; workers that were not part of a failure hear of it once.
fn retry(driver: &mut Driver<ThreadsTransport>, number: u64) {
    for _ in 0..4 {
        match step(driver, 1, number) {
            Ok(()) => return,
            Err(error) => assert!(lost_peer(&error).is_none(), "{error}"),
        }
    }
    panic!("four attempts failed");
}

#[test]
fn workers_that_disagree_fail_together_and_can_try_again() {
    for toy in [Toy::Gather, Toy::Direct] {
        run_workers(4, |transport| {
            let rank = transport.world().rank().get();
            let mut driver = driver(transport, toy);
            step(&mut driver, 1, 0).unwrap();
            let before = driver.collective(BUCKET).state();
            let started = Instant::now();
            let error = step(&mut driver, 1 + usize::from(rank == 2), 1).unwrap_err();
            assert!(started.elapsed() < PROMPT);
            let message = error.to_string();
            match error {
                DriveError::Protocol { .. } => assert!(message.contains("configuration")),
                DriveError::Transport(TransportError::Abandoned { .. }) => {}
                error => panic!("{error}"),
            }
            assert_eq!(driver.collective(BUCKET).state(), before);
            retry(&mut driver, 1);
            assert_eq!(driver.collective(BUCKET).residual(), [0.0, 0.5, 0.0]);
        })
        .unwrap();
    }
}

#[test]
fn workers_at_different_steps_never_finish_one() {
    let results = run_workers(3, |transport| {
        let rank = u64::from(transport.world().rank().get());
        let mut driver = driver(transport, Toy::Direct);
        step(&mut driver, 1, rank).map_err(|error| error.to_string())
    });
    assert!(results.unwrap().iter().all(Result::is_err));
}

#[test]
fn a_mistake_of_one_worker_is_heard_by_all_at_once() {
    run_workers(3, |transport| {
        let rank = transport.world().rank().get();
        let mut driver = driver(transport, Toy::Gather);
        let started = Instant::now();
        let error = if rank == 0 {
            let input = Input::new(&[1.0], 1, 0);
            driver.all_reduce(&[input, input]).unwrap_err()
        } else {
            step(&mut driver, 1, 0).unwrap_err()
        };
        assert!(started.elapsed() < PROMPT);
        assert_eq!(
            rank == 0,
            matches!(error, DriveError::Config { .. }),
            "{error}"
        );
        retry(&mut driver, 0);
    })
    .unwrap();
}

/// More workers than all hear from all at a barrier.
const MANY: u32 = 100;

#[test]
fn a_barrier_of_many_holds_everybody() {
    let came = AtomicU32::new(0);
    run_workers(MANY, |mut transport| {
        for time in 1..=3 {
            came.fetch_add(1, Ordering::SeqCst);
            barrier(&mut transport, LIMIT).unwrap();
            assert!(came.load(Ordering::SeqCst) >= time * MANY);
        }
    })
    .unwrap();
}

#[test]
fn a_late_worker_of_many_is_named_at_a_barrier() {
    for late in [0, MANY / 3].map(Rank::new) {
        let (all_here, over) = (Barrier::new(MANY as usize), Barrier::new(MANY as usize));
        let errors = run_workers(MANY, |mut transport| {
            all_here.wait();
            let error = match transport.world().rank() == late {
                true => None,
                false => barrier(&mut transport, PROMPT / 5).err(),
            };
            over.wait();
            error
        })
        .unwrap();
        assert_eq!(errors.iter().flatten().count() as u32, MANY - 1);
        let mut named = 0;
        for error in errors.iter().flatten() {
            match error {
                TransportError::Timeout { waiting_on, .. } => {
                    assert_eq!(*waiting_on, [late], "{error}");
                    named += 1;
                }
                error => assert!(error.is_secondary(), "{error}"),
            }
        }
        assert!(named > 0, "nobody names rank {late}");
    }
}
