//! Error feedback: the residual a worker keeps, and the working copy a step changes.
//!
//! The pass writes `work = residual + gradient`; the machine turns `work` into the next residual; commit swaps the two.
//! Until then the residual is untouched, so abort is free. The law (per element, over all workers):
//!
//! ```text
//! sum(residual + gradient)  =  update + sum(next residual)
//! ```

use std::ops::Range;

use spardl_kernels::{Entries, Level};

use crate::error::ConfigError;

/// The two arrays of a worker: 2n words, or n for methods that keep no residual.
#[derive(Debug)]
pub struct Feedback {
    residual: Vec<f32>,
    work: Vec<f32>,
    keeps: bool,
    raised: bool,
    level: Level,
}

impl Feedback {
    /// Arrays of `len` elements, with a zero residual.
    pub fn new(len: usize) -> Self {
        Self::with_residual(len, array(len), true)
    }

    /// A working copy only, for methods that deliver everything.
    pub fn without_residual(len: usize) -> Self {
        Self::with_residual(len, Vec::new(), false)
    }

    fn with_residual(len: usize, residual: Vec<f32>, keeps: bool) -> Self {
        Self {
            residual,
            work: array(len),
            keeps,
            raised: false,
            level: Level::best(),
        }
    }

    /// The length of the bucket.
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Is the bucket empty?
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// What this worker kept from earlier steps; empty for methods that keep nothing.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// The working copy.
    pub fn work(&self) -> &[f32] {
        &self.work
    }

    /// The working copy, to be turned into the next residual.
    pub fn work_mut(&mut self) -> &mut [f32] {
        &mut self.work
    }

    /// `work = residual + gradient` on `range`, and the entries with magnitude at least `threshold` appended to `found`.
    ///
    /// `threshold` 0 finds every non-zero, infinity none. A NaN or infinity raises the flag; when the last range is in,
    /// the machine calls [`Feedback::mute_if_raised`].
    pub fn accumulate(
        &mut self,
        gradient: &[f32],
        range: Range<usize>,
        threshold: f32,
        found: &mut Entries,
    ) {
        let base = range.start as u32;
        let (gradient, work) = (&gradient[range.clone()], &mut self.work[range.clone()]);
        let finite = if self.keeps {
            let residual = &self.residual[range];
            spardl_kernels::accumulate(self.level, residual, gradient, work, base, threshold, found)
        } else {
            spardl_kernels::copy(self.level, gradient, work)
        };
        self.raised |= !finite;
    }

    /// `work = residual + gradient` everywhere, for methods that look at no single entry.
    pub fn load(&mut self, gradient: &[f32]) {
        let all = 0..self.len();
        self.accumulate(gradient, all, f32::INFINITY, &mut Entries::default());
        self.mute_if_raised();
    }

    /// After a NaN or infinity the worker goes on with an empty contribution. Returns whether that is so.
    pub fn mute_if_raised(&mut self) -> bool {
        if self.raised {
            self.work.fill(0.0);
        }
        self.raised
    }

    /// Says that a value became NaN or infinite on the way.
    pub const fn raise(&mut self) {
        self.raised = true;
    }

    /// Did a NaN or infinity turn up in this step on this worker?
    pub const fn is_raised(&self) -> bool {
        self.raised
    }

    pub(crate) const fn start(&mut self) {
        self.raised = false;
    }

    pub(crate) const fn commit(&mut self) {
        if self.keeps {
            std::mem::swap(&mut self.residual, &mut self.work);
        }
    }

    pub(crate) const fn abort(&mut self) {
        self.raised = false;
    }

    pub(crate) fn check_len(&self, residual: &[f32]) -> Result<(), ConfigError> {
        if residual.len() == self.residual.len() {
            return Ok(());
        }
        Err(ConfigError::StateMismatch {
            what: "the length of the residual".to_owned(),
            expected: self.residual.len().to_string(),
            got: residual.len().to_string(),
        })
    }

    pub(crate) fn restore(&mut self, residual: &[f32]) {
        self.residual.copy_from_slice(residual);
    }
}

/// A zero array that will be read and written all over.
fn array(len: usize) -> Vec<f32> {
    let mut array = vec![0.0; len];
    spardl_kernels::prefer_huge_pages(&mut array);
    array
}
