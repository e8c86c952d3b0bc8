//! What a worker contributes to a step: its gradient, as slices of f32, bf16 or f16 that the pass reads as they are.

use std::ops::Range;

use spardl_kernels::{Scaled, Source};

/// What a step starts from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Input<'a> {
    /// This worker's gradient of the bucket; read only.
    pub gradient: Gradient<'a>,
    /// How many entries the update should have; may change from step to step, equal on all workers.
    pub k: usize,
    /// The number of the step, equal on all workers; rotations are taken from it.
    pub step: u64,
    /// False when the caller knows that its gradient is bad. The worker then contributes nothing and all workers skip the step.
    pub finite: bool,
}

impl<'a> Input<'a> {
    /// A gradient that is taken to be good; the pass looks for NaN and infinities anyway.
    pub fn new(gradient: impl Into<Gradient<'a>>, k: usize, step: u64) -> Self {
        Self {
            gradient: gradient.into(),
            k,
            step,
            finite: true,
        }
    }

    /// The same with another number of entries.
    #[must_use]
    pub const fn k(mut self, k: usize) -> Self {
        self.k = k;
        self
    }

    /// The same with the caller's word on whether the gradient is good.
    #[must_use]
    pub const fn finite(mut self, finite: bool) -> Self {
        self.finite = finite;
        self
    }
}

/// This worker's gradient of a bucket: one slice or several, end to end, with a scale.
///
/// Elements are widened to f32 and multiplied by the scale as the pass reads them; nothing is copied first. The residual is kept
/// unscaled, so that a loss scale may change from step to step: give its inverse here.
///
/// # Example
///
/// ```
/// use half::bf16;
/// use spardl_core::{Gradient, Source};
///
/// let (weights, bias) = ([bf16::from_f32(3.0); 2], [5.0]);
/// let tensors = [Source::Bf16(&weights), Source::F32(&bias)];
/// let gradient = Gradient::of_slices(&tensors).scaled(0.5);
/// assert_eq!(gradient.len(), 3);
/// assert_eq!((gradient.get(1), gradient.get(2)), (1.5, 2.5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    slices: Slices<'a>,
    scale: f32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Slices<'a> {
    One(Source<'a>),
    Several(&'a [Source<'a>]),
}

impl<'a> Gradient<'a> {
    /// The slices end to end, with a scale of 1.
    pub fn of_slices(slices: &'a [Source<'a>]) -> Self {
        Self {
            slices: Slices::Several(slices),
            scale: 1.0,
            len: slices.iter().map(Source::len).sum(),
        }
    }

    /// The same elements with another scale.
    #[must_use]
    pub const fn scaled(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// The number of elements of all slices.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Is there no element?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The factor of every element.
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// Element `i`, scaled. With several slices this looks for the one that has it.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn get(&self, i: usize) -> f32 {
        let (_, piece) = self
            .pieces(i..i + 1)
            .next()
            .expect("the index is within the gradient");
        piece.source.get(0) * self.scale
    }

    /// The parts of the slices that `range` covers, each with the elements it holds.
    pub(crate) fn pieces(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Scaled<'a>)> {
        let slices = match &self.slices {
            Slices::One(slice) => std::slice::from_ref(slice),
            Slices::Several(slices) => *slices,
        };
        let scale = self.scale;
        let mut end = 0;
        slices.iter().filter_map(move |slice| {
            let first = end;
            end += slice.len();
            let (from, to) = (range.start.max(first), range.end.min(end));
            (from < to).then(|| {
                let source = slice.slice(from - first..to - first);
                (from..to, Scaled { source, scale })
            })
        })
    }
}

impl<'a> From<Source<'a>> for Gradient<'a> {
    fn from(source: Source<'a>) -> Self {
        Self {
            slices: Slices::One(source),
            scale: 1.0,
            len: source.len(),
        }
    }
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for Gradient<'a> {
    fn from(values: &'a T) -> Self {
        Source::F32(values.as_ref()).into()
    }
}
