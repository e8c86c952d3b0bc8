use super::*;

fn rank(rank: u32) -> Rank {
    Rank::new(rank)
}

fn table() -> RoundTable {
    RoundTable::new(World::new(0, 4).unwrap())
}

fn expect(table: &mut RoundTable, bucket: u32, round: u32, from: &[u32]) {
    let recvs: Vec<_> = from
        .iter()
        .map(|&from| Expected {
            from: rank(from),
            max_bytes: 1,
        })
        .collect();
    let now = Time::from_nanos(100);
    table
        .expect(BucketId::new(bucket), round, &recvs, now)
        .unwrap();
}

fn deliver(table: &mut RoundTable, from: u32, stamp: Stamp, bucket: u32, round: u32, text: &str) {
    let payload = Payload::from_wire(text.as_bytes().to_vec());
    table.deliver(rank(from), stamp, BucketId::new(bucket), round, payload);
}

fn pop(table: &mut RoundTable) -> Option<(u32, Vec<String>)> {
    let bucket = table.take_complete()?;
    let inbox = table.inbox();
    let texts = inbox
        .messages()
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    Some((bucket.get(), texts.collect()))
}

/// Who gave up what this worker waits for.
fn abandoned_by(table: &RoundTable) -> Option<Rank> {
    match table.in_vain()? {
        TransportError::Abandoned { by, .. } => Some(by),
        error => panic!("{error}"),
    }
}

const START: Stamp = Stamp {
    epoch: 0,
    finished: 0,
};

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |shorter: Vec<usize>| {
        (0..n).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            longer
        })
    };
    permutations(n - 1).into_iter().flat_map(insert).collect()
}

#[test]
fn rounds_come_out_whole_and_in_plan_order_for_every_order_of_arrival_and_asking() {
    let messages = [
        (3, 0, 0, "a"),
        (1, 0, 0, "b"),
        (2, 0, 1, "c"),
        (1, 5, 0, "d"),
        (2, 5, 0, "e"),
    ];
    for order in permutations(messages.len()) {
        for asked in 0..=messages.len() {
            let mut table = table();
            let mut seen = Vec::new();
            let mut next_of_bucket_0 = vec![(1, vec![2]), (0, vec![3, 1])];
            for (i, &m) in order.iter().enumerate() {
                if i == asked {
                    expect(&mut table, 5, 0, &[2, 1]);
                    let (round, from) = next_of_bucket_0.pop().unwrap();
                    expect(&mut table, 0, round, &from);
                }
                let (from, bucket, round, text) = messages[m];
                deliver(&mut table, from, START, bucket, round, text);
            }
            if asked == messages.len() {
                expect(&mut table, 5, 0, &[2, 1]);
                expect(&mut table, 0, 0, &[3, 1]);
            }
            seen.extend([pop(&mut table).unwrap(), pop(&mut table).unwrap()]);
            expect(&mut table, 0, 1, &[2]);
            seen.push(pop(&mut table).unwrap());
            seen.sort();
            let whole = |bucket, texts: &[&str]| {
                (
                    bucket,
                    texts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                )
            };
            assert_eq!(
                seen,
                [
                    whole(0, &["a", "b"]),
                    whole(0, &["c"]),
                    whole(5, &["e", "d"])
                ]
            );
            assert!(table.is_idle() && table.take_complete().is_none() && table.early.is_empty());
        }
    }
}

#[test]
fn messages_of_the_next_step_wait_for_their_turn() {
    let mut table = table();
    deliver(&mut table, 1, START, 0, 0, "now");
    deliver(
        &mut table,
        1,
        Stamp {
            finished: 1,
            ..START
        },
        0,
        0,
        "next",
    );
    for text in ["now", "next"] {
        expect(&mut table, 0, 0, &[1]);
        assert_eq!(pop(&mut table).unwrap().1, [text]);
    }
}

#[test]
fn a_message_of_a_lost_step_never_meets_a_later_one() {
    let mut table = table();
    deliver(&mut table, 1, START, 0, 0, "early and lost");
    expect(&mut table, 1, 0, &[2]);
    let stamp = table.abandon();
    assert_eq!(
        stamp,
        Stamp {
            epoch: 1,
            finished: 0
        }
    );
    deliver(&mut table, 1, START, 0, 0, "late and lost");
    expect(&mut table, 0, 0, &[1]);
    assert!(pop(&mut table).is_none());
    deliver(&mut table, 1, stamp, 0, 0, "good");
    assert_eq!(pop(&mut table), Some((0, vec!["good".to_owned()])));
}

