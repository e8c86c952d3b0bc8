//! What ranks that share the cores of a machine take from each other.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::machine;
use crate::job::Job;

/// CPU time of a rank that works.
const WORK: Duration = Duration::from_millis(40);
/// A rank that does not see the clock for so long was not running.
const GAP: Duration = Duration::from_micros(100);
/// How often each is measured.
const TURNS: usize = 5;

/// Where a machine has more ranks than cores: what becomes of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Crowd {
    /// The part of a core that a rank takes which waits for a message, beside as many that work as there are cores.
    pub(super) waiting: f64,
    /// How long a rank runs while others want its core too, in microseconds: the middle of all runs.
    pub(super) slice_us: f64,
}

/// What a rank found.
struct Ran {
    /// Wall time over CPU time.
    times: f64,
    /// The middle of its runs, in microseconds.
    run_us: f64,
}

/// Measures the first machine that has more ranks than cores; the same on every rank.
pub(super) fn measure(job: &mut Job, cores: usize) -> anyhow::Result<Option<Crowd>> {
    let rank = job.world().rank().index();
    let machines = job.gather(machine::boot(&job.host()).as_bytes())?;
    let Some(crowded) = crowded(&machines, cores) else {
        return Ok(None);
    };
    let (works, waits) = crowded.split_at(cores);
    let (mut times, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        job.barrier()?;
        // The others wait for what those that work have to say.
        let mine = works.contains(&rank).then(|| work().times);
        let said = gather(job, mine.unwrap_or(0.0))?;
        times.extend(works.iter().map(|rank| said[*rank]));
        job.barrier()?;
        let said = gather(job, work().run_us)?;
        runs.extend(crowded.iter().map(|rank| said[*rank]));
    }
    let taken = (middle(times) - 1.0).max(0.0);
    Ok(Some(Crowd {
        waiting: taken * cores as f64 / waits.len() as f64,
        slice_us: middle(runs),
    }))
}

/// The ranks of the first machine with more of them than cores.
fn crowded(machines: &[Vec<u8>], cores: usize) -> Option<Vec<usize>> {
    let of = |machine: &Vec<u8>| {
        let ranks = machines.iter().enumerate();
        let ranks = ranks.filter(|(_, other)| *other == machine);
        ranks.map(|(rank, _)| rank).collect::<Vec<usize>>()
    };
    machines.iter().map(of).find(|ranks| ranks.len() > cores)
}

/// Keeps a core busy, and looks at the clock all the time.
fn work() -> Ran {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (began, end) = (Instant::now(), cpu() + WORK);
    let (mut since, mut last, mut runs) = (began, began, Vec::new());
    while cpu() < end {
        let now = Instant::now();
        if now.duration_since(last) > GAP {
            runs.push(last.duration_since(since).as_secs_f64() * 1e6);
            since = now;
        }
        last = now;
    }
    runs.push(last.duration_since(since).as_secs_f64() * 1e6);
    Ran {
        times: began.elapsed().as_secs_f64() / WORK.as_secs_f64(),
        run_us: middle(runs),
    }
}

/// A number of every rank.
fn gather(job: &mut Job, mine: f64) -> anyhow::Result<Vec<f64>> {
    let all = job.gather(&mine.to_le_bytes())?;
    let numbers = all
        .iter()
        .map(|said| said.as_slice().try_into().map_or(0.0, f64::from_le_bytes));
    Ok(numbers.collect())
}

fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_no_less_than_its_time_and_runs_are_told() {
        let ran = work();
        assert!(ran.times > 0.99, "{}", ran.times);
        assert!(ran.run_us > 0.0 && ran.run_us.is_finite());
    }

    #[test]
    fn ranks_of_a_machine_are_found_also_when_they_are_not_neighbours() {
        let machines = ["a", "b", "a", "c", "a"].map(|name| name.as_bytes().to_vec());
        assert_eq!(crowded(&machines, 2), Some(vec![0, 2, 4]));
        assert_eq!(crowded(&machines, 3), None);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(middle(vec![]), 0.0);
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
