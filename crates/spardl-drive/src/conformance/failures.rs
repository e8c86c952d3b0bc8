//! Scenarios in which a step fails: it must end in time, say why, and leave the next step alone.

use std::thread;
use std::time::{Duration, Instant};

use spardl_core::{Layout, Payload, Rank, World};

use super::PATIENCE;
use super::rounds::{input, numbered, wait};
use super::toy::{Toy, assert_sum, gradient};
use crate::driver::Driver;
use crate::error::{DriveError, TransportError};
use crate::gather::barrier;
use crate::time::Deadline;
use crate::transport::{BucketId, Transport};

/// How long the failing steps wait.
const SHORT: Duration = Duration::from_millis(250);
/// How much later than its deadline a wait may end on a busy machine.
const SLACK: Duration = Duration::from_secs(5);
const BUCKET: BucketId = BucketId::new(0);
const LEN: usize = 7;

/// The last worker sleeps through a step: the others name it, in time. When they try again the step works, though the
/// sleeper has all messages of the first try: its senders gave that one up.
///
/// # Panics
/// When the transport breaks the rule.
pub fn a_peer_that_never_answers_is_named(transport: Box<dyn Transport>) {
    let world = transport.world();
    let silent = World::new(world.size() - 1, world.size()).unwrap().rank();
    let mut driver = driver(transport, Toy::Direct, PATIENCE);
    // Workers that start at different times meet here, so that the sleep below is long enough.
    retry_until_done(&mut driver, 0);
    let mut driver = driver.with_timeout(SHORT);
    if world.rank() == silent {
        thread::sleep(3 * SHORT);
    } else {
        let gradient = gradient(world.rank(), 1, LEN);
        let started = Instant::now();
        let error = driver.all_reduce(&[input(&gradient, 1)]).unwrap_err();
        let elapsed = started.elapsed();
        assert!(elapsed < SHORT + SLACK, "the deadline is kept");
        match error {
            DriveError::Transport(TransportError::Timeout {
                rank,
                bucket,
                round,
                waiting_on,
                waited,
                in_flight,
            }) => {
                assert_eq!((rank, bucket, round), (world.rank(), BUCKET, 0));
                assert!(waiting_on.contains(&silent), "{waiting_on:?}");
                assert!(waited >= SHORT, "not before the deadline");
                assert!(waited <= elapsed, "waited longer than the call took");
                assert_eq!(in_flight.len(), 1);
            }
            // Whoever reaches its deadline first names the culprit; the others may hear of that before theirs.
            DriveError::Transport(TransportError::Abandoned { by, .. }) => {
                assert!(by != silent && by != world.rank(), "given up by rank {by}");
            }
            error => panic!("neither in time nor given up: {error}"),
        }
    }
    retry_until_done(&mut driver.with_timeout(PATIENCE), 1);
}

/// All workers pass a barrier together; one that nobody else comes to names all who are missing.
///
/// # Panics
/// When the transport breaks the rule.
pub fn a_barrier_holds_everybody_and_names_who_is_missing(mut transport: Box<dyn Transport>) {
    let world = transport.world();
    for _ in 0..3 {
        barrier(&mut *transport, PATIENCE).unwrap();
    }
    let others: Vec<Rank> = (1..world.size()).map(Rank::new).collect();
    if world.rank().get() == 0 && !others.is_empty() {
        let error = barrier(&mut *transport, SHORT).unwrap_err();
        match error {
            TransportError::Timeout { waiting_on, .. } => assert_eq!(waiting_on, others),
            error => panic!("not in time: {error}"),
        }
    } else {
        thread::sleep(3 * SHORT);
    }
    // Those who slept hear once that the barrier was given up.
    let again = barrier(&mut *transport, PATIENCE);
    let again = again.or_else(|_| barrier(&mut *transport, PATIENCE));
    again.unwrap();
}

