//! TopkDSA: SparCML's dynamic sparse all-reduce, which turns dense where the sum has filled up.
//!
//! Paper: Renggli et al., "SparCML: High-Performance Sparse Communication for Machine Learning", SC 2019 (split and all-gather);
//! the form compared with Ok-Topk in that paper.
//!
//! The idea: each worker owns one of P even regions. A worker selects its k largest entries and sends each region's part to the
//! owner; the owner adds the parts, and everybody gathers all sums. Nothing is selected a second time, so the sums have up
//! to k P entries: an owner sends its region as a list or, where that is shorter, as a run of values without indices. What a
//! worker sent leaves its residual.
//!
//! Words: *region* = one of P nearly equal runs of the gradient; *list* = indices and values of the non-zero sums; *run* = all values of
//! a region.
//!
//! Example, 5 workers, n = 10, k = 2, regions of 2. The selections are {0:9, 5:4}, {0:8, 9:3}, {2:5, 5:2}, {0:6, 7:7}, {7:5, 9:1}.
//! Owner 0 adds up {0:23}, owner 1 {2:5}, owner 2 {5:6}, owner 3 {7:12}, owner 4 {9:4}. A list of one entry takes 11 bytes, a run of
//! two values 8, so all send runs. The update is (23 0 5 0 0 6 0 12 0 4) and no residual is left.
//!
//! Rounds: ceil((P - 1)/4) + ceil(log2 P). Bytes: 2 k (P - 1)/P words to the owners, then between as many (all workers select the same)
//! and n (P - 1)/P (all regions are runs).
//!
//! Limitations: the update has up to k P entries, and the second half tends to the cost of a dense all-gather. With all large
//! values in one region its owner receives them all.
//!
//! Differs from the authors' code (Ok-Topk's repository, `topkSA`):
//! - Every region turns dense on its own, when its bytes say so; published: all together when the sums have at least n/3
//!   non-zeros, which takes an all-gather of counts first (SparCML itself: a stream of more than n/2 entries of 4 + 4 bytes).
//! - One message per round and peer, with its count inside; no all-to-all of counts.
//! - The k-th entry is sent. Published, `residual = published` here: the k largest entries leave the residual, but only those above
//!   the k-th are sent, so the k-th (and its ties) are destroyed in every step. It does not conserve.
//! - Any n and P: even regions, where the original is wrong for n mod floor(n/P) != n mod P and divides by zero for n < P.

use spardl_core::codec::{Block, Reader, decode_values, encode_values};
use spardl_core::phase::{AllGather, AllToAll, Items, SplitReduce};
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, DecodeError, Entries, Estimate, Feedback, Gradient, Group,
    HEADER_LEN, Input, Laws, Layout, Machine, MethodStats, Partition, ProtocolError, Received,
    Round, Selector, SparseVec, Support, Update, ValueType, World, list, schedule,
};

use crate::Options;
use crate::registry::Entry;
use crate::usual;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "topk-dsa",
    summary: "SparCML's dynamic all-reduce: split to owners, gather all sums, dense where shorter",
    options: &[(
        "residual",
        "sent, published (loses the k-th entry; does not conserve): what is cleared",
    )],
    source: include_str!("topk_dsa.rs"),
    variants: |_| Options::variants(&[&[("residual", "published")]]),
    build: |options| Ok(Box::new(TopkDsa::from_options(options)?)),
};

/// Messages in flight on the way to the owners; authors' allreducer.py.
const PEERS_PER_ROUND: usize = 4;

/// Split to owners, all-gather of every sum, dense where that is shorter.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopkDsa {
    /// How entries travel.
    pub codec: Codec,
    /// Is the k-th entry cleared and not sent, as in the authors' code?
    pub loses_kth: bool,
}

impl TopkDsa {
    /// TopkDSA with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let expected = "sent or published";
        let loses_kth =
            options.parsed("topk-dsa", "residual", false, expected, |text| match text {
                "sent" => Some(false),
                "published" => Some(true),
                _ => None,
            })?;
        Ok(Self {
            codec: options.codec,
            loses_kth,
        })
    }
}

