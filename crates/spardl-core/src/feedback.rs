//! Error feedback: the residual a worker keeps, and the working copy a step changes.
//!
//! The pass writes `work = residual + gradient`; the machine turns `work` into the next residual; commit swaps the two.
//! Until then the residual is untouched, so abort is free. The law (per element, over all workers):
//!
//! ```text
//! sum(residual + gradient)  =  update + sum(next residual)
//! ```

use std::ops::Range;
use std::sync::Arc;

use spardl_kernels::{Entries, Level, zeroed};

use crate::error::ConfigError;
use crate::gradient::Gradient;
use crate::parallel::{Parallel, Serial, cut, for_each};

/// The two arrays of a worker: 2n words, or n for methods that keep no residual.
#[derive(Debug)]
pub struct Feedback {
    residual: Vec<f32>,
    work: Vec<f32>,
    keeps: bool,
    non_finite: bool,
    level: Level,
    threads: Arc<dyn Parallel>,
    /// Lists that pieces of the pass find entries in, kept for their memory.
    spare: Vec<Entries>,
}

/// A run of elements of the pass, and what to look for there.
#[derive(Debug)]
pub struct Span<'a> {
    range: Range<usize>,
    threshold: f32,
    found: Option<&'a mut Entries>,
}

impl<'a> Span<'a> {
    /// Looks in `range` for entries of magnitude at least `threshold` (0: every non-zero; infinity: none) and appends them to
    /// `found`, which is empty.
    pub fn new(range: Range<usize>, threshold: f32, found: &'a mut Entries) -> Self {
        debug_assert!(found.is_empty(), "what is found starts empty");
        Self {
            range,
            threshold,
            found: Some(found),
        }
    }

    /// A run in which nothing is looked for.
    pub const fn skipped(range: Range<usize>) -> Self {
        Self {
            range,
            threshold: f32::INFINITY,
            found: None,
        }
    }
}

/// A part of a span, for one thread.
struct Piece<'a> {
    range: Range<usize>,
    threshold: f32,
    work: &'a mut [f32],
    found: Result<&'a mut Entries, Entries>,
    finite: bool,
}

impl Piece<'_> {
    fn accumulate(&mut self, level: Level, residual: Option<&[f32]>, gradient: Gradient<'_>) {
        let (first, threshold) = (self.range.start, self.threshold);
        let found = self.found.as_mut().map_or_else(|own| own, |found| *found);
        for (range, slice) in gradient.pieces(self.range.clone()) {
            let work = &mut self.work[range.start - first..range.end - first];
            let base = range.start as u32;
            let finite = match residual.map(|residual| &residual[range]) {
                Some(residual) => {
                    spardl_kernels::accumulate(level, residual, slice, work, base, threshold, found)
                }
                None => spardl_kernels::copy(level, slice, work),
            };
            if !finite {
                self.finite = false;
                return;
            }
        }
    }
}

