//! Cores that the workers of a machine share.
//!
//! A worker has one piece of work at a time and uses at most one core for it; a message has one on the machine of its sender
//! and one on that of its receiver. When a machine has more pieces than cores, all
//! get the same part, as a scheduler of processes gives them. All numbers are integers: what is left of a piece is in
//! nanoseconds times 1e9.

use spardl_core::Rank;

/// A whole core, as a rate.
const WHOLE: u64 = 1_000_000_000;

/// Whose work a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A worker's own.
    Worker(Rank),
    /// The system's, for the message of this number.
    Message(u64),
}

/// The cores of all machines.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// Of a machine.
    count: u32,
    /// Workers of a machine, which are consecutive.
    workers: u32,
    machines: Vec<Machine>,
}

#[derive(Clone, Debug, Default)]
struct Machine {
    pieces: Vec<Piece>,
    /// When what is left of the pieces was right.
    since: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    owner: Owner,
    left: u128,
}

impl Cores {
    /// `count` cores for every `workers` workers of `size`.
    pub(crate) fn new(count: u32, workers: u32, size: u32) -> Self {
        let (count, workers) = (count.max(1), workers.max(1));
        Self {
            count,
            workers,
            machines: vec![Machine::default(); size.div_ceil(workers) as usize],
        }
    }

    /// On the machine of a worker something begins that takes so many nanoseconds on a core of its own.
    pub(super) fn start(&mut self, now: u64, worker: Rank, owner: Owner, nanos: u64) {
        let machine = &mut self.machines[(worker.get() / self.workers) as usize];
        machine.advance(now, self.count);
        machine.pieces.push(Piece {
            owner,
            left: u128::from(nanos) * u128::from(WHOLE),
        });
    }

    /// When the next piece is done, if none begins before.
    pub(super) fn next_end(&self) -> Option<u64> {
        let ends = self.machines.iter();
        ends.filter_map(|machine| machine.next_end(self.count))
            .min()
    }

    /// Whose piece is done at `now`, as [`Cores::next_end`] said.
    pub(super) fn take_ended(&mut self, now: u64) -> Option<Owner> {
        for machine in &mut self.machines {
            if machine.next_end(self.count) != Some(now) {
                continue;
            }
            machine.advance(now, self.count);
            let ended = machine.pieces.iter().position(|piece| piece.left == 0)?;
            return Some(machine.pieces.remove(ended).owner);
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.machines.fill(Machine::default());
    }
}

impl Machine {
    /// What every piece gets: so many parts of a core, cut into so many.
    fn share(&self, cores: u32) -> (u128, u128) {
        let pieces = self.pieces.len().max(1) as u128;
        (u128::from(cores).min(pieces) * u128::from(WHOLE), pieces)
    }

    fn advance(&mut self, now: u64, cores: u32) {
        let (parts, of) = self.share(cores);
        let done = parts * u128::from(now - self.since) / of;
        for piece in &mut self.pieces {
            piece.left = piece.left.saturating_sub(done);
        }
        self.since = now;
    }

    fn next_end(&self, cores: u32) -> Option<u64> {
        let least = self.pieces.iter().map(|piece| piece.left).min()?;
        let (parts, of) = self.share(cores);
        let takes = (least * of).div_ceil(parts);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        Some(self.since.saturating_add(takes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of these pieces (start, worker, nanoseconds) ends.
    fn ends(mut cores: Cores, pieces: &[(u64, u32, u64)]) -> Vec<(u64, u32)> {
        let (mut waiting, mut ends) = (pieces.iter().peekable(), Vec::new());
        loop {
            let end = cores.next_end();
            match waiting.next_if(|(start, ..)| end.is_none_or(|end| *start < end)) {
                Some(&(start, worker, nanos)) => {
                    let worker = Rank::new(worker);
                    cores.start(start, worker, Owner::Worker(worker), nanos);
                }
                None => {
                    let Some(end) = end else { return ends };
                    match cores.take_ended(end).unwrap() {
                        Owner::Worker(worker) => ends.push((end, worker.get())),
                        Owner::Message(number) => unreachable!("no message {number}"),
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_share_cores_evenly_and_none_has_more_than_one() {
        let two = || Cores::new(2, 4, 4);
        assert_eq!(ends(two(), &[(0, 0, 100)]), [(100, 0)]);
        assert_eq!(ends(two(), &[(0, 0, 100), (0, 1, 60)]), [(60, 1), (100, 0)]);
        let all = [(0, 0, 100), (0, 1, 100), (0, 2, 100), (0, 3, 100)];
        assert_eq!(ends(two(), &all), [(200, 0), (200, 1), (200, 2), (200, 3)]);
        // Two thirds of a core for 60 ns, then a core each.
        let three = [(0, 0, 100), (0, 1, 100), (0, 2, 40)];
        assert_eq!(ends(two(), &three), [(60, 2), (120, 0), (120, 1)]);
    }

    #[test]
    fn machines_have_their_own_cores() {
        let cores = Cores::new(1, 2, 4);
        let pieces = [(0, 0, 100), (0, 1, 100), (0, 2, 50)];
        assert_eq!(ends(cores, &pieces), [(50, 2), (200, 0), (200, 1)]);
    }
}
