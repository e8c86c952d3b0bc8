//! The lists of a block merged piece by piece, on several threads when the block is large.

use std::ops::Range;
use std::sync::Arc;

use spardl_kernels::{Entries, Level, Window};

use super::merge;
use crate::parallel::{Parallel, Serial, cut, for_each};

/// Merges the lists of blocks; the number of threads changes no bit.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    kernels: Level,
    threads: Arc<dyn Parallel>,
    scratch: Vec<Scratch>,
}

/// Room for one piece to work in.
#[derive(Clone, Debug)]
struct Scratch {
    window: Window,
    entries: Entries,
    spare: Entries,
}

/// A part of a block, for one thread.
struct Piece<'a, T> {
    range: Range<usize>,
    scratch: &'a mut Scratch,
    work: T,
}

impl Pieces {
    pub(super) fn new(kernels: Level) -> Self {
        Self {
            kernels,
            threads: Arc::new(Serial),
            scratch: Vec::new(),
        }
    }

    pub(super) fn set_threads(&mut self, threads: &Arc<dyn Parallel>) {
        self.threads = Arc::clone(threads);
    }

    /// `known` of the block `range` becomes what [`merge::fold`] makes of it.
    pub(super) fn fold(
        &mut self,
        range: Range<usize>,
        work: &[f32],
        known: &mut Entries,
        lists: &[Entries],
    ) {
        let ranges = cut(&*self.threads, range, Window::LEN);
        let pieces = ranges.into_iter().map(|range| (range, work)).collect();
        let (kernels, old) = (self.kernels, &*known);
        self.each(
            pieces,
            |Piece {
                 range,
                 scratch,
                 work,
             }| {
                let (window, out) = (
                    &mut scratch.window,
                    [&mut scratch.entries, &mut scratch.spare],
                );
                merge::fold(window, kernels, range.clone(), work, old, lists, out);
            },
        );
        let mut found = self.scratch.iter_mut().map(|scratch| &mut scratch.entries);
        if let Some(first) = found.next() {
            found.for_each(|more| first.append(more));
            std::mem::swap(known, first);
        }
    }

    /// Adds the `lists`, in their order, to `values`, those of the block `range`; begins with those of `work`, if it is given.
    pub(super) fn load(
        &self,
        range: Range<usize>,
        work: Option<&[f32]>,
        values: &mut [f32],
        lists: &[Entries],
    ) {
        let first = range.start;
        let mut rest = values;
        let pieces = cut(&*self.threads, range, 1).into_iter();
        let mut pieces: Vec<_> = pieces
            .map(|range| {
                let here = rest.split_off_mut(..range.len()).unwrap_or_default();
                let work = work.map(|work| &work[range.start - first..range.end - first]);
                (range.start, work, here)
            })
            .collect();
        for_each(&*self.threads, &mut pieces, |(start, work, values)| {
            merge::load(self.kernels, *start, *work, values, lists);
        });
    }

    /// Writes the values of `known` to `work` where the index is among `finals`.
    pub(super) fn apply_rule_a(
        &mut self,
        range: Range<usize>,
        work: &mut [f32],
        known: &Entries,
        finals: &[u32],
    ) {
        let mut rest = &mut work[range.clone()];
        let pieces = cut(&*self.threads, range, Window::LEN).into_iter();
        let pieces = pieces.map(|range| {
            let here = rest.split_off_mut(..range.len());
            (range, here.unwrap_or_default())
        });
        let (kernels, pieces) = (self.kernels, pieces.collect());
        self.each(
            pieces,
            |Piece {
                 range,
                 scratch,
                 work,
             }| {
                let Scratch {
                    window, entries, ..
                } = &mut **scratch;
                let range = range.clone();
                merge::write_final(window, kernels, range, work, known, finals, entries);
            },
        );
    }

    /// Calls `each` for all pieces, each with room of its own.
    fn each<T: Send>(
        &mut self,
        pieces: Vec<(Range<usize>, T)>,
        each: impl Fn(&mut Piece<'_, T>) + Sync,
    ) {
        if self.scratch.len() < pieces.len() {
            self.scratch.resize_with(pieces.len(), || Scratch {
                window: Window::new(0),
                entries: Entries::default(),
                spare: Entries::default(),
            });
        }
        self.scratch
            .iter_mut()
            .for_each(|scratch| scratch.entries.clear());
        let pieces = pieces.into_iter().zip(&mut self.scratch);
        let mut pieces: Vec<_> = pieces
            .map(|((range, work), scratch)| Piece {
                range,
                scratch,
                work,
            })
            .collect();
        for_each(&*self.threads, &mut pieces, each);
    }
}
