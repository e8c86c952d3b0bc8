//! The fold that brings any number of workers down to a power of two, for recursive halving and doubling.
//!
//! With `p2` the largest power of two not above `m` and `rem = m - p2`, positions `2i` for `i < rem` hand everything to
//! `2i + 1` and wait for the result; the others form the core. Seven workers: 0, 2, 4 fold into 1, 3, 5; the core is
//! 1, 3, 5, 6.

/// The part of a worker in the folded group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Hands its data to the worker at this position and gets the result back from it.
    Waits {
        /// The core worker that acts for this one.
        proxy: usize,
    },
    /// Takes part in the core under the number `core`, and acts for `ward` if there is one.
    Acts {
        /// The number in the core, `0..p2`.
        core: usize,
        /// The position of the worker that waits for this one.
        ward: Option<usize>,
    },
}

/// The part of the worker at `position` in a group of `size`, and the size of the core (a power of two).
pub fn fold(position: usize, size: usize) -> (Fold, usize) {
    let core_size = 1 << (usize::BITS - 1 - size.leading_zeros());
    let rem = size - core_size;
    let part = if position >= 2 * rem {
        Fold::Acts {
            core: position - rem,
            ward: None,
        }
    } else if position.is_multiple_of(2) {
        Fold::Waits {
            proxy: position + 1,
        }
    } else {
        Fold::Acts {
            core: position / 2,
            ward: Some(position - 1),
        }
    };
    (part, core_size)
}

/// The position of core worker `core` in a group of `size`.
pub fn core_position(core: usize, size: usize, core_size: usize) -> usize {
    let rem = size - core_size;
    if core < rem { 2 * core + 1 } else { core + rem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_a_power_of_two_and_every_other_worker_has_one_proxy() {
        for size in 1..=130 {
            let mut cores = Vec::new();
            for position in 0..size {
                match fold(position, size) {
                    (Fold::Acts { core, ward }, core_size) => {
                        assert!(core_size.is_power_of_two() && core_size <= size);
                        assert_eq!(core_position(core, size, core_size), position);
                        cores.push(core);
                        if let Some(ward) = ward {
                            assert_eq!(fold(ward, size).0, Fold::Waits { proxy: position });
                        }
                    }
                    (Fold::Waits { proxy }, _) => {
                        let (part, _) = fold(proxy, size);
                        assert!(matches!(part, Fold::Acts { ward: Some(w), .. } if w == position));
                    }
                }
            }
            cores.sort_unstable();
            assert!(cores.into_iter().eq(0..fold(0, size).1));
        }
    }
}
