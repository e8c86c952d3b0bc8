//! Scenarios in which nothing fails: sizes, overlap, order.

use std::thread;
use std::time::{Duration, Instant};

use spardl_core::{HEADER_LEN, Inbox, Input, Layout, Payload, Rank, Round};

use super::PATIENCE;
use super::toy::{Toy, assert_sum, gradient};
use crate::driver::Driver;
use crate::error::TransportError;
use crate::time::Deadline;
use crate::transport::{BucketId, Transport};

/// Bodies from 0 bytes to more than 1 MiB, in one message per round and in many.
///
/// # Panics
/// When the transport breaks the rule; so do all scenarios.
pub fn payloads_of_every_size_arrive_whole(transport: Box<dyn Transport>) {
    let world = transport.world();
    let lens = [0, 1, 1000, 300_000];
    let layouts = lens.map(Layout::flat);
    let mut transport = transport;
    for toy in [Toy::Direct, Toy::Gather] {
        let driver = Driver::for_layouts(transport, &toy, &layouts).unwrap();
        let mut driver = driver.with_timeout(PATIENCE);
        let gradients = lens.map(|len| gradient(world.rank(), 0, len as usize));
        let inputs: Vec<_> = gradients.iter().map(|g| input(g, 0)).collect();
        driver.all_reduce(&inputs).unwrap();
        for update in driver.updates() {
            assert_sum(update, world, 0, 0);
        }
        (transport, _) = driver.into_parts();
    }
}

/// Eight buckets in flight at once, begun in another order on every worker, over steps that some workers enter early.
///
/// # Panics
/// When the transport breaks the rule.
pub fn eight_overlapped_buckets_do_not_mix(transport: Box<dyn Transport>) {
    let world = transport.world();
    let rank = world.rank();
    let buckets = 8;
    let layouts: Vec<_> = (0..buckets)
        .map(|bucket| Layout::flat(10 * bucket))
        .collect();
    let driver = Driver::for_layouts(transport, &Toy::Gather, &layouts).unwrap();
    let mut driver = driver.with_timeout(PATIENCE);
    for step in 0..6 {
        if step % 3 == u64::from(rank.get()) % 3 {
            thread::sleep(Duration::from_millis(3));
        }
        for i in 0..buckets {
            let bucket = BucketId::new((i * 3 + rank.get()) % buckets);
            let seed = step * 100 + u64::from(bucket.get());
            let gradient = gradient(rank, seed, 10 * bucket.index());
            driver.begin(bucket, input(&gradient, step)).unwrap();
        }
        let report = driver.finish().unwrap();
        assert!(report.all_updated());
        for (bucket, update) in (0..).zip(driver.updates()) {
            assert_sum(update, world, step * 100 + bucket, step);
        }
        driver.commit().unwrap();
    }
}

/// A worker that starts late finds the messages of the others, and they wait for it.
///
/// # Panics
/// When the transport breaks the rule.
pub fn a_late_peer_is_waited_for(transport: Box<dyn Transport>) {
    let world = transport.world();
    let late = Duration::from_millis(60);
    let driver = Driver::for_layouts(transport, &Toy::Direct, &[Layout::flat(5)]).unwrap();
    let mut driver = driver.with_timeout(PATIENCE);
    for step in 0..2 {
        if u64::from(world.rank().get()) == step {
            thread::sleep(late);
        }
        let gradient = gradient(world.rank(), step, 5);
        driver.all_reduce(&[input(&gradient, step)]).unwrap();
        assert_sum(driver.update(BucketId::new(0)), world, step, step);
    }
}

/// Messages may come rounds before they are asked for and be asked for in any order; equal ones keep theirs.
///
/// # Panics
/// When the transport breaks the rule.
pub fn early_messages_are_kept_in_order(mut transport: Box<dyn Transport>) {
    let (rank, size) = (transport.world().rank().get(), transport.world().size());
    let peers = || (0..size).filter(move |&peer| peer != rank).map(Rank::new);
    let buckets = [BucketId::new(4), BucketId::new(9)];
    for (copy, seq) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        for bucket in buckets {
            let mut round = numbered(seq);
            for to in peers() {
                round = round.send(to, stamped([rank, bucket.get(), seq, copy]));
            }
            transport.submit(bucket, round).unwrap();
        }
        for _ in buckets {
            let (_, inbox) = wait(&mut *transport).expect("a round without receives is complete");
            assert_eq!(inbox.messages().count(), 0);
        }
    }
    for (copy, seq) in [(0, 2), (0, 0), (1, 0), (0, 1), (1, 2), (1, 1)] {
        for bucket in buckets.into_iter().rev() {
            let round = peers().fold(numbered(seq), |round, from| round.expect(from, 16));
            transport.submit(bucket, round).unwrap();
        }
        for _ in buckets {
            let (bucket, inbox) = wait(&mut *transport).expect("two rounds are in flight");
            let expected = peers().map(|from| stamped([from.get(), bucket.get(), seq, copy]));
            let expected: Vec<Vec<u8>> = expected.map(Payload::into_wire).collect();
            assert!(inbox.messages().eq(expected), "in the order of the plan");
        }
    }
    assert!(wait(&mut *transport).is_none());
}

/// Nothing in flight is said at once; a second round of a bucket and a peer outside the world are refused.
///
/// # Panics
/// When the transport breaks the rule.
pub fn wrong_rounds_are_refused(mut transport: Box<dyn Transport>) {
    let (rank, size) = (transport.world().rank(), transport.world().size());
    let bucket = BucketId::new(0);
    let started = Instant::now();
    assert!(wait(&mut *transport).is_none());
    assert!(transport.poll().unwrap().is_none());
    assert!(
        started.elapsed() < PATIENCE,
        "nothing in flight, nothing to wait for"
    );
    for stranger in [rank, Rank::new(size)] {
        let to = Round::new().send(stranger, Payload::with_capacity(0));
        let from = Round::new().expect(stranger, 0);
        for round in [to, from] {
            let error = transport.submit(bucket, round).unwrap_err();
            assert!(
                matches!(error, TransportError::NoSuchPeer { .. }),
                "{error}"
            );
        }
    }
    assert!(
        wait(&mut *transport).is_none(),
        "a refused round is not in flight"
    );
    transport.submit(bucket, Round::new()).unwrap();
    let error = transport.submit(bucket, Round::new()).unwrap_err();
    assert!(matches!(error, TransportError::Busy { .. }), "{error}");
    assert!(
        transport.poll().unwrap().is_some(),
        "a round without messages is complete"
    );
}

pub(super) fn input(gradient: &[f32], step: u64) -> Input<'_> {
    Input::new(gradient, 1, step)
}

pub(super) fn wait(transport: &mut dyn Transport) -> Option<(BucketId, Inbox<'_>)> {
    let deadline = Deadline::after(transport.clock().now(), PATIENCE);
    transport.wait_any(deadline).unwrap()
}

pub(super) fn numbered(seq: u32) -> Round {
    Round {
        seq,
        ..Round::new()
    }
}

fn stamped(stamp: [u32; 4]) -> Payload {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend(stamp.iter().flat_map(|field| field.to_le_bytes()));
    Payload::from_wire(bytes)
}
