//! TopkA: every worker's top-k, gathered by all and summed.
//!
//! The idea: each worker selects the k largest entries of gradient + residual and sends them to everybody; all add the lists in
//! rank order. What was not selected stays in the residual.
//!
//! Example, 5 workers, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the lists are {1:3}, {1:2}, {0:4}, {1:2},
//! {2:5}; the update is (4 7 5) and worker 4 keeps (1 0 0).
//!
//! Rounds: ceil(log2 P). Bytes: k (P - 1) entries per worker.
//!
//! Limitations: the update has up to k P entries and a worker receives as many; above a density of 1/P the dense method
//! sends less.
//!
//! Differs from the authors' code: one all-gather of whole lists instead of two (values, indices); ties go to the lower index;
//! zeros are never sent; the residual is cut out, not multiplied by a mask.

use spardl_core::phase::AllGather;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Feedback, HEADER_LEN, Input, Laws, Layout,
    Machine, Partition, ProtocolError, Received, Selector, SparseVec, Support, Tally, Turn, Update,
    World, list, schedule,
};

/// All-gather of every worker's top-k.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopkA {
    /// How entries travel.
    pub codec: Codec,
}

impl Algorithm for TopkA {
    fn name(&self) -> &'static str {
        "topk-a"
    }

    fn describe(&self) -> String {
        format!("topk-a values={}", self.codec.values)
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(Worker {
            world,
            codec: self.codec,
            selector: Selector::new(Partition::even(layout.len(), 1)),
            k: 0,
            gather: None,
            entries_sent: 0,
            update: SparseVec::new(layout.len()),
        }))
    }

    fn cost(&self, workers: u32, len: u32, k: usize, _step: u64) -> Cost {
        let rounds = schedule::ceil_log2(workers as usize);
        let list = self.codec.list_bound(len, k.min(len as usize));
        let lens = vec![list; workers as usize];
        Cost {
            rounds: rounds..=rounds,
            messages: u64::from(rounds),
            bytes_max: AllGather::body_bytes(0, &lens) + u64::from(rounds) * HEADER_LEN as u64,
        }
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: true,
            keeps_residual: true,
            support: Support::KPerWorker,
            lossless_when_full: true,
            scales: true,
        }
    }
}

#[derive(Debug)]
struct Worker {
    world: World,
    codec: Codec,
    selector: Selector,
    k: usize,
    gather: Option<AllGather>,
    entries_sent: u64,
    update: SparseVec,
}

impl Worker {
    fn turn(&mut self, feedback: &mut Feedback) -> Result<Turn, ProtocolError> {
        let gather = self.gather.as_ref().expect("a step is under way");
        match gather.round() {
            Some(round) => Ok(Turn::Exchange(round)),
            None => self.finish(feedback),
        }
    }

    fn finish(&mut self, feedback: &mut Feedback) -> Result<Turn, ProtocolError> {
        let items = self
            .gather
            .take()
            .expect("a step is under way")
            .into_items();
        let len = self.selector.partition().len();
        let mut lists = vec![Entries::default(); self.world.size() as usize];
        for (from, list) in lists.iter_mut().enumerate() {
            items.read(from, |reader| {
                self.codec.decode_entries(reader, 0, len, self.k, list)
            })?;
        }
        self.update = list::into_update(list::sum_all(&lists, len), len);
        self.selector.settle_all(0, feedback.work_mut());
        Ok(Turn::Done)
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) -> Turn {
        let len = self.selector.partition().len();
        self.k = input.k.min(len as usize);
        self.selector.pass(feedback, input.gradient, &[self.k]);
        let mut own = Entries::default();
        self.selector
            .take_top(0, feedback.work(), self.k, self.codec.values, &mut own);
        let mut item = Vec::new();
        self.codec.encode_entries(0, len, &own, &mut item);
        let size = self.world.size() as usize;
        // Every list travels P - 1 times in all; a worker's share is the same.
        self.entries_sent = (own.len() * (size - 1)) as u64;
        let bounds = vec![self.codec.list_bound(len, self.k); size];
        self.gather = Some(AllGather::new(self.world.everyone(), item, bounds));
        self.turn(feedback).expect("the own list is well formed")
    }

    fn resume(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<Turn, ProtocolError> {
        self.gather
            .as_mut()
            .expect("a step is under way")
            .absorb(received)?;
        self.turn(feedback)
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn tally(&self) -> Tally {
        Tally {
            rescans: self.selector.rescans(),
            entries_sent: self.entries_sent,
            selected: self.selector.selected(),
        }
    }
}
