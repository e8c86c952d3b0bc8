//! The exchange alone: the messages of a step once more, without local work, through the transport and in a bare loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use spardl_core::{Inbox, Payload, Rank, Round, World};
use spardl_drive::{BucketId, Clock, Deadline, Transport, TransportError};

use super::Case;
use super::stats::median;
use crate::job::Job;

/// The messages that one rank sends: receivers and lengths, round by round.
pub(super) type Sends = Vec<Vec<(u32, usize)>>;

/// Medians over repetitions of the slowest rank's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// Through the transport.
    pub(super) transport_ms: f64,
    /// In the bare loop.
    pub(super) bare_ms: f64,
}

/// A transport that remembers the messages of the last two steps.
pub(super) struct Recorder<'a> {
    inner: &'a mut dyn Transport,
    sends: Sends,
    earlier: [Sends; 2],
}

impl<'a> Recorder<'a> {
    pub(super) fn new(inner: &'a mut dyn Transport) -> Self {
        Self {
            inner,
            sends: Sends::new(),
            earlier: [Sends::new(), Sends::new()],
        }
    }

    /// The messages of the last step but one. (The last is the one in which workers wait for each other.)
    pub(super) fn last_but_one(self) -> Sends {
        let [last_but_one, _] = self.earlier;
        last_but_one
    }
}

impl Transport for Recorder<'_> {
    fn world(&self) -> World {
        self.inner.world()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    fn message_limit(&self) -> usize {
        self.inner.message_limit()
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let at = round.seq as usize;
        if self.sends.len() <= at {
            self.sends.resize(at + 1, Vec::new());
        }
        let sends = round.sends.iter();
        self.sends[at].extend(sends.map(|send| (send.to.get(), send.payload.wire_len())));
        self.inner.submit(bucket, round)
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner.poll()
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner.wait_any(deadline)
    }

    fn complete_step(&mut self) {
        self.earlier.swap(0, 1);
        self.earlier[1] = std::mem::take(&mut self.sends);
        self.inner.complete_step();
    }

    fn abandon(&mut self) {
        self.sends.clear();
        self.inner.abandon();
    }
}

/// Times the messages of a step both ways in turn, as often as there are iterations.
pub(super) fn measure(case: &Case<'_>, job: &mut Job, sends: &Sends) -> anyhow::Result<Alone> {
    let plan = job
        .gather(&serde_json::to_vec(sends)?)?
        .iter()
        .map(|sends| serde_json::from_slice(sends))
        .collect::<Result<Vec<Sends>, _>>()
        .context("reading another rank's messages")?;
    let mut bare_loop = job.bare_loop(&plan, case.deadline)?;
    let mut times = Vec::new();
    for _ in 0..case.args.warmup + case.args.iterations {
        let transport_ms = through(job, &plan, case.deadline)?;
        job.barrier()?;
        let bare_ms = bare_loop.run(case.deadline)?.as_secs_f64() * 1e3;
        times.push((transport_ms, bare_ms));
    }
    let timed = times.split_off(case.args.warmup as usize);
    let all = job
        .gather(&serde_json::to_vec(&timed)?)?
        .iter()
        .map(|times| serde_json::from_slice(times))
        .collect::<Result<Vec<Vec<(f64, f64)>>, _>>()
        .context("reading another rank's times")?;
    let slowest = |part: fn(&(f64, f64)) -> f64| {
        let slowest = |i: usize| all.iter().map(|times| part(&times[i])).fold(0.0, f64::max);
        median(&(0..timed.len()).map(slowest).collect::<Vec<_>>())
    };
    Ok(Alone {
        transport_ms: slowest(|times| times.0),
        bare_ms: slowest(|times| times.1),
    })
}

/// The time of the messages of `plan` through the transport, on this rank.
fn through(job: &mut Job, plan: &[Sends], limit: Duration) -> anyhow::Result<f64> {
    let rank = job.world().rank().get();
    let count = plan.iter().map(Vec::len).max().unwrap_or(0);
    let round = |at: usize| {
        let mut round = Round::new();
        round.seq = at as u32;
        for (from, sends) in (0..).zip(plan) {
            for &(to, len) in sends.get(at).into_iter().flatten() {
                if from == rank {
                    round = round.send(Rank::new(to), Payload::from_wire(vec![1; len]));
                }
                if to == rank {
                    round = round.expect(Rank::new(from), len);
                }
            }
        }
        round
    };
    // Made before the ranks start together: those that are ready first would wait for the others.
    let rounds: Vec<Round> = (0..count).map(round).collect();
    job.barrier()?;
    let transport = job.transport();
    let deadline = Deadline::after(transport.clock().now(), limit);
    let since = Instant::now();
    for round in rounds {
        transport.submit(BucketId::new(0), round)?;
        transport.wait_any(deadline)?;
    }
    let time = since.elapsed().as_secs_f64() * 1e3;
    transport.complete_step();
    Ok(time)
}
