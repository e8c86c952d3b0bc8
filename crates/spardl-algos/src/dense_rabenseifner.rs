//! Dense all-reduce by recursive halving and doubling.
//!
//! Paper: Rabenseifner, "Optimization of Collective Reduction Operations", 2004.
//!
//! The idea: workers beyond the largest power of two fold their gradient into a neighbour. The core halves: partners at the
//! highest bit swap halves and add, then quarters, until each owns one block; then it doubles back. The folded workers get
//! the result last.
//!
//! Example, 5 workers: 0 folds into 1; the core is 1, 2, 3, 4 with numbers 0..3 and four blocks. Core 0 sends {2,3} to core 2
//! and adds {0,1}; sends {1} to core 1 and adds {0}; gets {1} from core 1, {2,3} from core 2; worker 1 sends all to 0.
//!
//! Rounds: 2 log2 p2, plus 2 when P is not the power of two p2. Bytes: 2 n (p2 - 1) / p2 elements, plus n for a worker that
//! acts for a folded one.
//!
//! Limitations: the fold costs whole gradients when P is not a power of two. With bf16 values the rounding of partial sums is
//! not kept (see `dense`); few bits are refused, since halves of unequal runs cannot be handed on as they came.

use std::ops::Range;

use spardl_core::codec::{add_values, decode_values, encode_values};
use spardl_core::schedule::{Fold, core_position, fold};
use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Feedback, HEADER_LEN, Input, Laws, Layout, Machine,
    MethodStats, Payload, ProtocolError, Rank, Received, Round, Update, ValueType, World,
};

use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "dense-rabenseifner",
    summary: "the whole gradient by recursive halving and doubling",
    options: &[],
    source: include_str!("dense_rabenseifner.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(DenseRabenseifner {
            values: options.codec.values,
        }))
    },
};

/// Dense all-reduce by recursive halving and doubling.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenseRabenseifner {
    /// How values travel.
    pub values: ValueType,
}

