//! Small methods that show every mistake of a transport: a lost, doubled, swapped or stale message changes the update.

use std::cmp::Ordering;

use spardl_core::codec::Reader;
use spardl_core::phase::AllGather;
use spardl_core::{
    Algorithm, ConfigError, Cost, DecodeError, Feedback, Group, Input, Laws, Layout, Machine,
    MethodState, Payload, ProtocolError, Rank, Received, Round, Support, Tally, Turn, Update,
    World,
};

/// Sums the floors of all gradients and keeps the fractions as the residual.
///
/// `k` is ignored. The update also counts the steps committed so far, so that the method has state to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toy {
    /// Bruck's all-gather: about log2 P rounds of one message.
    Gather,
    /// Everybody to everybody in one round; a bucket without elements makes messages without a body.
    Direct,
}

impl Algorithm for Toy {
    fn name(&self) -> &'static str {
        match self {
            Self::Gather => "toy-gather",
            Self::Direct => "toy-direct",
        }
    }

    fn describe(&self) -> String {
        self.name().to_owned()
    }

    fn machine(&self, world: World, _: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(ToyMachine {
            toy: *self,
            group: world.everyone(),
            steps: 0,
            gather: None,
            own: Vec::new(),
            sum: Vec::new(),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _: usize, _: u64) -> Cost {
        let len = layout.len();
        let (others, len) = (u64::from(workers) - 1, u64::from(len));
        let rounds = match self {
            Self::Gather => workers.next_power_of_two().ilog2(),
            Self::Direct => u32::from(workers > 1),
        };
        let messages = match self {
            Self::Gather => u64::from(rounds),
            Self::Direct => others,
        };
        let header = spardl_core::HEADER_LEN as u64;
        let bytes_max = messages * header + others * (4 + 4 * len);
        Cost {
            rounds: rounds..=rounds,
            messages,
            bytes_max,
        }
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: false,
            keeps_residual: true,
            support: Support::Any,
            lossless_when_full: false,
            scales: false,
        }
    }
}

/// A worker's gradient, without integers so that every element leaves a residual.
pub(super) fn gradient(rank: Rank, seed: u64, len: usize) -> Vec<f32> {
    let start = (u64::from(rank.get()) + 1) * 7919 + seed * 104_729;
    let value = |i: u64| ((start + i * 2_654_435_761) % 2001) as f32 - 1000.0;
    (0..len as u64).map(|i| value(i) + 0.0625).collect()
}

/// Checks the update of the step after `steps` committed ones, all workers having [`gradient`]s with `seed`.
///
/// Integer parts are below 1000 and residuals below 1 for the first 16 steps, so the sum is exact in any order.
pub(super) fn assert_sum(update: Update<'_>, world: World, seed: u64, steps: u64) {
    let Update::Dense(sum) = update else {
        panic!("a toy's update is dense");
    };
    let mut expected = vec![steps as f32; sum.len()];
    for world in World::all(world.size()) {
        let gradient = gradient(world.rank(), seed, sum.len());
        for (expected, value) in expected.iter_mut().zip(gradient) {
            *expected += value.floor();
        }
    }
    assert!(sum == expected, "the sum over workers is wrong");
}

#[derive(Debug)]
struct ToyMachine {
    toy: Toy,
    group: Group,
    steps: u64,
    gather: Option<AllGather>,
    own: Vec<f32>,
    sum: Vec<f32>,
}

impl ToyMachine {
    fn gather(&self) -> AllGather {
        let bytes = to_bytes(&self.own);
        let bounds = vec![bytes.len(); self.group.size()];
        AllGather::new(self.group, bytes, bounds)
    }

    fn direct(&self) -> Round {
        let (position, size) = (self.group.position(), self.group.size());
        let bytes = to_bytes(&self.own);
        let mut round = Round::new();
        for peer in (1..size).map(|gap| self.group.rank(position + gap)) {
            let mut payload = Payload::with_capacity(bytes.len());
            payload.body_mut().extend_from_slice(&bytes);
            round = round.send(peer, payload);
        }
        // Asked for in rank order, so that all workers add in the same order.
        for peer in (0..size).filter(|&peer| peer != position) {
            round = round.expect(self.group.rank(peer), bytes.len());
        }
        round
    }

    fn done(&mut self) -> Turn {
        for sum in &mut self.sum {
            *sum += self.steps as f32;
        }
        self.steps += 1;
        Turn::Done
    }
}

impl Machine for ToyMachine {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) -> Turn {
        feedback.load(input.gradient);
        self.own.clear();
        for value in feedback.work_mut() {
            self.own.push(value.floor());
            *value -= value.floor();
        }
        self.sum = vec![0.0; self.own.len()];
        self.gather = None;
        if self.group.size() == 1 {
            self.sum.copy_from_slice(&self.own);
            return self.done();
        }
        match self.toy {
            Toy::Direct => Turn::Exchange(self.direct()),
            Toy::Gather => {
                let gather = self.gather.insert(self.gather());
                Turn::Exchange(gather.round().unwrap_or_default())
            }
        }
    }

    fn resume(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<Turn, ProtocolError> {
        let position = self.group.position();
        let Some(gather) = &mut self.gather else {
            for peer in 0..self.group.size() {
                match peer.cmp(&position) {
                    Ordering::Less => received.read(peer, |reader| add(&mut self.sum, reader))?,
                    Ordering::Equal => add_values(&mut self.sum, &self.own),
                    Ordering::Greater => {
                        received.read(peer - 1, |reader| add(&mut self.sum, reader))?;
                    }
                }
            }
            return Ok(self.done());
        };
        gather.absorb(received)?;
        if let Some(round) = gather.round() {
            return Ok(Turn::Exchange(round));
        }
        if let Some(items) = self.gather.take().map(AllGather::into_items) {
            for peer in 0..self.group.size() {
                items.read(peer, |reader| add(&mut self.sum, reader))?;
            }
        }
        Ok(self.done())
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Dense(&self.sum)
    }

    fn tally(&self) -> Tally {
        Tally {
            selected: self.own.len() as u64,
            ..Tally::default()
        }
    }

    fn state(&self) -> MethodState {
        MethodState::default().with_u64("steps", [self.steps])
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        self.steps = state.u64("steps")?.first().copied().unwrap_or_default();
        Ok(())
    }
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn add(sum: &mut [f32], reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    for sum in sum {
        *sum += f32::from_bits(reader.u32()?);
    }
    Ok(())
}

fn add_values(sum: &mut [f32], values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}
