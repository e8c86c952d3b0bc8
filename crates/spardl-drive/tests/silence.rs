//! A worker that falls silent in any round ends the step on all workers within the deadline, and leaves no trace in them.

use std::time::{Duration, Instant};

use spardl_algos::{Options, registry};
use spardl_core::{Inbox, Input, Layout, Outcome, Round, World};
use spardl_drive::{
    BucketId, Deadline, DriveError, Driver, Transport, TransportError, run_workers,
};
use spardl_testkit::generate;

const WORKERS: u32 = 4;
const LEN: usize = 120;
const DEADLINE: Duration = Duration::from_millis(80);
/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(10);

/// A transport whose worker sends nothing from round `from` on.
struct Silent<T> {
    inner: T,
    from: u32,
}

impl<T: Transport> Transport for Silent<T> {
    fn world(&self) -> World {
        self.inner.world()
    }

    fn submit(&mut self, bucket: BucketId, mut round: Round) -> Result<(), TransportError> {
        if round.seq >= self.from {
            round.sends.clear();
        }
        self.inner.submit(bucket, round)
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        self.inner.poll()
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        self.inner.wait_any(deadline)
    }

    fn settle(&mut self) {
        self.inner.settle();
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }
}

/// One good step, then one in which the last worker is silent from round `from` on. Returns per worker whether the second step
/// ended in an error of the transport.
fn step_with_silence(name: &str, from: u32) -> Vec<bool> {
    let algorithm = registry::build(name, &Options::default()).unwrap();
    run_workers(WORKERS, |transport| {
        let rank = transport.world().rank();
        let gradient = generate::integers(3, WORKERS, LEN).swap_remove(rank.index());
        let input = |step| Input {
            gradient: &gradient,
            k: 12,
            step,
        };
        let collective = algorithm
            .collective(transport.world(), &Layout::flat(LEN as u32))
            .unwrap();
        let transport = Silent {
            inner: transport,
            from: u32::MAX,
        };
        let driver = Driver::new(transport, vec![collective]).unwrap();
        let mut driver = driver.with_timeout(SLACK);
        driver.all_reduce(&[input(0)]).unwrap();
        let before = driver.collectives()[0].state();
        let (transport, collectives) = driver.into_parts();
        let from = if rank.get() == WORKERS - 1 {
            from
        } else {
            u32::MAX
        };
        let transport = Silent {
            inner: transport.inner,
            from,
        };
        let mut driver = Driver::new(transport, collectives)
            .unwrap()
            .with_timeout(DEADLINE);
        let started = Instant::now();
        let result = driver.all_reduce(&[input(1)]);
        assert!(
            started.elapsed() < DEADLINE + SLACK,
            "{name}: the deadline is kept"
        );
        match result {
            Ok(report) => {
                assert_eq!(report.buckets[0].outcome, Outcome::Updated);
                false
            }
            Err(DriveError::Transport(_)) => {
                assert_eq!(
                    driver.collectives()[0].state(),
                    before,
                    "{name}: a trace is left"
                );
                true
            }
            Err(error) => panic!("{name}: {error}"),
        }
    })
    .unwrap()
}

#[test]
fn silence_in_any_round_ends_the_step_within_the_deadline_and_leaves_no_trace() {
    for entry in registry::METHODS {
        let algorithm = entry.build(&Options::default()).unwrap();
        let rounds = *algorithm
            .cost(WORKERS, &Layout::flat(LEN as u32), 12, 1)
            .rounds
            .end();
        for from in 0..rounds {
            let failed = step_with_silence(entry.name, from);
            // The last worker may send nothing in the rounds left, as in a broadcast; but who waits for it fails.
            let sends_nothing_more = failed.iter().all(|failed| !failed);
            assert!(
                from > 0 || !sends_nothing_more,
                "{}: nobody noticed",
                entry.name
            );
        }
    }
}
