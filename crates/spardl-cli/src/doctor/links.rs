//! Latency and bandwidth between ranks, one pair at a time; and what all of them send at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spardl_core::Rank;

use crate::job::Job;

/// Up to this many ranks all pairs are measured, above only neighbours on a ring: pairs are many then.
const ALL_PAIRS: u32 = 8;

const SMALL_BYTES: usize = 16;
/// Two lengths: their difference is what the link's rate takes, without what passes at once.
const LARGE_BYTES: [usize; 2] = [500_000, 1_500_000];
/// Lengths of messages that all ranks send at once, and how many of each.
const TOGETHER: [(usize, u32); 8] = [
    (100, 100),
    (4_000, 50),
    (16_000, 50),
    (48_000, 30),
    (100_000, 20),
    (200_000, 15),
    (400_000, 10),
    (1_600_000, 5),
];

/// Lengths of messages that all ranks send at once after a pause, and how many of each.
const AFTER_PAUSE: ([usize; 3], u32) = ([100_000, 200_000, 400_000], 9);
/// Long enough for a link that a token bucket shapes to save up all that the bucket holds.
const PAUSE: Duration = Duration::from_millis(20);

/// A pair of ranks and the time of messages between them, one way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) a: u32,
    pub(super) b: u32,
    /// A message of 16 bytes.
    pub(super) latency_us: f64,
    /// From what a message of 1.5 MB takes longer than one of 0.5 MB.
    pub(super) bandwidth_gbs: f64,
    /// Bytes that pass at once, as over links that a token bucket shapes; 0 when long messages take no less than their bytes.
    pub(super) burst_bytes: u64,
}

/// What a message takes while every rank sends one to the next and gets one, time after time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Together {
    /// Of a message without length, by those of 100 kB and 400 kB.
    pub(super) latency_us: f64,
    /// Of every rank, from what a message of 400 kB takes longer than one of 100 kB.
    pub(super) bandwidth_gbs: f64,
    /// Bytes of every rank that pass at once when nobody has sent for a while.
    pub(super) burst_bytes: u64,
    /// What messages of some lengths take.
    pub(super) times: Vec<TimeOf>,
    /// What they take to another rank than the message before: 1, 2, 4, .. ranks on in turn, as the rounds of the methods send.
    pub(super) in_turn: Vec<TimeOf>,
}

