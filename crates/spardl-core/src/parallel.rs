//! Several cores for one worker.
//!
//! The core spawns nothing: whoever makes a collective may hand it threads. Work is cut into pieces at places that do not change any
//! bit, the pieces run in any order, and their results are put together in the order of the pieces.

use std::fmt;
use std::ops::Range;

/// A piece of work.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Threads that a collective may use.
pub trait Parallel: fmt::Debug + Send + Sync {
    /// How many jobs run at the same time; at least 1.
    fn threads(&self) -> usize;

    /// Runs all jobs, in any order, and returns when the last one is done. A job that panics makes this panic.
    fn run(&self, jobs: Vec<Job<'_>>);

    /// The elements of a bucket that make a piece of work; less stays on one thread.
    ///
    /// The default is 1 MiB of f32: a pass over it takes about a hundred times as long as waking a thread.
    fn grain(&self) -> usize {
        1 << 18
    }
}

/// The thread of the caller and no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

/// Pieces per thread: several, so that a thread that is late holds up little, and no more, since each needs some memory.
const SHARES: usize = 8;

/// The pieces that work over `range` is cut into, each but the last a multiple of `step` long; one when it is too small to share.
pub(crate) fn cut(parallel: &dyn Parallel, range: Range<usize>, step: usize) -> Vec<Range<usize>> {
    let threads = parallel.threads();
    let least = parallel.grain().max(range.len() / (SHARES * threads));
    let grain = least.next_multiple_of(step).max(1);
    if threads < 2 || range.len() < 2 * grain {
        return vec![range];
    }
    let pieces = range.clone().step_by(grain);
    pieces
        .map(|start| start..range.end.min(start + grain))
        .collect()
}

/// Calls `each` for every item, several at a time.
pub(crate) fn for_each<T: Send>(
    parallel: &dyn Parallel,
    items: &mut [T],
    each: impl Fn(&mut T) + Sync,
) {
    if items.len() < 2 || parallel.threads() < 2 {
        return items.iter_mut().for_each(each);
    }
    let each = &each;
    let job = |item| Box::new(move || each(item)) as Job<'_>;
    parallel.run(items.iter_mut().map(job).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Two;

    impl Parallel for Two {
        fn threads(&self) -> usize {
            2
        }

        fn run(&self, jobs: Vec<Job<'_>>) {
            jobs.into_iter().rev().for_each(|job| job());
        }

        fn grain(&self) -> usize {
            10
        }
    }

    #[test]
    fn pieces_cover_the_range_and_small_ranges_stay_whole() {
        assert_eq!(cut(&Serial, 5..1_000_000, 8), vec![5..1_000_000]);
        assert_eq!(cut(&Two, 5..36, 8), vec![5..36]);
        assert_eq!(cut(&Two, 5..37, 8), vec![5..21, 21..37]);
        assert_eq!(cut(&Two, 5..40, 8), vec![5..21, 21..37, 37..40]);
        assert_eq!(cut(&Two, 7..7, 1), vec![7..7]);
    }

    #[test]
    fn every_item_is_seen_once_whatever_the_order() {
        let mut items: Vec<u32> = (0..7).collect();
        for_each(&Two, &mut items, |item| *item *= 2);
        assert_eq!(items, [0, 2, 4, 6, 8, 10, 12]);
    }
}
