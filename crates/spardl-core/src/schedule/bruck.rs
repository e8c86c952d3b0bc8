//! Bruck's all-gather, for any number of workers.
//!
//! In the round with gap `g` a worker sends the `min(g, m - g)` items from its own on to the worker `g` behind it, and
//! gets the next ones from the worker `g` ahead. Six workers, worker 0: `{0} -> 5`, `{0,1} -> 4`, `{0,1} -> 2`.
//!
//! Rounds: ceil(log2 m). Items sent per worker: m - 1. The own item goes out in every round, so with unequal items a
//! worker's volume is bounded by (m - 1) times the largest.

use super::ceil_log2;

/// One round of the all-gather: `count` items to the worker `gap` behind, as many from the worker `gap` ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Distance to the peers.
    pub gap: usize,
    /// Items sent, and items received.
    pub count: usize,
}

impl Gather {
    /// The items that the worker at `position` sends, in order.
    pub fn sent(self, position: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| (position + i) % size)
    }

    /// The items that the worker at `position` receives, in the order the sender lists them.
    pub fn received(self, position: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| (position + self.gap + i) % size)
    }
}

/// The rounds of the all-gather among `size` workers.
pub fn all_gather(size: usize) -> impl Iterator<Item = Gather> {
    (0..ceil_log2(size)).map(move |s| {
        let gap = 1 << s;
        Gather {
            gap,
            count: gap.min(size - gap),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_ends_with_everything() {
        for size in 1..=130 {
            let mut have: Vec<Vec<bool>> = (0..size)
                .map(|w| (0..size).map(|i| i == w).collect())
                .collect();
            let mut sent = 0;
            for round in all_gather(size) {
                let before = have.clone();
                sent += round.count;
                for (w, have) in have.iter_mut().enumerate() {
                    let from = (w + round.gap) % size;
                    assert!(round.sent(from, size).eq(round.received(w, size)));
                    for item in round.received(w, size) {
                        assert!(before[from][item], "the sender has what it sends");
                        assert!(!have[item], "nothing arrives twice");
                        have[item] = true;
                    }
                }
            }
            assert!(have.iter().flatten().all(|&h| h));
            assert_eq!(sent, size - 1);
        }
    }
}
