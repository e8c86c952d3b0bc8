//! One worker's side of ExDyna and MiCRO: how the workers agree on the indices.

use std::ops::Range;

use spardl_core::codec::Reader;
use spardl_core::phase::AllGather;
use spardl_core::{
    ConfigError, DecodeError, Entries, Feedback, Gradient, Input, MethodState, MethodStats,
    Partition, ProtocolError, Received, Round, Selector, Span, ValueType, World,
};
use spardl_kernels::Level;

use super::threshold::{Start, Threshold};
use super::topology::Topology;
use super::{ExDyna, item_bound};
use crate::mask::{Agree, capped};

/// What a list of indices is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The entries that reach the threshold.
    Found = 0,
    /// One index that the cyclic rule chose, because no entry reached the threshold.
    Fallback = 1,
    /// As `Fallback` (no index when the partition is empty), and all entries are zero: it says nothing of the threshold.
    Zeros = 2,
}

impl Kind {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Found),
            1 => Ok(Self::Fallback),
            2 => Ok(Self::Zeros),
            other => Err(DecodeError::UnknownCoding(other)),
        }
    }
}

/// What a step selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// k = 0.
    Nothing,
    /// k >= n.
    Everything,
    /// The k largest: alone in the world there is nobody to share the search with.
    Top,
    /// What reaches the shared threshold.
    Threshold,
}

#[derive(Debug)]
enum Phase {
    Idle,
    /// The workers' k-th largest magnitudes on their way.
    Start(AllGather),
    /// The lists of indices on their way.
    Lists(AllGather),
    Agreed(Vec<u32>),
}

/// Exclusive search with a shared threshold.
#[derive(Debug)]
pub(super) struct Search {
    config: ExDyna,
    world: World,
    len: u32,
    /// The whole bucket as one block, for k-th largest values.
    whole: Selector,
    topology: Topology,
    threshold: Threshold,
    /// What each partition yielded in the last step that used the threshold; empty when that says nothing.
    counts: Vec<u64>,
    step: u64,
    k: usize,
    mode: Mode,
    phase: Phase,
    stats: MethodStats,
}

impl Search {
    pub(super) fn new(config: ExDyna, world: World, len: u32) -> Self {
        let size = world.size() as usize;
        Self {
            config,
            world,
            len,
            whole: Selector::new(Partition::even(len, 1)),
            topology: Topology::new(len, size, config.blocks as usize),
            threshold: Threshold::default(),
            counts: Vec::new(),
            step: 0,
            k: 0,
            mode: Mode::Nothing,
            phase: Phase::Idle,
            stats: MethodStats::default(),
        }
    }

    /// Cyclic allocation: the partition that `worker` searches in this step.
    fn partition_of(&self, worker: usize) -> usize {
        let size = u64::from(self.world.size());
        ((self.step % size + worker as u64) % size) as usize
    }

    /// The worker that searches partition `p` in this step.
    fn searcher_of(&self, p: usize) -> usize {
        let size = self.topology.partitions();
        (p + size - self.partition_of(0)) % size
    }

    #[cfg(test)]
    pub(super) fn set_step(&mut self, step: u64) {
        self.step = step;
    }

    pub(super) fn own_range(&self) -> Range<usize> {
        self.topology
            .range(self.partition_of(self.world.rank().index()))
    }

    /// The most indices a worker may list.
    fn cap(&self) -> usize {
        match self.mode {
            Mode::Threshold => self.config.cap.of(self.k, self.len),
            _ => 0,
        }
    }

    // The threshold, and the partitions that go with it.

    /// Starts from the data: accumulates and offers the k-th largest magnitude of this worker's whole vector.
    fn offer_level(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        let top = self.take_top(feedback, gradient);
        let level = top.values.iter().map(|value| value.abs());
        let level = level.reduce(f32::min).unwrap_or(0.0);
        let bounds = vec![4; self.world.size() as usize];
        let gather = AllGather::new(self.world.everyone(), level.to_le_bytes().to_vec(), bounds);
        self.phase = Phase::Start(gather);
    }

    /// Accumulates and finds the k largest entries; nothing is taken away from `work`.
    fn take_top(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) -> Entries {
        let mut top = Entries::default();
        self.whole.pass(feedback, gradient, &[self.k]);
        self.whole
            .take_top(0, feedback.work(), self.k, ValueType::F32, &mut top);
        self.stats.rescans = self.whole.stats().rescans;
        top
    }

    fn agree_on_start(&mut self, gather: AllGather) -> Result<(), ProtocolError> {
        let items = gather.into_items();
        let mut levels = vec![0.0; self.world.size() as usize];
        for (worker, level) in levels.iter_mut().enumerate() {
            *level = items.read(worker, |reader| reader.u32().map(f32::from_bits))?;
        }
        self.threshold.value = Start::agreed(&levels);
        Ok(())
    }

    /// Online threshold scaling and partition adjustment, from what the last step selected.
    fn learn(&mut self) {
        self.threshold
            .value
            .get_or_insert_with(|| Start::published(self.k));
        let counts = std::mem::take(&mut self.counts);
        if counts.is_empty() {
            return;
        }
        let selected = counts.iter().sum();
        self.threshold
            .follow(self.config.controller, selected, self.k);
        if self.config.adjust {
            self.topology.adjust(&counts);
        }
    }

    // Exclusive selection.

    /// The one pass: the own partition is searched as it is accumulated, the others are only accumulated.
    fn search(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        let own = self.own_range();
        let threshold = self.threshold.value.unwrap_or(f32::INFINITY);
        let mut found = Entries::default();
        let spans = vec![
            Span::skipped(0..own.start),
            Span::new(own.clone(), threshold, &mut found),
            Span::skipped(own.end..gradient.len()),
        ];
        feedback.accumulate(gradient, spans);
        self.list(feedback.work(), found);
    }

