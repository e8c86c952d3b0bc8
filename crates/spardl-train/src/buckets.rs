//! Which piece of the gradient is synchronised on its own.

use std::ops::Range;

use spardl_core::Layout;

/// Elements of a bucket unless something else is asked for: more than any published model has, so that the whole gradient is
/// one bucket as in the papers, and few enough for indices and messages to be small.
pub const DEFAULT_ELEMENTS: usize = 1 << 30;

/// A piece of the gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Where it is in the gradient.
    pub range: Range<usize>,
    /// The tensors it holds.
    pub layout: Layout,
}

/// Cuts a gradient into buckets of whole tensors: a bucket is closed before the tensor that would make it longer than
/// `elements`. A tensor longer than that has a bucket of its own.
pub fn cut(layout: &Layout, elements: usize) -> Vec<Bucket> {
    let (mut buckets, mut start, mut end) = (Vec::new(), 0, 0);
    let mut open: Vec<(String, Vec<usize>)> = Vec::new();
    for part in layout.parts() {
        if !open.is_empty() && end - start + part.len() > elements {
            buckets.push(bucket(start..end, std::mem::take(&mut open)));
            start = end;
        }
        open.push((part.name.clone(), part.shape.clone()));
        end += part.len();
    }
    if !open.is_empty() {
        buckets.push(bucket(start..end, open));
    }
    buckets
}

fn bucket(range: Range<usize>, tensors: Vec<(String, Vec<usize>)>) -> Bucket {
    let layout = Layout::new(tensors).expect("no longer than the layout it is a part of");
    Bucket { range, layout }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[usize], elements: usize) -> Vec<usize> {
        let tensors = sizes.iter().map(|s| (s.to_string(), vec![*s]));
        let buckets = cut(&Layout::new(tensors).expect("short tensors"), elements);
        for pair in buckets.windows(2) {
            assert_eq!(pair[0].range.end, pair[1].range.start, "no gap, no overlap");
        }
        for bucket in &buckets {
            assert_eq!(bucket.range.len(), bucket.layout.len() as usize);
        }
        buckets.iter().map(|bucket| bucket.range.len()).collect()
    }

    #[test]
    fn buckets_hold_whole_tensors_up_to_the_limit() {
        assert_eq!(lengths(&[3, 4, 5, 6], 7), [7, 5, 6]);
        assert_eq!(lengths(&[3, 4, 5, 6], 100), [18]);
        assert_eq!(lengths(&[3, 40, 5], 10), [3, 40, 5]);
        assert_eq!(lengths(&[3, 4], 1), [3, 4]);
        assert_eq!(lengths(&[], 10), [0; 0]);
    }
}
