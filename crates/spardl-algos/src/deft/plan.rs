//! What DEFT decides before it selects: parts, quotas, and which part goes to which bin.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use spardl_core::codec::Reader;
use spardl_core::{DecodeError, Layout, Partition};

/// Bytes of the number of a bin on the wire.
pub(super) const BIN_BYTES: usize = 4;
/// More tensors than this are grouped, so that what is broadcast has a bound that does not depend on the layout.
const MOST_LAYERS: usize = 4096;

/// The layers of a bucket; those longer than an even share of the bucket are cut into as many pieces as workers.
pub(super) fn parts(layout: &Layout, workers: usize) -> Partition {
    let tensors: Vec<u32> = layout
        .parts()
        .iter()
        .map(|tensor| tensor.len() as u32)
        .filter(|&len| len > 0)
        .collect();
    let group = tensors.len().div_ceil(MOST_LAYERS).max(1);
    let (mut cuts, mut at) = (Vec::new(), 0);
    for layer in tensors.chunks(group).map(|group| group.iter().sum::<u32>()) {
        let long = u64::from(layer) * workers as u64 > u64::from(layout.len());
        let pieces = Partition::even(layer, if long { workers } else { 1 });
        for piece in (0..pieces.blocks()).filter(|&piece| pieces.block_len(piece) > 0) {
            cuts.push(at + pieces.start(piece) + pieces.block_len(piece));
        }
        at += layer;
    }
    if cuts.is_empty() {
        cuts.push(0);
    }
    Partition::from_cuts(layout.len(), cuts).expect("layers lie one after the other")
}

/// How many entries to take of each part: by falling norm, the part's share of the remaining norm of the remaining `k`, at least
/// 1 and at most all of it.
pub(super) fn quotas(parts: &Partition, norms: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..norms.len()).collect();
    order.sort_by(|&a, &b| norms[b].total_cmp(&norms[a]).then(a.cmp(&b)));
    // What is left from each part on, summed from the smallest up: the last share is then exactly 1.
    let mut left: Vec<f64> = order.iter().map(|&part| norms[part]).collect();
    for i in (1..left.len()).rev() {
        left[i - 1] += left[i];
    }
    let (mut quotas, mut rest) = (vec![0; norms.len()], k);
    for (&part, &left) in order.iter().zip(&left) {
        let share = if left > 0.0 { norms[part] / left } else { 0.0 };
        let quota = (rest as f64 * share) as usize;
        quotas[part] = quota.max(1).min(parts.block_len(part) as usize);
        rest = rest.saturating_sub(quotas[part]);
    }
    quotas
}

/// The bin of each part; `bins` stands for the common parts, which everybody takes whole, `most_common` elements in all.
pub(super) fn allocate(
    parts: &Partition,
    quotas: &[usize],
    bins: u32,
    most_common: usize,
) -> Vec<u32> {
    let mut allocation = vec![bins; quotas.len()];
    let (mut common, mut order) = (0, Vec::new());
    for (part, &quota) in quotas.iter().enumerate() {
        let len = parts.block_len(part) as usize;
        if quota == len && common + len <= most_common {
            common += len;
        } else {
            order.push((Reverse(effort(len, quota)), part));
        }
    }
    order.sort_unstable();
    let mut loads: BinaryHeap<_> = (0..bins).map(|bin| Reverse((0u64, bin))).collect();
    for (Reverse(effort), part) in order {
        let Some(mut least) = loads.peek_mut() else {
            break;
        };
        let Reverse((load, bin)) = *least;
        allocation[part] = bin;
        *least = Reverse((load + effort, bin));
    }
    allocation
}

/// What it takes to find the top `quota` of `len` elements, in 256ths.
fn effort(len: usize, quota: usize) -> u64 {
    let each = if quota > 1 {
        (quota as f64).log2()
    } else {
        1.0
    };
    (len as f64 * each * 256.0) as u64
}

/// Appends an allocation.
pub(super) fn encode(allocation: &[u32], out: &mut Vec<u8>) {
    out.extend(allocation.iter().flat_map(|bin| bin.to_le_bytes()));
}

