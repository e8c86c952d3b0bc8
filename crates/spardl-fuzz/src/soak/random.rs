//! Inputs: random bytes, and valid ones with a few changes.

/// The longest random input.
const LONGEST: usize = 120;

/// What numbers and words in a text are replaced by.
const ODD: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1e308",
    b"-1e-320",
    b"nan",
    b"inf",
    b"4294967296",
    b"18446744073709551615",
    b"9223372036854775808",
    b"true",
    b"\"",
    b"[[[[",
    b",",
    b"=",
    b"\0",
    b"\0--",
    b"\n",
    b"\xff",
    b"\xc3\xa9",
];

/// A small generator (xorshift).
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        // Never zero, and not close to it.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15) | 1)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Makes the next input in place: what is random, or one that was kept, with up to four changes.
    pub(super) fn fill(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        input.clear();
        if kept.is_empty() || self.below(8) == 0 {
            let len = self.below(LONGEST);
            input.extend((0..len).map(|_| self.next() as u8));
        } else {
            input.extend_from_slice(&kept[self.below(kept.len())]);
        }
        for _ in 0..self.below(5) {
            self.change(input, kept);
        }
    }

    fn change(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let (at, byte) = (self.below(input.len()), self.next() as u8);
        let mut each = |len: usize, change: &dyn Fn(&mut u8)| {
            input.iter_mut().skip(at).take(len).for_each(change);
        };
        match self.below(8) {
            // Small numbers are counts and tags.
            0 => each(1, &|b| *b = byte % 20),
            1 => each(4, &|b| *b = 0),
            2 => each(1, &|b| *b ^= 1 << (byte % 8)),
            3 => input.truncate(at),
            4 => input.insert(at, byte),
            5 => {
                let end = (at + self.below(16)).min(input.len());
                input.extend_from_within(at..end);
            }
            6 => {
                let end = (at + self.below(8)).min(input.len());
                let odd = ODD[self.below(ODD.len())];
                input.splice(at..end, odd.iter().copied());
            }
            _ => {
                let Some(other) = kept.get(self.below(kept.len())) else {
                    return;
                };
                let from = self.below(other.len());
                let part = &other[from..(from + self.below(40)).min(other.len())];
                input.splice(at..at, part.iter().copied());
            }
        }
    }
}
