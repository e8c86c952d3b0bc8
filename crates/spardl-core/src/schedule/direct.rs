//! Direct exchange with destination rotation: in turn `i` worker `w` sends to `w + i` and receives from `w - i`.
//!
//! The rotation keeps all workers from hitting the same one first.

/// The `(to, from)` positions of each turn for the worker at `position` among `size`: `size - 1` turns.
pub fn rotation(position: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..size).map(move |turn| ((position + turn) % size, (position + size - turn) % size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_meets_once_and_each_send_has_its_receive() {
        for size in 1..=64 {
            let turns: Vec<Vec<_>> = (0..size).map(|w| rotation(w, size).collect()).collect();
            for w in 0..size {
                assert_eq!(turns[w].len(), size - 1);
                for (turn, &(to, _)) in turns[w].iter().enumerate() {
                    assert_eq!(turns[to][turn].1, w);
                }
                let mut to: Vec<usize> = turns[w].iter().map(|t| t.0).collect();
                to.sort_unstable();
                assert!(to.into_iter().eq((0..size).filter(|&v| v != w)));
            }
        }
    }
}
