//! Sums over consecutive blocks of a circle, whatever their number: schedules send such runs, and costs ask for all workers.

/// The numbers of all blocks of a circle, ready to be summed.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The sum of the first `i` numbers, twice around.
    sums: Vec<u64>,
}

impl Windows {
    /// These numbers, one per block.
    pub fn new(numbers: impl Iterator<Item = u64> + Clone) -> Self {
        let twice = numbers.clone().chain(numbers);
        let sums = twice.scan(0u64, |sum, number| {
            *sum += number;
            Some(*sum)
        });
        Self {
            sums: std::iter::once(0).chain(sums).collect(),
        }
    }

    /// The sum of `count` blocks from block `first` on, at most once around.
    pub fn sum(&self, first: usize, count: usize) -> u64 {
        let size = (self.sums.len() / 2).max(1);
        let first = first % size;
        self.sums[first + count] - self.sums[first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_may_pass_the_end_of_the_circle() {
        let windows = Windows::new([1, 20, 300].into_iter());
        assert_eq!(windows.sum(0, 3), 321);
        assert_eq!(windows.sum(2, 2), 301);
        assert_eq!(windows.sum(5, 3), 321);
        assert_eq!(windows.sum(1, 0), 0);
        assert_eq!(Windows::new(std::iter::empty()).sum(0, 0), 0);
    }
}
