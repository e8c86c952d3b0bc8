//! Who talks to whom, in which round, about which blocks: pure integer functions of the group's size.
//!
//! Positions are those of a [`Group`](crate::world::Group); all arithmetic on them is modulo the group's size.
//! Every schedule here works for any size from 1 on.

mod bruck;
mod direct;
mod doubling;
mod halving;
mod ring;
mod windows;

pub use bruck::{Gather, all_gather};
pub use direct::rotation;
pub use doubling::{Fold, core_position, fold};
pub use halving::{Scatter, reduce_scatter};
pub use ring::{RingHop, ring};
pub use windows::Windows;

/// The least `l` with `2^l >= x`; 0 for `x <= 1`. The number of rounds of a logarithmic schedule.
pub fn ceil_log2(x: usize) -> u32 {
    if x <= 1 {
        0
    } else {
        usize::BITS - (x - 1).leading_zeros()
    }
}
