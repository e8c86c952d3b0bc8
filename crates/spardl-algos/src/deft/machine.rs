//! One worker's side of DEFT: how the workers agree on the indices.

use spardl_core::phase::{AllGather, Broadcast};
use spardl_core::{
    Codec, Entries, Feedback, Input, Layout, MethodStats, ProtocolError, Received, Round, Selector,
    ValueType, World,
};
use spardl_kernels::Level;

use super::{cap, plan};
use crate::mask::{Agree, capped, union};

#[derive(Debug)]
enum Phase {
    Idle,
    /// The bin of each part, from the worker that allocates.
    Bins(Broadcast),
    /// The lists of indices on their way; the common indices are here.
    Lists(AllGather, Vec<u32>),
}

/// Layers shared out by norm.
#[derive(Debug)]
pub(super) struct Share {
    codec: Codec,
    world: World,
    /// One block for each part.
    selector: Selector,
    k: usize,
    /// The worker that allocates in this step, and the first worker's bin.
    turn: u32,
    quotas: Vec<usize>,
    phase: Phase,
    stats: MethodStats,
}

impl Share {
    pub(super) fn new(codec: Codec, world: World, layout: &Layout) -> Self {
        Self {
            codec,
            world,
            selector: Selector::new(plan::parts(layout, world.size() as usize)),
            k: 0,
            turn: 0,
            quotas: Vec::new(),
            phase: Phase::Idle,
            stats: MethodStats::default(),
        }
    }

    fn len(&self) -> u32 {
        self.selector.partition().len()
    }

    /// Everything is asked for: there is nothing to choose.
    fn is_full(&self) -> bool {
        self.k >= self.len() as usize
    }

    /// Does this step select by quotas? Not when nothing or everything is asked for.
    fn chooses(&self) -> bool {
        self.k > 0 && !self.is_full()
    }

    /// The most entries of a list, and the most common elements.
    fn cap(&self) -> usize {
        if self.chooses() {
            cap(self.k, self.len())
        } else {
            0
        }
    }

    fn find_quotas(&mut self, work: &[f32]) {
        let (parts, level) = (self.selector.partition(), Level::best());
        let norms: Vec<f64> = (0..parts.blocks())
            .map(|part| spardl_kernels::sum_of_squares(level, &work[parts.range(part)]).sqrt())
            .collect();
        self.quotas = plan::quotas(parts, &norms, self.k);
    }

    /// Selects in the parts of the own bin, and sends the list on its way.
    fn search(&mut self, work: &[f32], broadcast: Broadcast) -> Result<Phase, ProtocolError> {
        let (items, size, most) = (broadcast.into_items(), self.world.size(), self.cap());
        let mut allocation = Vec::new();
        if self.chooses() {
            let parts = self.selector.partition();
            allocation = items.read(self.turn as usize, |reader| {
                plan::decode(reader, parts, size, most)
            })?;
        }
        let own = (self.turn + self.world.rank().get()) % size;
        let (mut found, mut common, mut searched) = (Entries::default(), Vec::new(), 0);
        for (part, &bin) in allocation.iter().enumerate() {
            if bin == size {
                let range = self.selector.partition().range(part);
                common.extend(range.start as u32..range.end as u32);
            } else if bin == own {
                searched += 1;
                let quota = self.quotas[part];
                self.selector
                    .take_top(part, work, quota, ValueType::F32, &mut found);
            }
        }
        let indices = capped(found, most);
        let (len, group) = (self.len(), self.world.everyone());
        self.stats = MethodStats {
            // The first scan of a part is no rescan: nothing is predicted.
            rescans: self.selector.stats().rescans.saturating_sub(searched),
            selected: indices.len() as u64,
            ..MethodStats::default()
        };
        let mut item = Vec::new();
        self.codec.encode_indices(0, len, &indices, &mut item);
        let bounds = vec![self.codec.indices_bound(len, most); size as usize];
        Ok(Phase::Lists(AllGather::new(group, item, bounds), common))
    }

