//! Workers that differ in anything they must agree on refuse each other's messages, by name: no silent disagreement.

use spardl_core::{
    Algorithm, Collective, HeaderField, Inbox, Input, Layout, Outgoing, Payload, ProtocolError,
    Step, World,
};
use spardl_testkit::{configurations, generate};

const LEN: usize = 120;
const K: usize = 12;

/// Two workers that may differ; each has its own k.
fn run(pair: &mut [Collective; 2], ks: [usize; 2]) -> Result<(), ProtocolError> {
    let gradients = generate::integers(5, 2, LEN);
    let mut steps: Vec<Step> = Vec::new();
    for ((worker, gradient), k) in pair.iter_mut().zip(&gradients).zip(ks) {
        let input = Input::new(gradient, k, 0);
        steps.push(worker.begin(input).expect("a valid step"));
    }
    loop {
        let mut mail: [Option<Payload>; 2] = [None, None];
        let mut waits = [false; 2];
        for (rank, step) in steps.drain(..).enumerate() {
            if let Step::Exchange(round) = step {
                waits[rank] = true;
                for Outgoing { to, payload } in round.sends {
                    mail[to.index()] = Some(payload);
                }
            }
        }
        if waits == [false, false] {
            return Ok(());
        }
        for (worker, payload) in pair.iter_mut().zip(mail) {
            steps.push(worker.resume(Inbox::new(payload.into_iter().collect()))?);
        }
    }
}

fn refused(pair: &mut [Collective; 2], ks: [usize; 2], context: &str) -> HeaderField {
    match run(pair, ks) {
        Err(ProtocolError::WrongHeader { field, .. }) => field,
        other => panic!("{context}: {other:?}"),
    }
}

fn pair(algorithms: [&dyn Algorithm; 2], layouts: [&Layout; 2]) -> [Collective; 2] {
    let worker = |rank: usize| {
        let world = World::new(rank as u32, 2).unwrap();
        algorithms[rank].collective(world, layouts[rank]).unwrap()
    };
    [worker(0), worker(1)]
}

fn layout(tensors: &[(&str, &[usize])]) -> Layout {
    Layout::new(tensors.iter().map(|(name, shape)| (*name, shape.to_vec()))).unwrap()
}

#[test]
fn the_same_tensors_in_another_order_or_shape_are_refused_as_another_layout() {
    let here = layout(&[("a", &[4, 10]), ("b", &[8, 10])]);
    let elsewhere = [
        layout(&[("b", &[8, 10]), ("a", &[4, 10])]),
        layout(&[("a", &[10, 4]), ("b", &[8, 10])]),
        layout(&[("a", &[4, 10]), ("c", &[8, 10])]),
        Layout::flat(LEN as u32),
    ];
    for algorithm in configurations::all(2) {
        for there in &elsewhere {
            let mut pair = pair([&*algorithm; 2], [&here, there]);
            let context = algorithm.describe();
            assert_eq!(refused(&mut pair, [K; 2], &context), HeaderField::Layout);
        }
    }
}

#[test]
fn swapped_buckets_of_equal_length_are_refused() {
    let layout = Layout::flat(LEN as u32);
    for algorithm in configurations::all(2) {
        let mut pair = pair([&*algorithm; 2], [&layout; 2]);
        pair[1].set_bucket(1);
        let context = algorithm.describe();
        assert_eq!(refused(&mut pair, [K; 2], &context), HeaderField::Bucket);
    }
}

#[test]
fn another_method_or_k_is_refused_as_another_configuration() {
    let layout = Layout::flat(LEN as u32);
    let all = configurations::all(2);
    for (i, algorithm) in all.iter().enumerate() {
        let context = algorithm.describe();
        let mut unequal = pair([&**algorithm; 2], [&layout; 2]);
        let field = refused(&mut unequal, [K, K + 1], &context);
        assert_eq!(field, HeaderField::Configuration);
        let other = &all[(i + 1) % all.len()];
        let mut strangers = pair([&**algorithm, &**other], [&layout; 2]);
        // A message is looked at in full only where one is awaited: otherwise the count is wrong.
        match run(&mut strangers, [K; 2]) {
            Err(ProtocolError::WrongHeader { field, .. }) => {
                assert_eq!(field, HeaderField::Configuration, "{context}");
            }
            Err(ProtocolError::WrongCount { .. }) => {}
            other => panic!("{context}: {other:?}"),
        }
    }
}