impl Algorithm for TopkDsa {
    fn name(&self) -> &'static str {
        "topk-dsa"
    }

    fn describe(&self) -> String {
        let residual = if self.loses_kth { "published" } else { "sent" };
        format!("topk-dsa residual={residual} values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let group = world.everyone();
        Ok(Box::new(Worker {
            config: *self,
            group,
            regions: Regions::new(self.codec, layout.len(), group.size()),
            selector: Selector::new(Partition::even(layout.len(), 1)),
            k: 0,
            selection: Entries::default(),
            phase: Phase::Idle,
            entries_sent: 0,
            update: SparseVec::new(layout.len()),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let k = k.min(len as usize);
        let regions = Regions::new(self.codec, len, size);
        let log = schedule::ceil_log2(size);
        let rounds = AllToAll::rounds(size, PEERS_PER_ROUND) + log;
        let peers = u64::from(workers - 1);
        // A selection is cut into a list for each owner; raw indices bound what a cut costs.
        let empty = self.codec.list_bound(len, 0) as u64;
        let sent = if workers > 1 { k } else { 0 };
        let split =
            peers * (4 + empty) + (4 * sent + self.codec.values.split_len(sent, size)) as u64;
        let bounds = regions.bounds(k);
        let gather = AllGather::most_body_bytes(&bounds);
        let messages = peers + u64::from(log);
        Cost {
            rounds: rounds..=rounds,
            messages,
            bytes_max: split + gather + messages * HEADER_LEN as u64,
        }
    }

    /// Selections that have nothing in common, each cut into equal lists.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Estimate {
        let (size, len) = (workers as usize, layout.len());
        let cost = self.cost(workers, layout, k, step);
        let regions = Regions::new(self.codec, len, size);
        let sums = usual::union(workers, len, k).div_ceil(size);
        let lists: Vec<usize> = (0..size)
            .map(|region| regions.usual(region, sums))
            .collect();
        let split = usual::split_bytes(self.codec, workers, len, k) + 4 * u64::from(workers - 1);
        Estimate {
            rounds: *cost.rounds.end(),
            bytes: split + AllGather::most_body_bytes(&lists) + cost.messages * HEADER_LEN as u64,
        }
    }

    fn loose_bound(&self) -> Option<&'static str> {
        Some("the selections of the workers would have to be disjoint and far from home")
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: !self.loses_kth,
            support: Support::KPerWorker,
            lossless_when_full: !self.loses_kth,
            sends_ties: !self.loses_kth,
            ..Laws::default()
        }
    }
}

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    /// The selections on their way to the owners.
    Split(SplitReduce),
    /// The sums of the regions on their way to everybody.
    Gather(AllGather),
    /// Between steps.
    Idle,
}

#[derive(Debug)]
struct Worker {
    config: TopkDsa,
    group: Group,
    regions: Regions,
    /// One block: the k largest of the whole bucket.
    selector: Selector,
    k: usize,
    selection: Entries,
    phase: Phase,
    entries_sent: u64,
    update: SparseVec,
}

impl Worker {
    fn select(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        self.selector.pass(feedback, gradient, &[self.k]);
        self.selection.clear();
        let (work, values) = (feedback.work(), self.config.codec.values.elementwise());
        self.selector
            .take_top(0, work, self.k, values, &mut self.selection);
        if self.config.loses_kth {
            let magnitudes = self.selection.values.iter().map(|&v| list::magnitude(v));
            let kth = magnitudes.min().unwrap_or(0);
            let values = self.selection.values.iter();
            let above = values.filter(|v| list::magnitude(**v) > kth).count();
            (self.selection, _) = list::split_top(&self.selection, above, ValueType::F32);
        }
    }

    fn split(&mut self) -> Phase {
        let Regions { codec, partition } = &self.regions;
        let mut errors = Entries::default();
        let lists = (*codec, self.k);
        let split = SplitReduce::new(
            self.group,
            &self.selection,
            partition,
            lists,
            PEERS_PER_ROUND,
            &mut errors,
        );
        self.entries_sent += split.entries_sent();
        self.selector.add(0, errors);
        Phase::Split(split)
    }