    /// The same search after the pass, when the threshold was not known before it.
    fn search_again(&mut self, work: &[f32]) {
        let own = self.own_range();
        let mut found = Entries::default();
        let threshold = self.threshold.value.unwrap_or(f32::INFINITY);
        let start = own.start as u32;
        spardl_kernels::extract(Level::best(), &work[own], start, threshold, &mut found);
        self.list(work, found);
    }

    /// Sends the own list on its way.
    fn list(&mut self, work: &[f32], found: Entries) {
        let own = self.own_range();
        let mut indices = capped(found, self.cap());
        self.stats.selected = indices.len() as u64;
        let kind = if !indices.is_empty() || self.cap() == 0 {
            Kind::Found
        } else {
            if !own.is_empty() {
                let turn = (self.step % own.len() as u64) as usize;
                indices.push((own.start + turn) as u32);
            }
            let zeros = work[own.clone()].iter().all(|&value| value == 0.0);
            if zeros { Kind::Zeros } else { Kind::Fallback }
        };
        let size = self.world.size() as usize;
        let mut item = vec![kind as u8];
        self.config
            .codec
            .encode_indices(own.start as u32, own.len() as u32, &indices, &mut item);
        let bound = |worker| {
            let len = self.topology.range(self.partition_of(worker)).len();
            item_bound(self.config.codec, len as u32, self.cap())
        };
        let bounds = (0..size).map(bound).collect();
        self.phase = Phase::Lists(AllGather::new(self.world.everyone(), item, bounds));
    }

    /// The lists of all partitions, one after the other, are the common indices.
    fn join(&mut self, gather: AllGather) -> Result<Vec<u32>, ProtocolError> {
        let (items, cap) = (gather.into_items(), self.cap());
        let (mut indices, mut counts, mut zeros) = (Vec::new(), Vec::new(), true);
        for p in 0..self.topology.partitions() {
            let range = self.topology.range(p);
            let before = indices.len();
            let kind = items.read(self.searcher_of(p), |reader| {
                let kind = Kind::read(reader)?;
                let (start, len) = (range.start as u32, range.len() as u32);
                self.config
                    .codec
                    .decode_indices(reader, start, len, cap, &mut indices)?;
                Ok(kind)
            })?;
            let listed = (indices.len() - before) as u64;
            let counts_as_found = kind == Kind::Found || self.config.count_fallback;
            counts.push(if counts_as_found { listed } else { 0 });
            zeros &= kind == Kind::Zeros && !self.config.count_fallback;
        }
        match self.mode {
            Mode::Everything => indices = (0..self.len).collect(),
            Mode::Threshold if zeros => self.counts = Vec::new(),
            Mode::Threshold => self.counts = counts,
            Mode::Nothing | Mode::Top => {}
        }
        Ok(indices)
    }
}

impl Agree for Search {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.len as usize);
        self.step = input.step;
        self.stats = MethodStats::default();
        self.mode = match self.k {
            k if k == self.len as usize => Mode::Everything,
            0 => Mode::Nothing,
            _ if self.world.size() == 1 => Mode::Top,
            _ => Mode::Threshold,
        };
        match self.mode {
            Mode::Everything | Mode::Nothing => {
                feedback.load(input.gradient);
                self.list(feedback.work(), Entries::default());
            }
            Mode::Top => {
                let top = self.take_top(feedback, input.gradient);
                self.stats.selected = top.len() as u64;
                self.phase = Phase::Agreed(top.indices);
            }
            Mode::Threshold
                if self.threshold.value.is_none() && self.config.start == Start::Data =>
            {
                self.offer_level(feedback, input.gradient);
            }
            Mode::Threshold => {
                self.learn();
                self.search(feedback, input.gradient);
            }
        }
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        let round = match &self.phase {
            Phase::Start(gather) => gather.round(),
            Phase::Lists(gather) => return Ok(gather.round()),
            Phase::Agreed(_) | Phase::Idle => return Ok(None),
        };
        if round.is_some() {
            return Ok(round);
        }
        if let Phase::Start(gather) = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.agree_on_start(gather)?;
            self.search_again(feedback.work());
        }
        self.round(feedback)
    }

    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Start(gather) | Phase::Lists(gather) => gather.absorb(received),
            Phase::Idle | Phase::Agreed(_) => Ok(()),
        }
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Lists(gather) => self.join(gather),
            Phase::Agreed(indices) => Ok(indices),
            Phase::Start(_) | Phase::Idle => Ok(Vec::new()),
        }
    }

    fn stats(&self) -> MethodStats {
        self.stats
    }

    fn state(&self) -> MethodState {
        let (value, damping) = self.threshold.save();
        MethodState::default()
            .with_f32("threshold", value)
            .with_u64("damping", damping)
            .with_u64("counts", self.counts.clone())
            .with_u64("cuts", self.topology.save())
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        let mismatch = |what: &str, expected: String, got: String| ConfigError::StateMismatch {
            what: what.to_owned(),
            expected,
            got,
        };
        let (value, damping) = (state.f32("threshold")?, state.u64("damping")?);
        let threshold = Threshold::load(value, damping).ok_or_else(|| {
            let got = format!("{value:?}, {damping:?}");
            mismatch("threshold", "positive, with its damping".to_owned(), got)
        })?;
        let (counts, size) = (state.u64("counts")?, self.world.size() as usize);
        if !counts.is_empty() && counts.len() != size {
            let expected = format!("none or {size} numbers");
            return Err(mismatch("counts", expected, format!("{counts:?}")));
        }
        self.topology.load(state.u64("cuts")?)?;
        self.threshold = threshold;
        self.counts = counts.to_vec();
        Ok(())
    }
}