/// Reads an allocation of all parts to `bins` bins and at most `most_common` common elements.
pub(super) fn decode(
    reader: &mut Reader<'_>,
    parts: &Partition,
    bins: u32,
    most_common: usize,
) -> Result<Vec<u32>, DecodeError> {
    let mut common = 0;
    let mut read = |part| {
        let bin = reader.u32()?;
        if bin > bins {
            let (max, got) = (bins as usize, bin.into());
            return Err(DecodeError::TooMany { max, got });
        }
        common += usize::from(bin == bins) * parts.block_len(part) as usize;
        Ok(bin)
    };
    let allocation = (0..parts.blocks())
        .map(&mut read)
        .collect::<Result<_, _>>()?;
    if common > most_common {
        return Err(DecodeError::TooMany {
            max: most_common,
            got: common as u64,
        });
    }
    Ok(allocation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(lens: &[usize]) -> Layout {
        Layout::new(lens.iter().map(|&len| ("tensor", vec![len]))).unwrap()
    }

    #[test]
    fn long_layers_are_cut_and_the_parts_tile_the_bucket() {
        let lens = |parts: &Partition| -> Vec<u32> {
            (0..parts.blocks())
                .map(|part| parts.block_len(part))
                .collect()
        };
        let layout = layout(&[6, 1, 0, 2, 3]);
        assert_eq!(lens(&parts(&layout, 1)), [6, 1, 2, 3]);
        assert_eq!(lens(&parts(&layout, 3)), [2, 2, 2, 1, 2, 3]);
        assert_eq!(lens(&parts(&layout, 5)), [1, 1, 1, 1, 2, 1, 2, 1, 1, 1]);
        assert_eq!(parts(&Layout::flat(0), 4).len(), 0);
        let many = Layout::new((0..10_000).map(|_| ("tensor", vec![3]))).unwrap();
        let parts = parts(&many, 7);
        assert!(parts.len() == 30_000 && parts.blocks() <= MOST_LAYERS + 7 * 7);
    }

    #[test]
    fn quotas_lie_between_one_and_the_length_and_follow_the_norms() {
        let parts = parts(&layout(&[100, 1, 50, 200, 10]), 1);
        for norms in [
            [1.0, 2.0, 3.0, 4.0, 5.0],
            [0.0; 5],
            [0.0, 9.0, 0.0, 1e-300, 0.0],
        ] {
            for k in [1, 3, 20, 300, 361] {
                let quotas = quotas(&parts, &norms, k);
                for (part, &quota) in quotas.iter().enumerate() {
                    assert!((1..=parts.block_len(part) as usize).contains(&quota));
                }
                let forced = quotas.iter().filter(|&&quota| quota == 1).count();
                assert!(quotas.iter().sum::<usize>() <= k + forced);
            }
        }
        assert_eq!(
            quotas(&parts, &[1.0, 0.0, 1.0, 2.0, 0.0], 40),
            [10, 1, 10, 20, 1]
        );
    }

    #[test]
    fn every_part_is_in_one_bin_or_common() {
        let lens: Vec<usize> = (0..60).map(|i| 1 + i * i % 97).collect();
        for workers in [1, 2, 5, 8, 64] {
            let parts = parts(&layout(&lens), workers);
            let norms: Vec<f64> = (0..parts.blocks()).map(|i| (i % 7) as f64).collect();
            let (k, bins) = (100, workers as u32);
            let quotas = quotas(&parts, &norms, k);
            let allocation = allocate(&parts, &quotas, bins, 2 * k);
            let mut bytes = Vec::new();
            encode(&allocation, &mut bytes);
            assert_eq!(bytes.len(), BIN_BYTES * parts.blocks());
            assert!(parts.blocks() <= MOST_LAYERS + workers * workers);
            let read = decode(&mut Reader::new(&bytes), &parts, bins, 2 * k);
            assert_eq!(read.as_ref(), Ok(&allocation));
            assert!(decode(&mut Reader::new(&bytes[1..]), &parts, bins, 2 * k).is_err());

            let mut loads = vec![0; workers + 1];
            for (part, &bin) in allocation.iter().enumerate() {
                let len = parts.block_len(part) as usize;
                let common = bin == bins;
                assert!(!common || quotas[part] == len);
                loads[bin as usize] += if common { 0 } else { effort(len, quotas[part]) };
            }
            let (most, total) = (*loads.iter().max().unwrap(), loads.iter().sum::<u64>());
            let largest = (0..parts.blocks())
                .map(|part| effort(parts.block_len(part) as usize, quotas[part]))
                .max();
            assert!(most <= total / workers as u64 + largest.unwrap());
        }
    }
}
