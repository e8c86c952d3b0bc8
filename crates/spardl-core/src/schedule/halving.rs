//! The reduce-scatter schedule of SparDL, for any number of workers.
//!
//! Block `i` belongs to position `i`. In the round with gap `g` a worker hands the blocks that lie `g` or more ahead
//! of it to the worker `g` ahead, and afterwards holds the `g` blocks from its own on. The first round carries what
//! exceeds the largest power of two, so no fold is needed when the size is not a power of two.
//!
//! Six workers, gaps 4, 2, 1 (worker 0): `{4,5} -> 4, {0,1} <- 2`; `{2,3} -> 2, {0,1} <- 4`; `{1} -> 1, {0} <- 5`.
//!
//! Rounds: ceil(log2 m). Blocks sent per worker: m - 1.

use super::ceil_log2;

/// One round of the reduce-scatter: `count` blocks to the worker `gap` ahead, as many from the worker `gap` behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// Distance to the peers.
    pub gap: usize,
    /// Blocks sent, and blocks received.
    pub count: usize,
}

impl Scatter {
    /// The blocks that the worker at `position` sends, ascending from the receiver's own block.
    pub fn sent(self, position: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| (position + self.gap + i) % size)
    }

    /// The blocks that the worker at `position` receives, in the order the sender lists them.
    pub fn received(self, position: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| (position + i) % size)
    }
}

/// The rounds of the reduce-scatter among `size` workers.
pub fn reduce_scatter(size: usize) -> impl Iterator<Item = Scatter> {
    let rounds = ceil_log2(size);
    (0..rounds).map(move |t| {
        let gap = 1 << (rounds - 1 - t);
        Scatter {
            gap,
            count: if t == 0 { size - gap } else { gap },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_reaches_its_owner_with_every_contributor_once() {
        for size in 1..=130 {
            let mut held: Vec<Vec<Option<Vec<usize>>>> = (0..size)
                .map(|w| (0..size).map(|_| Some(vec![w])).collect())
                .collect();
            let mut sent = vec![0; size];
            for round in reduce_scatter(size) {
                let messages: Vec<Vec<Vec<usize>>> = (0..size)
                    .map(|w| {
                        sent[w] += round.count;
                        round
                            .sent(w, size)
                            .map(|b| held[w][b].take().expect("held"))
                            .collect()
                    })
                    .collect();
                for (w, held) in held.iter_mut().enumerate() {
                    let from = (w + size - round.gap) % size;
                    assert!(round.sent(from, size).eq(round.received(w, size)));
                    for (block, contributors) in round.received(w, size).zip(&messages[from]) {
                        held[block]
                            .as_mut()
                            .expect("still held")
                            .extend(contributors);
                    }
                    let holds: Vec<usize> = (0..size).filter(|&b| held[b].is_some()).collect();
                    let mut expected: Vec<usize> = (0..round.gap).map(|i| (w + i) % size).collect();
                    expected.sort_unstable();
                    assert_eq!(holds, expected, "after the round with gap {}", round.gap);
                }
            }
            for w in 0..size {
                let mut own = held[w][w].clone().expect("own block");
                own.sort_unstable();
                assert!(own.into_iter().eq(0..size));
                assert_eq!(sent[w], size - 1);
            }
            assert_eq!(reduce_scatter(size).count() as u32, ceil_log2(size));
        }
    }
}