fn covers(spans: &[Span<'_>], len: usize) -> bool {
    let mut end = 0;
    let joined = spans
        .iter()
        .all(|span| std::mem::replace(&mut end, span.range.end) == span.range.start);
    joined && end == len
}

impl Feedback {
    /// Arrays of `len` elements, with a zero residual.
    pub fn new(len: usize) -> Self {
        Self::with_residual(len, zeroed(len), true)
    }

    /// A working copy only, for methods that deliver everything.
    pub fn without_residual(len: usize) -> Self {
        Self::with_residual(len, Vec::new(), false)
    }

    fn with_residual(len: usize, residual: Vec<f32>, keeps: bool) -> Self {
        Self {
            residual,
            work: zeroed(len),
            keeps,
            non_finite: false,
            level: Level::best(),
            threads: Arc::new(Serial),
            spare: Vec::new(),
        }
    }

    /// Uses these threads from the next pass on.
    pub(crate) fn set_threads(&mut self, threads: Arc<dyn Parallel>) {
        self.threads = threads;
    }

    /// The threads that this worker may use.
    pub fn threads(&self) -> &Arc<dyn Parallel> {
        &self.threads
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

    /// The pass: `work = residual + gradient`, and what each span asks for. The spans cover the bucket, in order.
    ///
    /// After a NaN or infinity this worker is muted: it goes on with an empty contribution, so `work` is zero and nothing is
    /// found, and all workers will skip the step.
    pub fn accumulate(&mut self, gradient: Gradient<'_>, mut spans: Vec<Span<'_>>) {
        debug_assert!(covers(&spans, self.len()), "the spans cover the bucket");
        if !self.non_finite {
            self.pass(gradient, &mut spans);
        }
        if self.non_finite {
            self.work.fill(0.0);
            let found = spans.iter_mut().filter_map(|span| span.found.as_mut());
            found.for_each(|found| found.clear());
        }
    }

    fn pass(&mut self, gradient: Gradient<'_>, spans: &mut [Span<'_>]) {
        let mut pieces = Vec::new();
        let mut work = &mut self.work[..];
        for span in spans.iter_mut() {
            let mut found = span.found.as_deref_mut();
            for range in cut(&*self.threads, span.range.clone(), 1) {
                let (here, rest) = work.split_at_mut(range.len());
                work = rest;
                pieces.push(Piece {
                    range,
                    threshold: span.threshold,
                    work: here,
                    // The first piece of a span writes where all will be, the others, and those that find nothing, beside it.
                    found: found
                        .take()
                        .ok_or_else(|| self.spare.pop().unwrap_or_default()),
                    finite: true,
                });
            }
        }
        let residual = self.keeps.then_some(&self.residual[..]);
        for_each(&*self.threads, &mut pieces, |piece| {
            piece.accumulate(self.level, residual, gradient);
        });
        let mut all: Option<&mut Entries> = None;
        for piece in pieces {
            self.non_finite |= !piece.finite;
            match (piece.found, &mut all) {
                (Ok(first), _) => all = Some(first),
                (Err(mut more), Some(all)) => {
                    all.append(&mut more);
                    self.spare.push(more);
                }
                (Err(nothing), None) => self.spare.push(nothing),
            }
        }
    }

    /// The pass of methods that look at no single entry.
    pub fn load(&mut self, gradient: Gradient<'_>) {
        self.accumulate(gradient, vec![Span::skipped(0..self.len())]);
    }

    /// Makes the working copy `(1 - weight) * residual + weight * work`: the next residual passes a low-pass filter, which does not
    /// conserve unless `weight`, from 0 to 1, is 1.
    pub fn low_pass(&mut self, weight: f32) {
        let kept = 1.0 - weight;
        for (work, residual) in self.work.iter_mut().zip(&self.residual) {
            *work = kept * residual + weight * *work;
        }
    }

    /// Says that a value became NaN or infinite on the way.
    pub const fn flag_non_finite(&mut self) {
        self.non_finite = true;
    }

    /// Did a NaN or infinity turn up in this step on this worker?
    pub const fn is_flagged(&self) -> bool {
        self.non_finite
    }

    /// A step begins; `finite` is false when the gradient is already known to be bad.
    pub(crate) const fn start(&mut self, finite: bool) {
        self.non_finite = !finite;
    }

    pub(crate) const fn commit(&mut self) {
        if self.keeps {
            std::mem::swap(&mut self.residual, &mut self.work);
        }
    }

    /// May this be the residual?
    pub(crate) fn check(&self, residual: &[f32]) -> Result<(), ConfigError> {
        if residual.len() != self.residual.len() {
            return Err(ConfigError::StateMismatch {
                what: "the length of the residual".to_owned(),
                expected: self.residual.len().to_string(),
                got: residual.len().to_string(),
            });
        }
        match residual.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(ConfigError::NonFiniteResidual { index }),
            None => Ok(()),
        }
    }

    pub(crate) fn restore(&mut self, residual: &[f32]) {
        self.residual.copy_from_slice(residual);
    }

    /// Replaces elements of the residual by `value(old, given)`: all of them, or none when one may not be.
    pub(crate) fn change_residual(
        &mut self,
        call: &'static str,
        start: usize,
        given: &[f32],
        value: impl Fn(f32, f32) -> f32,
    ) -> Result<(), ConfigError> {
        if !self.keeps {
            return Err(ConfigError::NoResidual { call });
        }
        let (end, len) = (start.saturating_add(given.len()), self.len());
        let Some(old) = self.residual.get_mut(start..end) else {
            return Err(ConfigError::ResidualRange { start, end, len });
        };
        let bad = |(old, given): (&f32, &f32)| !value(*old, *given).is_finite();
        if let Some(at) = old.iter().zip(given).position(bad) {
            let index = start + at;
            return Err(ConfigError::NonFiniteResidual { index });
        }
        for (old, given) in old.iter_mut().zip(given) {
            *old = value(*old, *given);
        }
        Ok(())
    }
}