/// A worker that gives a step up, after its messages are out, spoils neither the state nor the next step of anyone.
///
/// # Panics
/// When the transport breaks the rule.
pub fn a_step_works_after_an_abandoned_one(transport: Box<dyn Transport>) {
    let world = transport.world();
    let mut transport = transport;
    for toy in [Toy::Direct, Toy::Gather] {
        let mut driver = driver(transport, toy, PATIENCE);
        let stale = gradient(world.rank(), 1, LEN);
        if world.rank().get() == 0 {
            driver.begin(BUCKET, input(&stale, 0)).unwrap();
        } else {
            // Rank 0's messages may suffice to finish. The workers must then agree to drop the step.
            driver.step(&[input(&stale, 0)]).ok();
        }
        driver.abort();
        retry_until_done(&mut driver, 0);
        (transport, _) = driver.into_parts();
    }
}

/// The last worker leaves without a word: the others end with an error, in time.
///
/// # Panics
/// When the transport breaks the rule.
pub fn a_peer_that_leaves_is_noticed(transport: Box<dyn Transport>) {
    let world = transport.world();
    if world.rank().get() + 1 == world.size() {
        return;
    }
    let gradient = gradient(world.rank(), 1, LEN);
    let started = Instant::now();
    let mut driver = driver(transport, Toy::Gather, SHORT);
    let error = driver.all_reduce(&[input(&gradient, 0)]).unwrap_err();
    assert!(started.elapsed() < SHORT + SLACK, "the deadline is kept");
    assert!(matches!(error, DriveError::Transport(_)), "{error}");
    assert!(
        driver
            .collective(BUCKET)
            .residual()
            .iter()
            .all(|&r| r == 0.0)
    );
}

/// What a worker sent before it left arrives; a wait for more ends at once, with bucket, round and peer.
///
/// # Panics
/// When the transport breaks the rule.
pub fn the_last_words_of_a_peer_arrive_and_no_more_is_waited_for(
    mut transport: Box<dyn Transport>,
) {
    let world = transport.world();
    let leaver = Rank::new(world.size() - 1);
    let (bucket, others) = (BucketId::new(5), (0..leaver.get()).map(Rank::new));
    if world.rank() == leaver {
        let words = || Payload::from_wire(b"last words".to_vec());
        let round = others.fold(numbered(3), |round, to| round.send(to, words()));
        transport.submit(bucket, round).unwrap();
        wait(&mut *transport).expect("a round without receives is complete");
        transport.complete_step();
        return;
    }
    transport
        .submit(bucket, numbered(3).expect(leaver, 10))
        .unwrap();
    let (_, inbox) = wait(&mut *transport).expect("a round is in flight");
    assert!(inbox.messages().eq([b"last words"]));
    transport
        .submit(bucket, numbered(4).expect(leaver, 10))
        .unwrap();
    let deadline = Deadline::after(transport.clock().now(), PATIENCE);
    match transport.wait_any(deadline).unwrap_err() {
        TransportError::PeerLost {
            rank,
            peer,
            bucket: of,
            round,
        } => assert_eq!((rank, peer, of, round), (world.rank(), leaver, bucket, 4)),
        error => panic!("not lost: {error}"),
    }
}

fn driver(
    transport: Box<dyn Transport>,
    toy: Toy,
    timeout: Duration,
) -> Driver<Box<dyn Transport>> {
    let driver = Driver::for_layouts(transport, &toy, &[Layout::flat(LEN as u32)]).unwrap();
    driver.with_timeout(timeout)
}

/// Every failed attempt is seen by every worker at most once, so a few attempts suffice.
fn retry_until_done(driver: &mut Driver<Box<dyn Transport>>, step: u64) {
    let world = driver.world();
    let gradient = gradient(world.rank(), 2, LEN);
    for _ in 0..3 {
        match driver.all_reduce(&[input(&gradient, step)]) {
            Ok(_) => return assert_sum(driver.update(BUCKET), world, 2, step),
            Err(DriveError::Transport(TransportError::Abandoned { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("three attempts were given up");
}
