//! Which piece of the gradient is synchronised on its own.

use spardl::Layout;

/// Elements of a bucket unless something else is asked for: more than any published model has, so that the whole gradient is
/// one bucket as in the papers, and few enough for indices and messages to be small.
pub const DEFAULT_ELEMENTS: usize = 1 << 30;

/// Cuts a gradient into buckets of whole tensors, one after the other: a bucket is closed before the tensor that would make it
/// longer than `elements`. A tensor longer than that has a bucket of its own.
pub fn cut(layout: &Layout, elements: usize) -> Vec<Layout> {
    let (mut buckets, mut len) = (Vec::new(), 0);
    let mut open: Vec<(String, Vec<usize>)> = Vec::new();
    for part in layout.parts() {
        if !open.is_empty() && len + part.len() > elements {
            buckets.push(bucket(std::mem::take(&mut open)));
            len = 0;
        }
        open.push((part.name.clone(), part.shape.clone()));
        len += part.len();
    }
    if !open.is_empty() {
        buckets.push(bucket(open));
    }
    buckets
}

fn bucket(tensors: Vec<(String, Vec<usize>)>) -> Layout {
    Layout::new(tensors).expect("no longer than the layout it is a part of")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[usize], elements: usize) -> Vec<usize> {
        let tensors = sizes.iter().map(|s| (s.to_string(), vec![*s]));
        let buckets = cut(&Layout::new(tensors).expect("short tensors"), elements);
        let names = buckets.iter().flat_map(|bucket| bucket.parts());
        let names: Vec<String> = names.map(|part| part.name.clone()).collect();
        let all: Vec<String> = sizes.iter().map(usize::to_string).collect();
        assert_eq!(names, all, "no tensor is lost");
        buckets.iter().map(|bucket| bucket.len() as usize).collect()
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
