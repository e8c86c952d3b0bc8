//! A small dense stretch of the index range, through which ascending lists are merged.

use crate::{Entries, Level, portable};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512, x86};

/// A stretch of [`Window::LEN`] elements, some of which hold a value. It and its marks stay in the first-level cache.
///
/// Lists that ascend are merged by moving a window along the index range: what each list has there is put into the window, then
/// the window is drained. Every entry costs a few operations that do not wait for each other, where a merge of sorted lists
/// would guess wrong at every second one.
///
/// Every function that takes a list looks at its first entries, as long as they lie in the window, and returns how many those are.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Entries, Level, Window};
///
/// let (work, mut out) = ([0.5; 100], Entries::new());
/// let mut window = Window::new(0);
/// assert_eq!(window.put(&[3, 7, 9_000], &[1.0, 2.0, 3.0]), 2);
/// assert_eq!(window.add(&work, &[7, 8], &[1.0, 1.0]), 2);
/// window.drain(Level::best(), &mut out);
/// assert_eq!(out.indices, [3, 7, 8]);
/// assert_eq!(out.values, [1.0, 3.0, 1.5]);
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    start: u32,
    /// How many entries were put or added since the last drain: at least as many as there are marks.
    offered: usize,
    /// Do the elements without a mark hold the values of a dense array?
    filled: bool,
    sums: Box<Sums>,
    marks: Box<Marks>,
}

/// The values of a window; meaningless where there is no mark.
pub(crate) type Sums = [f32; Window::LEN];

/// A byte per element, 1 where it holds a value; and a few zeros more, so that four bytes can be read at each element.
pub(crate) type Marks = [u8; Window::LEN + 64];

impl Window {
    /// Elements of a window.
    pub const LEN: usize = 1 << 13;

    /// An empty window from index `start` on.
    pub fn new(start: u32) -> Self {
        Self {
            start,
            offered: 0,
            filled: false,
            sums: Box::new([0.0; Self::LEN]),
            marks: Box::new([0; Self::LEN + 64]),
        }
    }

    /// Empties the window and moves it to `start`.
    pub fn move_to(&mut self, start: u32) {
        if self.offered > 0 {
            self.marks.fill(0);
            self.offered = 0;
        }
        self.start = start;
        self.filled = false;
    }

    /// Gives the elements the values of `dense`, which begins where the window does, as far as that goes; none holds one by that.
    /// Where lists touch every cache line anyway, this makes [`Window::add`] a plain sum. To be called before entries are put, and
    /// the only values to add to.
    pub fn fill(&mut self, dense: &[f32]) {
        debug_assert_eq!(self.offered, 0, "the window holds entries");
        let count = dense.len().min(Self::LEN);
        self.sums[..count].copy_from_slice(&dense[..count]);
        self.filled = true;
    }

    /// Puts entries into the window.
    ///
    /// # Panics
    ///
    /// If `indices` and `values` differ in length.
    pub fn put(&mut self, indices: &[u32], values: &[f32]) -> usize {
        check_lengths(indices, values);
        self.each(indices, values, |sum, mark, _, value| {
            *mark = 1;
            *sum = value;
        })
    }

    /// Adds entries to what the window holds; an element that holds no value yet begins with that in `dense`.
    ///
    /// # Panics
    ///
    /// If `indices` and `values` differ in length, or an index is out of range for `dense`.
    pub fn add(&mut self, dense: &[f32], indices: &[u32], values: &[f32]) -> usize {
        check_lengths(indices, values);
        if self.filled {
            return self.each(indices, values, |sum, mark, _, value| {
                *mark = 1;
                *sum += value;
            });
        }
        let mut ahead = indices.iter().skip(AHEAD);
        self.each(indices, values, |sum, mark, index, value| {
            // The values in `dense` lie far apart: they are asked for well before they are needed.
            if let Some(&ahead) = ahead.next() {
                prefetch(dense, ahead);
            }
            let base = dense[index as usize];
            let before = if *mark == 0 { base } else { *sum };
            *mark = 1;
            *sum = before + value;
        })
    }

    /// Writes the values of a filled window at these indices to `dense`, which begins where the window does.
    ///
    /// # Panics
    ///
    /// If an index in the window is out of range for `dense`.
    pub fn copy_to(&self, indices: &[u32], dense: &mut [f32]) -> usize {
        debug_assert!(self.filled, "an element may have no value");
        let mut count = 0;
        for &index in indices {
            let slot = index.wrapping_sub(self.start) as usize;
            if slot >= Self::LEN {
                break;
            }
            dense[slot] = self.sums[slot];
            count += 1;
        }
        count
    }

    /// Marks elements, for [`Window::common`]; what values they hold is then unspecified.
    pub fn mark(&mut self, indices: &[u32]) -> usize {
        self.each(indices, indices, |_, mark, _, _| *mark = 1)
    }

    /// Appends the entries of the list whose elements are marked.
    ///
    /// # Panics
    ///
    /// If `indices` and `values` differ in length.
    pub fn common(
        &self,
        level: Level,
        indices: &[u32],
        values: &[f32],
        out: &mut Entries,
    ) -> usize {
        check_lengths(indices, values);
        // An ascending list has no more entries than that in the window.
        let most = indices.len().min(Self::LEN);
        let (marks, indices, values) = (&self.marks, &indices[..most], &values[..most]);
        dispatch!(level, common(marks, self.start, indices, values, out))
    }

    /// Appends every element that holds a value, in order, and empties the window.
    ///
    /// # Panics
    ///
    /// If the index of the last element does not fit a `u32`.
    pub fn drain(&mut self, level: Level, out: &mut Entries) {
        if self.offered == 0 {
            return;
        }
        crate::check_range(self.start, Self::LEN);
        let most = std::mem::take(&mut self.offered).min(Self::LEN);
        let (start, sums, marks) = (self.start, &self.sums, &mut self.marks);
        dispatch!(level, drain(marks, sums, start, most, out));
    }

    /// Calls `each` for the first entries, as long as they lie in the window, with the value and the mark of the element, the index and what
    /// the list has there; returns how many those are.
    ///
    /// Nothing looks for the end beforehand: a search jumps ahead of the hardware's prefetcher and takes longer than the loop.
    #[inline(always)]
    fn each<T: Copy>(
        &mut self,
        indices: &[u32],
        values: &[T],
        mut each: impl FnMut(&mut f32, &mut u8, u32, T),
    ) -> usize {
        let (sums, marks, start) = (&mut *self.sums, &mut *self.marks, self.start);
        let mut count = 0;
        for (&index, &value) in indices.iter().zip(values) {
            let slot = index.wrapping_sub(start) as usize;
            if slot >= Self::LEN {
                break;
            }
            each(&mut sums[slot], &mut marks[slot], index, value);
            count += 1;
        }
        self.offered += count;
        count
    }
}

/// How many entries ahead values are prefetched.
pub(crate) const AHEAD: usize = 64;

#[inline(always)]
pub(crate) fn prefetch(dense: &[f32], index: u32) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch_entry(dense, index);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (dense, index);
}

fn check_lengths(indices: &[u32], values: &[f32]) {
    assert_eq!(
        indices.len(),
        values.len(),
        "indices and values differ in length"
    );
}