    /// Puts the sum of the own region forward; what the value type takes from it stays here.
    fn reduce(&mut self, sum: &Entries) -> Phase {
        let (own, regions) = (self.group.position(), &self.regions);
        let (sums, left) = list::split_top(sum, sum.len(), regions.codec.values);
        let mut item = Vec::new();
        regions.encode(own, &sums, &mut item);
        let bounds = regions.bounds(self.k);
        self.selector.add(0, left);
        Phase::Gather(AllGather::new(self.group, item, bounds))
    }

    fn finish(&mut self, feedback: &mut Feedback, items: &Items) -> Result<(), ProtocolError> {
        self.update.clear();
        let (own, size) = (self.group.position(), self.group.size());
        let most = self.k.saturating_mul(size);
        let mut counts = Vec::with_capacity(size);
        for region in 0..size {
            let before = self.update.nnz();
            items.read(region, |reader| {
                self.update.extend_with(|indices, values| {
                    self.regions.decode(region, reader, most, indices, values)
                })
            })?;
            counts.push(self.update.nnz() - before);
        }
        self.entries_sent += AllGather::entries_sent(own, &counts);
        self.selector.apply_rule_b(0, feedback.work_mut());
        Ok(())
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.update.len() as usize);
        self.entries_sent = 0;
        self.select(feedback, input.gradient);
        self.phase = self.split();
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        loop {
            let round = match &mut self.phase {
                Phase::Split(exchange) => exchange.round(),
                Phase::Gather(gather) => gather.round(),
                Phase::Idle => return Ok(None),
            };
            if round.is_some() {
                return Ok(round);
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Split(exchange) => self.reduce(&exchange.into_sum()?),
                Phase::Gather(gather) => {
                    self.finish(feedback, &gather.into_items())?;
                    Phase::Idle
                }
                Phase::Idle => Phase::Idle,
            };
        }
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Split(exchange) => exchange.absorb(received),
            Phase::Gather(gather) => gather.absorb(received),
            Phase::Idle => Ok(()),
        }
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            entries_sent: self.entries_sent,
            ..self.selector.stats()
        }
    }
}

/// The regions and how their sums travel: a byte for the form, then a list or a run.
#[derive(Clone, Debug)]
struct Regions {
    codec: Codec,
    partition: Partition,
}

const LIST: u8 = 0;
const RUN: u8 = 1;

impl Regions {
    fn new(codec: Codec, len: u32, workers: usize) -> Self {
        Self {
            codec,
            partition: Partition::even(len, workers),
        }
    }

    /// How lists of at most `max` entries of a region travel.
    fn block(&self, region: usize, max: usize) -> Block {
        Block::new(self.codec, &self.partition, region, max)
    }

    /// The bytes of a run. Values that share a scale are quantised as a list, which a run with zeros between them would change.
    fn run_len(&self, region: usize) -> usize {
        let (values, len) = (self.codec.values, self.partition.block_len(region) as usize);
        if values.elementwise() == values {
            values.encoded_len(len)
        } else {
            usize::MAX
        }
    }

    /// The most bytes of the sums of each region, when every worker selects `k` entries.
    fn bounds(&self, k: usize) -> Vec<usize> {
        let workers = self.partition.blocks();
        let most = k.saturating_mul(workers);
        (0..workers)
            .map(|region| self.bound(region, most))
            .collect()
    }

    /// The most bytes of `most` sums of a region.
    fn bound(&self, region: usize, most: usize) -> usize {
        1 + self.block(region, most).bound().min(self.run_len(region))
    }

    /// The bytes that `count` sums of a region usually take.
    fn usual(&self, region: usize, count: usize) -> usize {
        let list = self
            .codec
            .usual_len(self.partition.block_len(region), count);
        1 + list.min(self.run_len(region))
    }

    fn encode(&self, region: usize, sums: &Entries, out: &mut Vec<u8>) {
        let block = self.block(region, sums.len());
        if self.codec.list_len(block.len(), sums.len()) <= self.run_len(region) {
            out.push(LIST);
            block.encode(sums, out);
            return;
        }
        let mut run = vec![0.0; block.len() as usize];
        for (&index, &value) in sums.indices.iter().zip(&sums.values) {
            run[(index - block.range.start) as usize] = value;
        }
        out.push(RUN);
        encode_values(self.codec.values, &run, out);
    }