    fn join(&self, gather: AllGather, common: Vec<u32>) -> Result<Vec<u32>, ProtocolError> {
        let (items, len) = (gather.into_items(), self.len());
        let mut lists = vec![Vec::new(); self.world.size() as usize];
        for (worker, list) in lists.iter_mut().enumerate() {
            items.read(worker, |reader| {
                self.codec.decode_indices(reader, 0, len, self.cap(), list)
            })?;
        }
        if self.is_full() {
            return Ok((0..len).collect());
        }
        lists.push(common);
        Ok(union(&lists, len))
    }
}

impl Agree for Share {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.len() as usize);
        self.turn = (input.step % u64::from(self.world.size())) as u32;
        self.stats = MethodStats::default();
        let floors = vec![f32::INFINITY; self.selector.partition().blocks()];
        self.selector.pass_above(feedback, input.gradient, &floors);
        let mut item = Vec::new();
        let mut bound = 0;
        if self.chooses() {
            self.find_quotas(feedback.work());
            let parts = self.selector.partition();
            bound = plan::BIN_BYTES * parts.blocks();
            if self.turn == self.world.rank().get() {
                let bins = self.world.size();
                let allocation = plan::allocate(parts, &self.quotas, bins, self.cap());
                plan::encode(&allocation, &mut item);
            }
        }
        let group = self.world.everyone();
        self.phase = Phase::Bins(Broadcast::new(group, self.turn as usize, item, bound));
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        let round = match &self.phase {
            Phase::Bins(broadcast) => broadcast.round(),
            Phase::Lists(gather, _) => return Ok(gather.round()),
            Phase::Idle => return Ok(None),
        };
        if round.is_some() {
            return Ok(round);
        }
        if let Phase::Bins(broadcast) = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.phase = self.search(feedback.work(), broadcast)?;
        }
        self.round(feedback)
    }

    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Bins(broadcast) => broadcast.absorb(received),
            Phase::Lists(gather, _) => gather.absorb(received),
            Phase::Idle => Ok(()),
        }
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Lists(gather, common) => self.join(gather, common),
            Phase::Bins(_) | Phase::Idle => Ok(Vec::new()),
        }
    }

    fn stats(&self) -> MethodStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::super::Deft;
    use spardl_core::{Algorithm, Layout, Outcome};
    use spardl_sim::Cluster;
    use spardl_testkit::{check, generate};

    #[test]
    fn layers_are_shared_out_and_nothing_is_lost() {
        let lens = [300, 1, 40, 40, 7, 900, 12];
        let layout = Layout::new(lens.iter().map(|&len| ("layer", vec![len]))).unwrap();
        for workers in [1, 2, 3, 5, 8, 13] {
            for k in [0, 1, 5, 130, 1299, 1300] {
                let algorithm = Deft::default();
                let mut cluster = Cluster::new(&algorithm, workers, &layout).unwrap();
                for step in 0..4 {
                    let gradients = generate::integers(step + 7, workers, 1300);
                    let before = check::inputs(cluster.workers(), &gradients);
                    let report = cluster.step(&gradients, k, step).unwrap();
                    assert!(report.outcomes.iter().all(|o| *o == Outcome::Updated));
                    let update = check::agreed(cluster.workers(), "deft with layers");
                    let nnz = cluster.workers()[0].update().nnz();
                    let cost = algorithm.cost(workers, &layout, k, step);
                    assert!(report.ledger.bytes.iter().all(|&b| b <= cost.bytes_max));
                    let bound = algorithm.laws().support.bound(workers, 1300, k);
                    assert!(
                        nnz <= bound && (nnz > 0 || k == 0),
                        "P={workers} k={k}: {nnz}"
                    );
                    if k == 130 {
                        assert!((60..260).contains(&nnz), "P={workers}: {nnz}");
                    }
                    cluster.commit().unwrap();
                    let mut after = check::residuals(cluster.workers());
                    check::add(&mut after, &update);
                    assert_eq!(before, after, "P={workers} k={k} step={step}");
                }
            }
        }
    }
}
