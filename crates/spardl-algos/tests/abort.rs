//! A step that fails is as if it had never begun: abort brings back the state, and the same step then gives the same bits.

use spardl_core::{ConfigError, HEADER_LEN, Inbox, Input, ProtocolError, Step};
use spardl_drive::{DriveError, TransportError};
use spardl_sim::Fault;
use spardl_testkit::{Sent, Trial, check, configurations, generate};

const LEN: usize = 60;
const K: usize = 12;

/// A trial after one good step, and the messages of its next.
fn started(trial: &mut Trial, workers: u32) -> (Vec<Vec<f32>>, Vec<Sent>) {
    trial.step(&generate::fractions(1, workers, LEN), K, 0);
    let gradients = generate::fractions(2, workers, LEN);
    let sent = trial.messages(&gradients, K, 1);
    (gradients, sent)
}

/// The update of step 1, undone again.
fn tried(trial: &mut Trial, gradients: &[Vec<f32>]) -> Vec<u32> {
    trial.heal();
    trial.run(gradients, K, 1);
    let update = check::agreed(trial.cluster.workers(), &trial.context);
    trial.cluster.abort();
    check::bits(&update)
}

#[test]
fn after_any_lost_message_abort_and_retry_give_the_undisturbed_bits() {
    for workers in [2, 3, 4, 6] {
        for algorithm in configurations::every(workers) {
            let mut trial =
                Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            let (gradients, messages) = started(&mut trial, workers);
            let before = trial.kept();
            let expected = tried(&mut trial, &gradients);
            for sent in &messages {
                trial.strike(sent, Fault::Drop);
                let error = trial.cluster.step(&gradients, K, 1).unwrap_err();
                let context = format!("{} {} -> {}", trial.context, sent.from, sent.to);
                let late = matches!(error, DriveError::Transport(TransportError::Timeout { .. }));
                assert!(late, "{context}: {error}");
                assert!(before == trial.kept(), "{context}: left a trace");
                assert!(
                    expected == tried(&mut trial, &gradients),
                    "{context}: retry"
                );
            }
        }
    }
}

/// The message as a faulty wire or a confused peer might deliver it.
fn damaged(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lengths = [
        0,
        1,
        HEADER_LEN - 1,
        HEADER_LEN,
        HEADER_LEN + 1,
        bytes.len() - 1,
    ];
    let mut all: Vec<Vec<u8>> = lengths
        .into_iter()
        .filter(|&len| len < bytes.len())
        .map(|len| bytes[..len].to_vec())
        .collect();
    // Version, bucket, configuration, layout, step, round and sender.
    for at in [0, 2, 4, 8, 12, 16, 18] {
        let mut wrong = bytes.to_vec();
        wrong[at] = wrong[at].wrapping_add(1);
        all.push(wrong);
    }
    all
}

#[test]
fn a_message_that_belongs_elsewhere_is_refused_by_name_and_leaves_no_trace() {
    for workers in [2, 3, 4] {
        for algorithm in configurations::every(workers) {
            let mut trial =
                Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            let (gradients, messages) = started(&mut trial, workers);
            let before = trial.kept();
            let expected = tried(&mut trial, &gradients);
            for sent in &messages {
                for bytes in damaged(&sent.bytes) {
                    trial.strike(sent, Fault::Replace(bytes));
                    let context = format!("{} {} -> {}", trial.context, sent.from, sent.to);
                    let Err(DriveError::Protocol { world, source, .. }) =
                        trial.cluster.step(&gradients, K, 1)
                    else {
                        panic!("{context}: a damaged message was accepted");
                    };
                    let from = match source {
                        ProtocolError::Damaged { from, .. }
                        | ProtocolError::WrongHeader { from, .. } => from,
                        other => panic!("{context}: {other}"),
                    };
                    assert_eq!((world.rank(), from), (sent.to, sent.from), "{context}");
                }
                assert!(before == trial.kept(), "{}: left a trace", trial.context);
            }
            assert!(
                expected == tried(&mut trial, &gradients),
                "{}",
                trial.context
            );
        }
    }
}

fn out_of_turn<T>(result: Result<T, ConfigError>) -> bool {
    matches!(result, Err(ConfigError::OutOfTurn { .. }))
}

/// The mistake of the caller in an error of a whole cluster.
fn mistake<T>(result: Result<T, DriveError>) -> Result<T, ConfigError> {
    result.map_err(|error| match error {
        DriveError::Config { source, .. } => source,
        error => panic!("{error}"),
    })
}

#[test]
fn calls_out_of_turn_are_refused_and_change_nothing() {
    for algorithm in configurations::every(2) {
        let mut trial = Trial::with_layout(&*algorithm, 2, &generate::layout(2, LEN));
        let gradients = generate::fractions(1, 2, LEN);
        let input = Input::new(&gradients[0], K, 0);
        let worker = trial.cluster.workers_mut().swap_remove(0);
        let (context, state) = (&trial.context, worker.state());
        assert!(out_of_turn(worker.commit()), "{context}: nothing to commit");
        assert!(worker.resume(Inbox::default()).is_err(), "{context}");
        assert!(
            matches!(worker.begin(input), Ok(Step::Exchange(_))),
            "{context}"
        );
        assert!(out_of_turn(worker.begin(input)), "{context}: begin twice");
        assert!(out_of_turn(worker.commit()), "{context}: not done yet");
        assert!(out_of_turn(worker.restore(&state)), "{context}: in a step");
        let surplus = worker.resume(Inbox::borrowed([&[][..]; 3]));
        let refused = matches!(surplus, Err(ProtocolError::WrongCount { .. }));
        assert!(refused, "{context}: more messages than were asked for");
        let again = worker.resume(Inbox::default());
        let poisoned = matches!(again, Err(ProtocolError::Poisoned));
        assert!(poisoned, "{context}: only abort helps");
        worker.abort();
        worker.abort();
        trial.step(&gradients, K, 0);
        assert!(
            out_of_turn(mistake(trial.cluster.commit())),
            "{}: twice",
            trial.context
        );
        let short = trial.cluster.step(&[vec![0.0; LEN - 1], vec![]], K, 1);
        let wrong = matches!(mistake(short), Err(ConfigError::GradientLength { .. }));
        assert!(wrong, "{}: length", trial.context);
    }
}
