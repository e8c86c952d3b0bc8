//! What messages take beyond the time of their bytes, by their length.

/// Measured times of messages beyond that of their bytes. Between two lengths the time is on the line between them; shorter and
/// longer messages have that of the first and of the last.
///
/// Libraries of messages copy short ones at once and ask before they send long ones; a receiver answers when it has a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead(Vec<(u64, u64)>);

impl Overhead {
    /// From lengths in bytes and their times in nanoseconds, in any order.
    pub fn new(mut measured: Vec<(u64, u64)>) -> Self {
        measured.sort_unstable();
        measured.dedup_by_key(|(bytes, _)| *bytes);
        Self(measured)
    }

    /// Nanoseconds for a message of so many bytes; 0 when nothing was measured.
    pub(crate) fn of(&self, bytes: u64) -> u64 {
        let next = self.0.partition_point(|(length, _)| *length < bytes);
        match (
            next.checked_sub(1).and_then(|last| self.0.get(last)),
            self.0.get(next),
        ) {
            (None, None) => 0,
            (Some((_, time)), None) | (None, Some((_, time))) => *time,
            (Some(&(short, before)), Some(&(long, after))) => {
                let part = i128::from(bytes - short) * (i128::from(after) - i128::from(before));
                (i128::from(before) + part / i128::from(long - short)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_lengths_times_are_on_a_line_and_beyond_them_constant() {
        let overhead = Overhead::new(vec![(200, 50), (100, 10), (300, 20)]);
        let times = [0, 100, 150, 200, 250, 300, 1000].map(|bytes| overhead.of(bytes));
        assert_eq!(times, [10, 10, 30, 50, 35, 20, 20]);
        assert_eq!(Overhead::default().of(7), 0);
    }
}
