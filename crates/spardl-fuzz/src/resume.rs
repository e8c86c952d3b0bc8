//! Any message into the machines of every method.

use std::sync::LazyLock;

use spardl_core::{Algorithm, HEADER_LEN, Inbox, Input, ProtocolError, Step};
use spardl_sim::Fault;
use spardl_testkit::{Sent, Trial, configurations, generate};

use crate::{NOTHING, Outcome};

/// Bytes of the parameters before those of the message.
pub const PARAMETERS: usize = 10;

type Configurations = Vec<Box<dyn Algorithm>>;

/// The fewest workers of a step, and one more than the most.
const WORKERS: (u32, u32) = (2, 7);

/// All methods in all configurations, for each number of workers.
static METHODS: LazyLock<Vec<Configurations>> =
    LazyLock::new(|| (WORKERS.0..WORKERS.1).map(configurations::every).collect());

/// One message of a step is replaced: the step ends or a worker refuses, and after `abort` all is as before.
///
/// The parameters choose method, sizes, how many good steps come before, message, and how the remaining bytes replace it.
pub fn message(data: &[u8]) -> Outcome {
    let Some((parameters, bytes)) = data.split_first_chunk::<PARAMETERS>() else {
        return NOTHING;
    };
    let [
        size,
        config,
        config_high,
        len,
        k,
        clean,
        which,
        which_high,
        manner,
        at,
    ] = *parameters;
    let more = u32::from(size) % (WORKERS.1 - WORKERS.0);
    let workers = WORKERS.0 + more;
    let (len, k) = (usize::from(len) % 90, usize::from(k) % 100);
    let all = &METHODS[more as usize];
    let config = usize::from(u16::from_le_bytes([config, config_high])) % all.len();
    let algorithm = &all[config];
    let mut trial = Trial::new(&**algorithm, workers, len);
    let step = u64::from(clean) % 4;
    let gradients = after_clean_steps(&mut trial, k, step);
    let messages = trial.messages(&gradients, k, step);
    let sent = &messages[usize::from(u16::from_le_bytes([which, which_high])) % messages.len()];
    let before = trial.kept();
    let replaced = replace(&sent.bytes, manner, at, bytes);
    trial.strike(sent, Fault::Replace(replaced));
    // Either is well: the bytes may happen to be valid.
    let result = trial.cluster.step(&gradients, k, step);
    let outcome = match &result {
        Ok(_) => crate::outcome((config, sent.round)),
        Err(error) => crate::outcome((config, sent.round, crate::words(&error.to_string()))),
    };
    trial.cluster.abort();
    assert!(before == trial.kept(), "{}: left a trace", trial.context);
    trial.heal();
    trial.step(&gradients, k, step);
    outcome
}

/// Runs `steps` good steps: some methods take another way once they have a threshold, regions or a length from the steps
/// before. Returns the gradients of the next step.
fn after_clean_steps(trial: &mut Trial, k: usize, steps: u64) -> Vec<Vec<f32>> {
    let first = trial.cluster.workers()[0];
    let (workers, len) = (first.world().size(), first.len());
    let gradients = |step| generate::fractions(step + 1, workers, len);
    for step in 0..steps {
        trial.step(&gradients(step), k, step);
    }
    gradients(steps)
}

/// The message that takes the place of `valid`.
fn replace(valid: &[u8], manner: u8, at: u8, bytes: &[u8]) -> Vec<u8> {
    let body = valid.len() - HEADER_LEN;
    let place =
        |offset: u8| HEADER_LEN + (usize::from(at) * 256 + usize::from(offset)) % body.max(1);
    let mut message = valid.to_vec();
    match manner % 4 {
        0 => return bytes.to_vec(),
        1 => {
            message.truncate(HEADER_LEN);
            message.extend(
                bytes
                    .iter()
                    .cycle()
                    .take(if bytes.is_empty() { 0 } else { body }),
            );
            message.truncate(valid.len() - usize::from(at) % (body + 1));
            let len = (message.len() - HEADER_LEN) as u32;
            message[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&len.to_le_bytes());
        }
        2 => {
            for &[offset, bit] in bytes.as_chunks().0 {
                if let Some(byte) = message.get_mut(place(offset)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        _ => {
            const ODD: [f32; 5] = [f32::NAN, f32::INFINITY, -f32::INFINITY, f32::MAX, 0.0];
            for &[offset, value] in bytes.as_chunks().0 {
                let odd = ODD[usize::from(value) % ODD.len()].to_le_bytes();
                let from = place(offset);
                if let Some(value) = message.get_mut(from..from + odd.len()) {
                    value.copy_from_slice(&odd);
                }
            }
        }
    }
    message
}

/// A worker that gets one message more or one less than it waits for refuses, in every round of every method, in its first
/// step and after others.
pub fn wrong_counts(workers: u32) {
    let (len, k) = (40, 9);
    for algorithm in configurations::every(workers) {
        for clean in [0, 1, 3] {
            let mut trial = Trial::new(&*algorithm, workers, len);
            let gradients = after_clean_steps(&mut trial, k, clean);
            let messages = trial.messages(&gradients, k, clean);
            let input = Input::new(&gradients[0], k, clean);
            let rounds = messages.iter().map(|sent| sent.round + 1).max();
            for bad in 0..rounds.unwrap_or(0) {
                for surplus in [true, false] {
                    refuses_count(&mut trial, input, &messages, bad, surplus);
                }
            }
        }
    }
}

/// Gives worker 0 the messages of the good step, but one too many or too few in round `bad`.
fn refuses_count(trial: &mut Trial, input: Input<'_>, sent: &[Sent], bad: u32, surplus: bool) {
    let worker = trial.cluster.workers_mut().swap_remove(0);
    let mut step = worker.begin(input).expect("the worker is idle");
    while let Step::Exchange(round) = step {
        let mut inbox: Vec<&[u8]> = round
            .recvs
            .iter()
            .map(|expected| bytes_of(sent, round.seq, expected.from.get()))
            .collect();
        if round.seq == bad && surplus {
            inbox.push(&[]);
        } else if round.seq == bad && inbox.pop().is_none() {
            break;
        }
        match worker.resume(Inbox::borrowed(inbox)) {
            Ok(next) if round.seq < bad => step = next,
            Err(ProtocolError::WrongCount { .. }) if round.seq == bad => break,
            other => panic!("{}: {other:?} in round {}", trial.context, round.seq),
        }
    }
    worker.abort();
}

fn bytes_of(messages: &[Sent], round: u32, from: u32) -> &[u8] {
    let sent = messages
        .iter()
        .find(|sent| (sent.round, sent.from.get(), sent.to.get()) == (round, from, 0));
    &sent.expect("the message was sent in the clean step").bytes
}
