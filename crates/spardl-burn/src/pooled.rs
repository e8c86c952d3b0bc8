//! A model that computes in a pool of its own.

use rayon::{ThreadPool, ThreadPoolBuilder};
use spardl_core::Layout;
use spardl_train::{Batch, Model, Score};

use spardl_nets::BuildError;

/// A model that computes in a pool of its own: with one thread its sums have one order, whatever the machine does besides.
pub struct Pooled {
    pool: ThreadPool,
    model: Box<dyn Model + Send>,
}

impl Pooled {
    /// A model with that many threads.
    ///
    /// # Errors
    /// When the system has no threads to give.
    pub fn new(model: Box<dyn Model + Send>, threads: usize) -> Result<Self, BuildError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| BuildError::Threads {
            threads,
            problem: error.to_string(),
        })?;
        Ok(Self { pool, model })
    }
}

impl std::fmt::Debug for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let threads = self.pool.current_num_threads();
        f.debug_struct("Pooled")
            .field("threads", &threads)
            .finish_non_exhaustive()
    }
}

impl Model for Pooled {
    fn layout(&self) -> &Layout {
        self.model.layout()
    }

    fn parameters(&self, values: &mut [f32]) {
        self.model.parameters(values);
    }

    fn set_parameters(&mut self, values: &[f32]) {
        self.model.set_parameters(values);
    }

    fn buffers(&self) -> Vec<f32> {
        self.model.buffers()
    }

    fn set_buffers(&mut self, values: &[f32]) {
        self.model.set_buffers(values);
    }

    fn gradient(&mut self, batch: &Batch, seed: u64, gradient: &mut [f32]) -> Score {
        let Self { pool, model } = self;
        pool.install(|| model.gradient(batch, seed, gradient))
    }

    fn evaluate(&mut self, batch: &Batch) -> Score {
        let Self { pool, model } = self;
        pool.install(|| model.evaluate(batch))
    }
}
