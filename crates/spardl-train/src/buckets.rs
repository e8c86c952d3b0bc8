//! Which piece of the gradient is synchronised on its own.

use spardl::Layout;

/// Elements of a bucket unless something else is asked for: more than any published model has, so that the whole gradient is
/// one bucket as in the papers, and few enough for indices and messages to be small.
pub const DEFAULT_ELEMENTS: usize = 1 << 30;

/// Cuts a gradient into buckets of whole tensors, one after the other: a bucket is closed before the tensor that would make it
/// longer than `elements`. A tensor longer than that has a bucket of its own. Tensors of fewer than `apart_below_dims` dimensions
/// are not put together with others.
pub fn cut(layout: &Layout, elements: usize, apart_below_dims: usize) -> Vec<Layout> {
    let (mut buckets, mut len, mut was_apart) = (Vec::new(), 0, false);
    let mut open: Vec<(String, Vec<usize>)> = Vec::new();
    for part in layout.parts() {
        let is_apart = part.shape.len() < apart_below_dims;
        if !open.is_empty() && (len + part.len() > elements || is_apart != was_apart) {
            buckets.push(bucket(std::mem::take(&mut open)));
            len = 0;
        }
        was_apart = is_apart;
        open.push((part.name.clone(), part.shape.clone()));
        len += part.len();
    }
    if !open.is_empty() {
        buckets.push(bucket(open));
    }
    buckets
}

/// Does this bucket of [`cut`] hold the tensors of fewer than `dims` dimensions?
pub fn is_below(bucket: &Layout, dims: usize) -> bool {
    let first = bucket.parts().first();
    first.is_some_and(|part| part.shape.len() < dims)
}

fn bucket(tensors: Vec<(String, Vec<usize>)>) -> Layout {
    Layout::new(tensors).expect("no longer than the layout it is a part of")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(sizes: &[usize], elements: usize) -> Vec<usize> {
        let tensors = sizes.iter().map(|s| (s.to_string(), vec![*s]));
        let buckets = cut(&Layout::new(tensors).expect("short tensors"), elements, 0);
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

    #[test]
    fn small_tensors_are_kept_apart_when_asked_for() {
        let tensors = [
            ("a", vec![2, 3]),
            ("b", vec![2, 2]),
            ("c", vec![5]),
            ("d", vec![]),
        ];
        let tensors = tensors.map(|(name, shape)| (name.to_owned(), shape));
        let layout = Layout::new(tensors).expect("short tensors");
        let cut = |dims| {
            let buckets = cut(&layout, 100, dims);
            let seen = buckets.iter().map(|b| (b.len(), is_below(b, dims)));
            seen.collect::<Vec<_>>()
        };
        assert_eq!(cut(0), [(16, false)]);
        assert_eq!(cut(2), [(10, false), (6, true)]);
    }
}