#[test]
fn messages_of_a_step_that_their_sender_gave_up_are_dropped_and_those_of_its_finished_steps_kept() {
    let mut table = table();
    deliver(&mut table, 1, START, 0, 0, "finished");
    deliver(
        &mut table,
        1,
        Stamp {
            epoch: 0,
            finished: 1,
        },
        0,
        0,
        "given up",
    );
    deliver(
        &mut table,
        1,
        Stamp {
            epoch: 1,
            finished: 1,
        },
        0,
        0,
        "again",
    );
    assert!(abandoned_by(&table).is_none(), "nothing is awaited");
    expect(&mut table, 0, 0, &[1]);
    assert_eq!(pop(&mut table).unwrap().1, ["finished"]);
    expect(&mut table, 0, 0, &[1]);
    assert!(pop(&mut table).is_none());
    assert_eq!(abandoned_by(&table), Some(rank(1)));
    assert_eq!(table.abandon().epoch, 1);
    expect(&mut table, 0, 0, &[1]);
    assert_eq!(pop(&mut table).unwrap().1, ["again"]);
}

#[test]
fn a_complete_round_is_incomplete_again_when_a_sender_gives_up() {
    let mut table = table();
    expect(&mut table, 0, 0, &[1, 2]);
    deliver(&mut table, 1, START, 0, 0, "one");
    deliver(&mut table, 2, START, 0, 0, "two");
    table.note_stamp(
        rank(2),
        Stamp {
            epoch: 1,
            finished: 0,
        },
    );
    assert!(pop(&mut table).is_none());
    assert_eq!(abandoned_by(&table), Some(rank(2)));
    let waiting = table.waiting(Time::from_nanos(150));
    assert_eq!(waiting[0].peers, [rank(2)]);
    assert_eq!(waiting[0].waited.as_nanos(), 50);
}

#[test]
fn workers_that_fail_together_or_in_turn_meet_in_one_epoch() {
    let (mut first, mut second) = (table(), table());
    first.abandon();
    second.note_stamp(rank(1), first.stamp());
    assert_eq!(second.abandon().epoch, first.stamp().epoch);
    first.note_stamp(rank(2), second.stamp());
    assert_eq!(first.abandon().epoch, second.abandon().epoch);
}

#[test]
fn a_stamp_survives_its_envelope() {
    let stamp = Stamp {
        epoch: 7,
        finished: u32::MAX - 1,
    };
    assert_eq!(Stamp::from_le_bytes(stamp.to_le_bytes()), stamp);
}

#[test]
fn only_a_missing_message_of_a_peer_that_left_makes_a_wait_vain() {
    let mut table = table();
    deliver(&mut table, 1, START, 0, 0, "last words");
    table.leave(rank(1));
    assert!(table.in_vain().is_none(), "nothing is awaited");
    expect(&mut table, 0, 0, &[1]);
    assert!(table.in_vain().is_none() && table.has_complete());
    assert_eq!(pop(&mut table).unwrap().1, ["last words"]);
    expect(&mut table, 6, 2, &[3, 1]);
    match table.in_vain() {
        Some(TransportError::PeerLost {
            peer,
            bucket,
            round,
            ..
        }) => assert_eq!((peer, bucket.get(), round), (rank(1), 6, 2)),
        other => panic!("{other:?}"),
    }
    table.note_stamp(rank(3), Stamp { epoch: 1, ..START });
    assert!(
        matches!(table.in_vain(), Some(TransportError::PeerLost { .. })),
        "a loss says more than a step given up"
    );
    assert!(!table.is_alone());
    table.leave(rank(2));
    table.leave(rank(3));
    assert!(table.is_alone());
}

#[test]
fn buffers_of_a_lent_round_can_be_used_again() {
    let mut table = table();
    expect(&mut table, 0, 0, &[2, 1]);
    deliver(&mut table, 1, START, 0, 0, "one");
    deliver(&mut table, 2, START, 0, 0, "two");
    assert_eq!(pop(&mut table).unwrap().1, ["two", "one"]);
    let buffers: Vec<Vec<u8>> = table.reclaim().collect();
    assert_eq!(buffers, [b"two", b"one"]);
    assert_eq!(table.inbox().messages().count(), 0);
}
