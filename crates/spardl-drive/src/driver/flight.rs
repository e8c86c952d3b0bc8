//! Rounds in flight: from what a collective asks for to what came of it.

use std::time::Duration;

use spardl_core::{Collective, Input, Step};

use super::{Driver, buckets};
use crate::error::DriveError;
use crate::report::{BucketReport, Counts, StepReport};
use crate::run::{Run, Stage, Traffic};
use crate::time::{Deadline, Time};
use crate::transport::{BucketId, Transport};

impl<T: Transport> Driver<T> {
    pub(super) fn start(&mut self, bucket: BucketId, input: Input<'_>) -> Result<(), DriveError> {
        if self.is_idle() {
            self.waited = Duration::ZERO;
        }
        self.runs[bucket.index()].counts = Counts::default();
        let started = self.clock.now();
        let step = self.collectives[bucket.index()].begin(input);
        self.runs[bucket.index()].counts.select = self.clock.now().since(started);
        self.follow(
            bucket,
            step.map_err(|source| DriveError::Config { bucket, source })?,
        )
    }

    /// Does what a collective asks for.
    fn follow(&mut self, bucket: BucketId, step: Step) -> Result<(), DriveError> {
        let run = &mut self.runs[bucket.index()];
        match step {
            Step::Done(outcome) => {
                run.counts.stats = self.collectives[bucket.index()].stats();
                run.stage = Stage::Done(outcome);
            }
            Step::Exchange(round) => {
                run.counts.rounds += 1;
                run.counts.messages += round.sends.len() as u64;
                let sizes = round
                    .sends
                    .iter()
                    .map(|send| send.payload.wire_len() as u64);
                run.sent = Traffic {
                    messages: round.sends.len() as u64,
                    bytes: sizes.sum(),
                };
                run.counts.bytes_sent += run.sent.bytes;
                run.stage = Stage::InFlight {
                    since: self.clock.now(),
                };
                self.transport.submit(bucket, round)?;
            }
        }
        Ok(())
    }

    /// Takes a complete round from the transport and goes on with its bucket; false when there is none. Waits for one
    /// when there is a deadline.
    fn advance(&mut self, deadline: Option<Deadline>) -> Result<bool, DriveError> {
        let world = self.transport.world();
        let complete = match deadline {
            None => self.transport.poll()?,
            Some(deadline) => {
                let asked = self.clock.now();
                let complete = self.transport.wait_any(deadline)?;
                self.waited += self.clock.now().since(asked);
                complete
            }
        };
        let Some((bucket, inbox)) = complete else {
            return Ok(false);
        };
        let arrived = self.clock.now();
        let run = &mut self.runs[bucket.index()];
        if let Stage::InFlight { since } = run.stage {
            run.counts.exchange += arrived.since(since);
        }
        let sizes = inbox.messages().map(|message| message.len() as u64);
        let received = Traffic {
            messages: inbox.messages().count() as u64,
            bytes: sizes.sum(),
        };
        run.counts.bytes_received += received.bytes;
        run.counts.path_messages += received.messages.max(run.sent.messages);
        run.counts.path_bytes += received.bytes.max(run.sent.bytes);
        let step = self.collectives[bucket.index()].resume(inbox);
        run.counts.merge += self.clock.now().since(arrived);
        let step = step.map_err(|source| DriveError::Protocol {
            world,
            bucket,
            source,
        })?;
        self.follow(bucket, step)?;
        Ok(true)
    }

    pub(super) fn progress(&mut self) -> Result<(), DriveError> {
        while self.advance(None)? {}
        Ok(())
    }

    pub(super) fn check_deadline(&mut self) -> Result<(), DriveError> {
        match self.deadline() {
            // The transport knows who is missing.
            Some(deadline) if deadline.has_passed(self.clock.now()) => {
                self.advance(Some(deadline)).map(drop)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn wait_for_all(&mut self) -> Result<(), DriveError> {
        while let Some(deadline) = self.deadline() {
            self.advance(Some(deadline))?;
        }
        Ok(())
    }

    pub(super) fn oldest_in_flight(&self) -> Option<Time> {
        let since = self.runs.iter().filter_map(|run| match run.stage {
            Stage::InFlight { since } => Some(since),
            Stage::Idle | Stage::Done(_) => None,
        });
        since.min()
    }

    pub(super) fn check_none_in_flight(&self, call: &'static str) -> Result<(), DriveError> {
        let in_flight = |run: &Run| matches!(run.stage, Stage::InFlight { .. });
        match buckets().zip(&self.runs).find(|(_, run)| in_flight(run)) {
            Some((bucket, run)) => Err(run.stage.out_of_turn(bucket, call)),
            None => Ok(()),
        }
    }

    pub(super) fn report(&self) -> StepReport {
        let reports = buckets().zip(&self.runs);
        let buckets = reports.filter_map(|(bucket, run)| match run.stage {
            Stage::Done(outcome) => Some(BucketReport {
                bucket,
                outcome,
                counts: run.counts,
            }),
            Stage::Idle | Stage::InFlight { .. } => None,
        });
        StepReport {
            buckets: buckets.collect(),
            waited: self.waited,
        }
    }

    pub(super) fn give_up_on_error<R>(
        &mut self,
        result: Result<R, DriveError>,
    ) -> Result<R, DriveError> {
        if result.is_err() {
            // Also when nothing is in flight here: peers may already wait for this worker.
            self.transport.abandon();
            self.reset();
        }
        result
    }

    pub(super) fn reset(&mut self) {
        self.collectives.iter_mut().for_each(Collective::abort);
        for run in &mut self.runs {
            run.stage = Stage::Idle;
        }
    }
}
