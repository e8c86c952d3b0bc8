//! The ring: `m - 1` hops of reduce-scatter, then `m - 1` hops of all-gather, one block to the next worker per hop.
//!
//! Worker `w` sends block `w - s` in reduce-scatter hop `s` and so ends owning block `w + 1`.

/// One hop: `sent` goes to the next worker, `received` comes from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHop {
    /// The block handed on.
    pub sent: usize,
    /// The block that arrives.
    pub received: usize,
    /// Is the arriving block added (reduce-scatter) or stored (all-gather)?
    pub reduce: bool,
}

/// All hops of the worker at `position` in a ring of `size`.
pub fn ring(position: usize, size: usize) -> impl Iterator<Item = RingHop> {
    let last = size - 1;
    let reduce = (0..last).map(move |s| RingHop {
        sent: (position + size - s) % size,
        received: (position + 2 * size - s - 1) % size,
        reduce: true,
    });
    let gather = (0..last).map(move |s| RingHop {
        sent: (position + size - s + 1) % size,
        received: (position + size - s) % size,
        reduce: false,
    });
    reduce.chain(gather)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_sums_every_block_once_and_hands_it_to_everybody() {
        for size in 1..=64 {
            let mut count = vec![vec![1u32; size]; size];
            let mut rings: Vec<_> = (0..size).map(|w| ring(w, size)).collect();
            for _ in 0..2 * (size - 1) {
                let hops: Vec<RingHop> = rings.iter_mut().flat_map(Iterator::next).collect();
                let before = count.clone();
                for (w, count) in count.iter_mut().enumerate() {
                    let from = (w + size - 1) % size;
                    let hop = hops[w];
                    assert_eq!(hop.received, hops[from].sent);
                    let arriving = before[from][hop.received];
                    let own = &mut count[hop.received];
                    *own = if hop.reduce {
                        *own + arriving
                    } else {
                        arriving
                    };
                }
            }
            assert!(rings.iter_mut().all(|ring| ring.next().is_none()));
            assert!(count.iter().flatten().all(|&c| c as usize == size));
        }
    }
}
