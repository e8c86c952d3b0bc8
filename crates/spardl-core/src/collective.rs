//! The contract between a method and whatever moves its messages.
//!
//! A method writes a [`Machine`]: it says what to exchange next and never does it. A [`Collective`] wraps the machine with
//! what all methods share, once: headers and their checks, the non-finite rule, commit and abort. A driver calls
//! [`Collective::begin`], moves the [`Round`] it gets, hands the [`Inbox`] to [`Collective::resume`], and so on until
//! [`Step::Done`]; then it reads the update and commits or aborts.

mod kept;
mod messages;
mod update;

use std::fmt;
use std::sync::Arc;

use crate::error::{ConfigError, ProtocolError};
use crate::feedback::Feedback;
use crate::gradient::Input;
use crate::header::{FLAG_NON_FINITE, Fingerprint, HEADER_LEN, Header, MAX_BODY};
use crate::parallel::Parallel;
use crate::sparse::SparseVec;
use crate::state::MethodState;
use crate::world::World;

pub use self::messages::{Expected, Inbox, Outgoing, Payload, Received, Round};
pub use self::update::Update;

/// What a collective wants next.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// Move this round and call `resume` with its inbox.
    Exchange(Round),
    /// The step is over; read [`Collective::update`], then commit or abort.
    Done(Outcome),
}

/// How a step ended, the same on every worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is an update to apply.
    Updated,
    /// The step is skipped on all workers and the state is as before it.
    Skipped(SkipReason),
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// Some worker's gradient held NaN or an infinity.
    NonFinite,
    /// The gradients were finite but a sum overflowed.
    Overflow,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NonFinite => "a gradient held NaN or an infinity",
            Self::Overflow => "a sum of gradients overflowed",
        })
    }
}

/// What a machine counted in the current step; it explains speed and never changes results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodStats {
    /// Blocks whose candidates did not suffice and were scanned again.
    pub rescans: u64,
    /// Entries put into messages, forwarded ones included. An entry is a value that travels, with its index or, in dense sums,
    /// without; an index that travels without a value is none.
    pub entries_sent: u64,
    /// Entries this worker selected from its own array.
    pub selected: u64,
}

/// One worker's side of a method: what a new method implements.
///
/// It has the shape of the [phases](crate::phase) it embeds. The collective calls `begin`, then `round` and `absorb` in turn
/// until `round` has nothing more to exchange; the machine performs no I/O, reads no clock, spawns nothing.
pub trait Machine: fmt::Debug + Send {
    /// Starts a step: accumulates the gradient in `feedback`, which mutes a worker whose gradient is not finite, and selects
    /// what it sends first.
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>);

    /// What to exchange now, asked once per round; the collective numbers the round and writes the headers. `None`: the update is
    /// complete and `work` holds the next residual.
    ///
    /// # Errors
    /// When what came in earlier rounds breaks the plan; the collective is then poisoned until `abort`.
    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError>;

    /// Takes the messages of the round it asked for.
    ///
    /// # Errors
    /// As [`Machine::round`].
    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError>;

    /// The update of the finished step.
    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a>;

    /// What was counted in the current step.
    fn stats(&self) -> MethodStats;

    /// The small state that lives on from step to step besides the residual (thresholds, h, partitions).
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// The part of [`Machine::state`] that has the same bits on all workers, and has to: where it differs, so would their updates.
    /// Workers compare its hash in every step. A method of which workers keep parts for themselves says what is left.
    fn replicated(&self) -> MethodState {
        self.state()
    }

    /// Takes back a state that [`Machine::state`] gave.
    ///
    /// # Errors
    /// When the state does not fit this machine.
    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        state.expect_empty()
    }
}

/// One worker's side of a repeated all-reduce on one bucket.
#[derive(Debug)]
pub struct Collective {
    world: World,
    fingerprint: Fingerprint,
    feedback: Feedback,
    machine: Box<dyn Machine>,
    phase: Phase,
    header: Header,
    flags: u8,
    fresh: MethodState,
    before: MethodState,
    empty: SparseVec,
    has_update: bool,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Exchanging(Vec<Expected>),
    Finished(Outcome),
    Poisoned,
}

impl Phase {
    const fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Exchanging(_) => "in the middle of a step",
            Self::Finished(_) => "finished and neither committed nor aborted",
            Self::Poisoned => "unusable after an error",
        }
    }
}

impl Collective {
    /// Wraps a machine; `fingerprint` is what all workers must agree on.
    pub fn new(
        world: World,
        fingerprint: Fingerprint,
        feedback: Feedback,
        machine: Box<dyn Machine>,
    ) -> Self {
        let fresh = machine.state();
        let empty = SparseVec::new(u32::try_from(feedback.len()).unwrap_or(u32::MAX));
        Self {
            world,
            fingerprint,
            feedback,
            machine,
            phase: Phase::Idle,
            header: Header::default(),
            flags: 0,
            before: MethodState::default(),
            fresh,
            empty,
            has_update: false,
        }
    }

    /// This worker and the size of its world.
    pub const fn world(&self) -> World {
        self.world
    }

    /// Says which bucket this is, so that a message of another one is refused by name. Bucket 0 unless said.
    pub const fn set_bucket(&mut self, bucket: u32) {
        self.fingerprint.set_bucket(bucket);
    }

