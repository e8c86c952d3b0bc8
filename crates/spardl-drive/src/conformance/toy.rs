//! Small methods that show every mistake of a transport: a lost, doubled, swapped or stale message changes the update.

use std::cmp::Ordering;

use spardl_core::codec::Reader;
use spardl_core::phase::AllGather;
use spardl_core::{
    Algorithm, ConfigError, Cost, DecodeError, Feedback, Group, Input, Laws, Layout, Machine,
    MethodState, MethodStats, Payload, ProtocolError, Rank, Received, Round, Update, World,
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
            stage: Stage::Summed,
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
            lossless_when_full: false,
            scales: false,
            ..Laws::default()
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
    stage: Stage,
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

    /// Adds up in rank order what a direct exchange brought.
    fn add_direct(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        let position = self.group.position();
        for peer in 0..self.group.size() {
            match peer.cmp(&position) {
                Ordering::Less => received.read(peer, |reader| add(&mut self.sum, reader))?,
                Ordering::Equal => add_values(&mut self.sum, &self.own),
                Ordering::Greater => {
                    received.read(peer - 1, |reader| add(&mut self.sum, reader))?;
                }
            }
        }
        Ok(())
    }

    fn add_gathered(&mut self, gather: AllGather) -> Result<(), ProtocolError> {
        let items = gather.into_items();
        (0..self.group.size())
            .try_for_each(|peer| items.read(peer, |reader| add(&mut self.sum, reader)))
    }
}

/// Where in the step a toy is.
#[derive(Debug)]
enum Stage {
    Begun,
    Direct,
    Gather(AllGather),
    Summed,
}

impl Machine for ToyMachine {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.own.clear();
        for value in feedback.work_mut() {
            self.own.push(value.floor());
            *value -= value.floor();
        }
        self.sum = vec![0.0; self.own.len()];
        self.stage = match self.toy {
            Toy::Direct if self.group.size() > 1 => Stage::Begun,
            _ => Stage::Gather(self.gather()),
        };
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        match &self.stage {
            Stage::Begun => {
                self.stage = Stage::Direct;
                return Ok(Some(self.direct()));
            }
            Stage::Gather(gather) => {
                let round = gather.round();
                if round.is_some() {
                    return Ok(round);
                }
            }
            Stage::Direct | Stage::Summed => {}
        }
        if let Stage::Gather(gather) = std::mem::replace(&mut self.stage, Stage::Summed) {
            self.add_gathered(gather)?;
        }
        for sum in &mut self.sum {
            *sum += self.steps as f32;
        }
        self.steps += 1;
        Ok(None)
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.stage {
            Stage::Gather(gather) => gather.absorb(received),
            _ => self.add_direct(received),
        }
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Dense(&self.sum)
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            selected: self.own.len() as u64,
            ..MethodStats::default()
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