    fn decode(
        &self,
        region: usize,
        reader: &mut Reader<'_>,
        most: usize,
        indices: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<(), DecodeError> {
        let block = self.block(region, most);
        let (start, len) = (block.range.start, block.len());
        match reader.u8()? {
            LIST => self.codec.decode(reader, start, len, most, indices, values),
            RUN => {
                let mut run = vec![0.0; len as usize];
                decode_values(self.codec.values, reader, &mut run)?;
                for (index, value) in (start..).zip(run) {
                    if value != 0.0 {
                        indices.push(index);
                        values.push(value);
                    }
                }
                Ok(())
            }
            other => Err(DecodeError::UnknownCoding(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use spardl_core::Outcome;
    use spardl_sim::Cluster;
    use spardl_testkit::{check, generate};

    use super::*;

    #[test]
    fn the_example_of_the_header_comes_out() {
        let inputs: [&[(usize, f32)]; 5] = [
            &[(0, 9.0), (5, 4.0)],
            &[(0, 8.0), (9, 3.0)],
            &[(2, 5.0), (5, 2.0)],
            &[(0, 6.0), (7, 7.0)],
            &[(7, 5.0), (9, 1.0)],
        ];
        let gradients = inputs.map(|entries| {
            let mut gradient = vec![0.0; 10];
            entries.iter().for_each(|&(i, v)| gradient[i] = v);
            gradient
        });
        let mut cluster = Cluster::new(&TopkDsa::default(), 5, &Layout::flat(10)).unwrap();
        let report = cluster.step(&gradients, 2, 0).unwrap();
        let update = check::agreed(cluster.workers(), "topk-dsa");
        assert_eq!(update, [23.0, 0.0, 5.0, 0.0, 0.0, 6.0, 0.0, 12.0, 0.0, 4.0]);
        assert_eq!(report.ledger.rounds, [4; 5]);
        cluster.commit().unwrap();
        assert!(cluster.workers().iter().all(|w| w.residual() == [0.0; 10]));
        assert_eq!(TopkDsa::default().codec.list_len(2, 1), 11);
    }

    #[test]
    fn a_region_travels_in_the_shorter_form_and_comes_back() {
        let regions = Regions::new(Codec::default(), 3000, 3);
        for count in [0, 1, 100, 500, 900, 1000] {
            let indices: Vec<u32> = (1000..1000 + count).collect();
            let values = vec![1.5; count as usize];
            let sums = Entries { indices, values };
            let mut bytes = Vec::new();
            regions.encode(1, &sums, &mut bytes);
            let list = Codec::default().list_len(1000, count as usize);
            assert_eq!(bytes.len(), 1 + list.min(4000));
            assert_eq!(bytes[0] == RUN, list > 4000);
            let (mut reader, mut back) = (Reader::new(&bytes), Entries::default());
            regions
                .decode(1, &mut reader, 1000, &mut back.indices, &mut back.values)
                .unwrap();
            reader.finish().unwrap();
            assert_eq!(back, sums);
        }
    }

    /// Steps whose inputs equal update plus residuals, of 20.
    fn conserved(config: &TopkDsa, workers: u32) -> usize {
        let layout = Layout::flat(200);
        let mut cluster = Cluster::new(config, workers, &layout).unwrap();
        let holds = (0..20).filter(|&step| {
            let gradients = generate::integers(step, workers, 200);
            let before = check::inputs(cluster.workers(), &gradients);
            let report = cluster.step(&gradients, 20, step).unwrap();
            assert!(report.outcomes.iter().all(|o| *o == Outcome::Updated));
            let update = check::agreed(cluster.workers(), "topk-dsa");
            cluster.commit().unwrap();
            let mut after = check::residuals(cluster.workers());
            check::add(&mut after, &update);
            before == after
        });
        holds.count()
    }

    #[test]
    fn the_published_rule_destroys_the_kth_entry_in_every_step() {
        let published = TopkDsa {
            loses_kth: true,
            ..TopkDsa::default()
        };
        assert!(!published.laws().conserves);
        for workers in [1, 2, 5, 8] {
            assert_eq!(conserved(&TopkDsa::default(), workers), 20);
            assert_eq!(conserved(&published, workers), 0);
        }
    }
}