    /// Lets this worker use several threads from the next step on. The bits are the same for any number of them.
    pub fn set_threads(&mut self, threads: Arc<dyn Parallel>) {
        self.feedback.set_threads(threads);
    }

    /// The length of the bucket.
    pub fn len(&self) -> usize {
        self.feedback.len()
    }

    /// Is the bucket empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a step of training.
    ///
    /// # Errors
    /// When the gradient has the wrong length, the last step was neither committed nor aborted, or a message would be too long.
    pub fn begin(&mut self, input: Input<'_>) -> Result<Step, ConfigError> {
        self.between_steps("begin")?;
        if input.gradient.len() != self.feedback.len() {
            return Err(ConfigError::GradientLength {
                expected: self.feedback.len(),
                got: input.gradient.len(),
            });
        }
        self.before = self.machine.state();
        self.has_update = false;
        self.flags = 0;
        let (replicated, rank) = (self.machine.replicated(), self.world.rank());
        self.header = Header::new(self.fingerprint, &replicated, input.k, input.step, rank);
        self.feedback.start(input.finite);
        self.machine.begin(&mut self.feedback, input);
        self.phase = Phase::Poisoned;
        self.advance().map_err(|error| match error {
            ProtocolError::Config(error) => {
                self.abort();
                error
            }
            other => unreachable!("nothing has come from outside yet: {other}"),
        })
    }

    /// Hands in the messages of the round that was asked for.
    ///
    /// # Errors
    /// When a message is missing, damaged or belongs elsewhere. The collective can then only be aborted.
    pub fn resume(&mut self, inbox: Inbox<'_>) -> Result<Step, ProtocolError> {
        let expected = match std::mem::replace(&mut self.phase, Phase::Poisoned) {
            Phase::Exchanging(expected) => expected,
            Phase::Poisoned => return Err(ProtocolError::Poisoned),
            other => {
                let state = other.name();
                self.phase = other;
                return Err(ConfigError::OutOfTurn {
                    call: "resume",
                    state,
                }
                .into());
            }
        };
        let round = self.header.round();
        if inbox.0.len() != expected.len() {
            let (expected, got) = (expected.len(), inbox.0.len());
            return Err(ProtocolError::WrongCount {
                round,
                expected,
                got,
            });
        }
        let mut bodies = Vec::with_capacity(expected.len());
        for (message, expected) in inbox.messages().zip(&expected) {
            let (flags, body) = self.header.check(message, *expected)?;
            self.flags |= flags;
            bodies.push(body);
        }
        let received = Received {
            round,
            expected: &expected,
            bodies: &bodies,
        };
        self.machine.absorb(&mut self.feedback, received)?;
        self.header.next_round();
        self.advance()
    }

    fn advance(&mut self) -> Result<Step, ProtocolError> {
        let round = self.machine.round(&mut self.feedback)?;
        if self.feedback.is_flagged() {
            self.flags |= FLAG_NON_FINITE;
        }
        Ok(match round {
            Some(mut round) => {
                round.seq = self.header.round();
                for outgoing in &mut round.sends {
                    let bytes = outgoing.payload.wire_len() - HEADER_LEN;
                    if bytes > MAX_BODY {
                        let limit = MAX_BODY;
                        return Err(ConfigError::MessageTooLong { bytes, limit }.into());
                    }
                    self.header.write(self.flags, &mut outgoing.payload.0);
                }
                self.phase = Phase::Exchanging(round.recvs.clone());
                Step::Exchange(round)
            }
            None => {
                let outcome = if self.flags & FLAG_NON_FINITE != 0 {
                    Outcome::Skipped(SkipReason::NonFinite)
                } else if !self.machine.update(&self.feedback).is_finite() {
                    Outcome::Skipped(SkipReason::Overflow)
                } else {
                    Outcome::Updated
                };
                self.has_update = outcome == Outcome::Updated;
                self.phase = Phase::Finished(outcome);
                Step::Done(outcome)
            }
        })
    }

    /// The sum over workers, after [`Step::Done`] and until the next `begin`; empty when the step was skipped.
    pub fn update(&self) -> Update<'_> {
        if self.has_update {
            self.machine.update(&self.feedback)
        } else {
            Update::Sparse(&self.empty)
        }
    }

    /// Makes the finished step final: its residual becomes the state.
    ///
    /// # Errors
    /// When there is no finished, updated step to commit.
    pub fn commit(&mut self) -> Result<(), ConfigError> {
        if !matches!(self.phase, Phase::Finished(Outcome::Updated)) {
            return Err(ConfigError::OutOfTurn {
                call: "commit",
                state: self.phase.name(),
            });
        }
        self.feedback.commit();
        self.phase = Phase::Idle;
        Ok(())
    }

    /// Drops the current step at any point: residual and method state are exactly as before its `begin`.
    pub fn abort(&mut self) {
        if matches!(self.phase, Phase::Idle) {
            return;
        }
        self.machine
            .restore(&self.before)
            .expect("a machine takes back its own state");
        self.phase = Phase::Idle;
        self.has_update = false;
    }

    /// What was counted in the current step.
    pub fn stats(&self) -> MethodStats {
        self.machine.stats()
    }

    const fn between_steps(&self, call: &'static str) -> Result<(), ConfigError> {
        if matches!(self.phase, Phase::Idle) {
            return Ok(());
        }
        let state = self.phase.name();
        Err(ConfigError::OutOfTurn { call, state })
    }
}