impl Together {
    /// The length whose messages lose most by going to another rank every time, and how many times as long they take.
    pub(super) fn slowest_in_turn(&self) -> Option<(u64, f64)> {
        let both = self.times.iter().zip(&self.in_turn);
        let slower = both.map(|(always, in_turn)| (always.bytes, in_turn.us / always.us.max(1e-3)));
        slower.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What messages of a length take.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct TimeOf {
    pub(super) bytes: u64,
    pub(super) us: f64,
}

/// Measures the pairs one after another; every rank has all results.
pub(super) fn measure(job: &mut Job, only_ring: bool) -> anyhow::Result<Vec<Link>> {
    let rank = job.world().rank().get();
    let mut mine = Vec::new();
    for (a, b) in pairs(job.world().size(), only_ring) {
        job.barrier()?;
        if rank != a && rank != b {
            continue;
        }
        let peer = Rank::new(if rank == a { b } else { a });
        let latency = job.ping_pong(peer, SMALL_BYTES, 200)?;
        let first = job.ping_pong(peer, LARGE_BYTES[0], 4)?;
        let second = job.ping_pong(peer, LARGE_BYTES[1], 3)?;
        if rank == a {
            mine.push(link(a, b, latency, [first, second]));
        }
    }
    let mut links = Vec::new();
    for of_rank in job.gather(&serde_json::to_vec(&mine)?)? {
        links.extend(serde_json::from_slice::<Vec<Link>>(&of_rank)?);
    }
    Ok(links)
}

/// Measures messages that all ranks send at once; the same on every rank.
pub(super) fn together(job: &mut Job) -> anyhow::Result<Option<Together>> {
    let size = job.world().size();
    if size < 2 {
        return Ok(None);
    }
    let doubled = (0..32).map(|i| 1 << i);
    let gaps: Vec<u32> = doubled.take_while(|gap| *gap < size).collect();
    let (mut times, mut in_turn) = (Vec::new(), Vec::new());
    for (bytes, repetitions) in TOGETHER {
        let turns = (repetitions, Duration::ZERO);
        times.push(all_send(job, bytes, &gaps[..1], turns)?);
        in_turn.push(all_send(job, bytes, &gaps, turns)?);
    }
    let (lengths, repetitions) = AFTER_PAUSE;
    let mut rested = Vec::new();
    for bytes in lengths {
        rested.push(all_send(job, bytes, &gaps[..1], (repetitions, PAUSE))?);
    }
    Ok(Some(summary(times, in_turn, &rested)))
}

/// What a message takes, the mean over ranks.
fn all_send(
    job: &mut Job,
    bytes: usize,
    gaps: &[u32],
    turns: (u32, Duration),
) -> anyhow::Result<TimeOf> {
    job.barrier()?;
    let mine = job.shift(bytes, gaps, turns)?;
    let all = job.gather(&(mine.as_nanos() as u64).to_le_bytes())?;
    let all = all
        .iter()
        .filter_map(|said| said.as_slice().try_into().ok());
    let nanos: Vec<u64> = all.map(u64::from_le_bytes).collect();
    Ok(TimeOf {
        bytes: bytes as u64,
        us: nanos.iter().sum::<u64>() as f64 / nanos.len().max(1) as f64 / 1e3,
    })
}

/// Latency and rate by messages about as long as those of sparse methods; what passes at once by what those that come after a
/// pause take less.
fn summary(times: Vec<TimeOf>, in_turn: Vec<TimeOf>, rested: &[TimeOf]) -> Together {
    let us = |bytes| {
        let found = times.iter().find(|time| time.bytes == bytes);
        found.map_or(0.0, |time| time.us)
    };
    let [short, long] = [100_000, 400_000];
    let bytes_per_us = (long - short) as f64 / (us(long) - us(short)).max(1e-3);
    let mut at_once: Vec<f64> = rested
        .iter()
        .map(|time| (us(time.bytes) - time.us) * bytes_per_us)
        .collect();
    at_once.sort_unstable_by(f64::total_cmp);
    let at_once = at_once.get(at_once.len() / 2).copied().unwrap_or(0.0);
    Together {
        latency_us: (us(short) - short as f64 / bytes_per_us).max(0.0),
        bandwidth_gbs: bytes_per_us / 1e3,
        burst_bytes: at_once.max(0.0) as u64,
        times,
        in_turn,
    }
}

fn link(a: u32, b: u32, latency: Duration, large: [Duration; 2]) -> Link {
    let [first, second] = LARGE_BYTES.map(|bytes| bytes as f64);
    let (latency, large) = (latency.as_secs_f64(), large.map(|time| time.as_secs_f64()));
    // On a noisy machine the longer message may be no slower: then all of it counts.
    let longer = large[1] - large[0];
    let bandwidth = match longer > 0.5 * large[0] {
        true => (second - first) / longer,
        false => second / large[1].max(1e-9),
    };
    let at_once = first - bandwidth * (large[0] - latency);
    Link {
        a,
        b,
        latency_us: latency * 1e6,
        bandwidth_gbs: bandwidth / 1e9,
        burst_bytes: at_once.max(0.0) as u64,
    }
}

/// The pairs to measure, lower rank first.
fn pairs(size: u32, only_ring: bool) -> Vec<(u32, u32)> {
    let all = (0..size).flat_map(|a| (a + 1..size).map(move |b| (a, b)));
    let is_near = |&(a, b): &(u32, u32)| b == a + 1 || (a == 0 && b == size - 1);
    if size <= ALL_PAIRS && !only_ring {
        all.collect()
    } else {
        all.filter(is_near).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_at_once_is_told_from_the_rate() {
        let micros = Duration::from_micros;
        // 1 GB/s after 100 kB: 0.5 MB take 0.4 ms, 1.5 MB take 1.4 ms, and 20 us on top.
        let shaped = link(0, 1, micros(20), [micros(420), micros(1420)]);
        assert!((shaped.bandwidth_gbs - 1.0).abs() < 1e-9, "{shaped:?}");
        assert!(shaped.burst_bytes.abs_diff(100_000) < 2, "{shaped:?}");
        let plain = link(0, 1, micros(20), [micros(600), micros(1700)]);
        assert_eq!(plain.burst_bytes, 0);
        let noisy = link(0, 1, micros(20), [micros(600), micros(500)]);
        assert!(noisy.bandwidth_gbs > 0.0);
    }

    #[test]
    fn what_all_send_at_once_has_a_latency_and_a_rate() {
        // 50 us and 2 bytes per nanosecond.
        let times = TOGETHER.map(|(bytes, _)| TimeOf {
            bytes: bytes as u64,
            us: 50.0 + bytes as f64 / 2e3,
        });
        // A pause saves 30 us, which is 60 kB.
        let rested = [100_000, 200_000, 400_000].map(|bytes| TimeOf {
            bytes,
            us: 20.0 + bytes as f64 / 2e3,
        });
        // Going to another rank costs messages of 400 kB most.
        let in_turn = times.map(|time| TimeOf {
            us: time.us * if time.bytes == 400_000 { 2.5 } else { 1.1 },
            ..time
        });
        let together = summary(times.to_vec(), in_turn.to_vec(), &rested);
        let (bytes, slower) = together.slowest_in_turn().unwrap();
        assert_eq!(bytes, 400_000);
        assert!((slower - 2.5).abs() < 1e-9);
        assert!(together.burst_bytes.abs_diff(60_000) < 2, "{together:?}");
        assert!((together.bandwidth_gbs - 2.0).abs() < 1e-9, "{together:?}");
        assert!((together.latency_us - 50.0).abs() < 1e-9, "{together:?}");
    }

    #[test]
    fn few_ranks_are_measured_in_all_pairs_and_many_on_a_ring() {
        assert_eq!(pairs(1, false), []);
        assert_eq!(pairs(3, false), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(pairs(8, false).len(), 28);
        assert_eq!(pairs(8, true).len(), 8);
        let ring = pairs(9, false);
        assert_eq!(ring.len(), 9);
        assert!(ring.contains(&(0, 8)) && ring.contains(&(7, 8)));
    }
}