impl Algorithm for DenseRabenseifner {
    fn name(&self) -> &'static str {
        "dense-rabenseifner"
    }

    fn describe(&self) -> String {
        format!("dense-rabenseifner values={}", self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let (position, size) = (world.rank().index(), world.size() as usize);
        let hops = hops(position, size, layout.len());
        Ok(Box::new(Worker {
            values: self.values,
            hops,
            done: 0,
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let (mut rounds, mut messages, mut bytes_max) = (0, 0, 0);
        for position in 0..size {
            let hops = hops(position, size, len);
            let sends: Vec<usize> = hops
                .iter()
                .filter_map(|hop| Some(hop.send.as_ref()?.1.len()))
                .collect();
            let bytes: usize = sends
                .iter()
                .map(|len| HEADER_LEN + self.values.encoded_len(*len))
                .sum();
            rounds = hops.len() as u32;
            messages = messages.max(sends.len() as u64);
            bytes_max = bytes_max.max(bytes as u64);
        }
        Cost {
            rounds: rounds..=rounds,
            messages,
            bytes_max,
        }
    }

    fn estimate(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Estimate {
        let (size, len) = (workers as usize, layout.len());
        let mut longest = Vec::new();
        for position in 0..size {
            let hops = hops(position, size, len);
            longest.resize(hops.len(), 0);
            for (longest, hop) in longest.iter_mut().zip(&hops) {
                let count = hop.send.as_ref().map_or(0, |(_, range)| range.len());
                *longest = count.max(*longest);
            }
        }
        let message = |count: &usize| (HEADER_LEN + Length::Usual.run(self.values, *count)) as u64;
        Estimate {
            rounds: longest.len() as u32,
            bytes: longest.iter().map(message).sum(),
        }
    }

    fn laws(&self) -> Laws {
        crate::dense::laws(self.values)
    }
}

/// One round of one worker: a range to a peer, a range from a peer.
#[derive(Clone, Debug, Default)]
struct Hop {
    send: Option<(usize, Range<usize>)>,
    receive: Option<(usize, Range<usize>)>,
    /// Is the arriving range added or stored?
    reduce: bool,
    /// A finished range to keep as the others will see it, before sending.
    round_first: Option<Range<usize>>,
}

/// The whole schedule of the worker at `position`; all workers have equally many rounds.
fn hops(position: usize, size: usize, len: u32) -> Vec<Hop> {
    let all = 0..len as usize;
    let (part, core_size) = fold(position, size);
    let folded = core_size != size;
    let bits = core_size.trailing_zeros() as usize;
    let (core, ward) = match part {
        Fold::Waits { proxy } => {
            let mut hops = vec![Hop::default(); 2 * bits + 2];
            hops[0].send = Some((proxy, all.clone()));
            hops[2 * bits + 1].receive = Some((proxy, all));
            return hops;
        }
        Fold::Acts { core, ward } => (core, ward),
    };
    // The bounds of `Partition::even`, without a list of them: costs ask for the hops of every worker.
    let bound = |block: usize| (block as u64 * u64::from(len) / core_size as u64) as usize;
    let span = |lo: usize, hi: usize| bound(lo)..bound(hi);
    let peer = |bit: usize| core_position(core ^ bit, size, core_size);
    let mut hops = Vec::with_capacity(2 * bits + 2);
    if folded {
        let receive = ward.map(|ward| (ward, all.clone()));
        hops.push(Hop {
            receive,
            reduce: true,
            ..Hop::default()
        });
    }
    for bit in (0..bits).rev().map(|b| 1 << b) {
        let (own, other) = halves(core, bit);
        hops.push(Hop {
            send: Some((peer(bit), span(other, other + bit))),
            receive: Some((peer(bit), span(own, own + bit))),
            reduce: true,
            round_first: None,
        });
    }
    for bit in (0..bits).map(|b| 1 << b) {
        let (own, other) = halves(core, bit);
        hops.push(Hop {
            send: Some((peer(bit), span(own, own + bit))),
            receive: Some((peer(bit), span(other, other + bit))),
            reduce: false,
            round_first: (bit == 1).then(|| span(core, core + 1)),
        });
    }
    if folded {
        hops.push(Hop {
            send: ward.map(|ward| (ward, all)),
            ..Hop::default()
        });
    }
    hops
}

/// The first block of the aligned run of `bit` blocks that holds `core`, and of its sibling.
const fn halves(core: usize, bit: usize) -> (usize, usize) {
    let own = core & !(bit - 1);
    (own, own ^ bit)
}

#[derive(Debug)]
struct Worker {
    values: ValueType,
    hops: Vec<Hop>,
    done: usize,
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.done = 0;
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        let Some(hop) = self.hops.get(self.done) else {
            return Ok(None);
        };
        let data = feedback.work_mut();
        if let Some(finished) = hop.round_first.clone() {
            self.values.round(&mut data[finished]);
        }
        let rank = |position: usize| Rank::new(position as u32);
        let mut round = Round::new();
        if let Some((to, range)) = hop.send.clone() {
            let mut payload = Payload::with_capacity(self.values.encoded_len(range.len()));
            encode_values(self.values, &data[range], payload.body_mut());
            round = round.send(rank(to), payload);
        }
        if let Some((from, range)) = hop.receive.clone() {
            round = round.expect(rank(from), self.values.encoded_len(range.len()));
        }
        Ok(Some(round))
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        let Hop {
            receive, reduce, ..
        } = &self.hops[self.done];
        if let Some((_, range)) = receive {
            let block = &mut feedback.work_mut()[range.clone()];
            received.read(0, |reader| {
                if *reduce {
                    add_values(self.values, reader, block)
                } else {
                    decode_values(self.values, reader, block)
                }
            })?;
        }
        self.done += 1;
        Ok(())
    }

    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        Update::Dense(feedback.work())
    }

    fn stats(&self) -> MethodStats {
        let sent = |hop: &Hop| hop.send.as_ref().map(|(_, range)| range.len() as u64);
        MethodStats {
            entries_sent: self.hops.iter().filter_map(sent).sum(),
            ..MethodStats::default()
        }
    }
}
