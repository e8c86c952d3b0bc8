//! A rank is killed, or stopped in a phase of a step: the job ends, in time, with a word on who is missing.

use std::thread;
use std::time::{Duration, Instant};

use crate::launch::{Job, Launched, Link, is_open_mpi, runs, signal};
use crate::steps::{DEADLINE, GRACE, Point, RANKS, VICTIM};

/// How long mpiexec may take to start or end a job on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

pub(crate) fn jobs() -> Vec<Job> {
    let mut jobs = vec![Job::new(
        "a killed rank ends the job and is named".to_owned(),
        killed,
    )];
    let rounds = (0..4).map(Point::Round);
    for point in [Point::BetweenSteps, Point::Select]
        .into_iter()
        .chain(rounds)
    {
        let name = format!("a rank stopped at {point:?} is named by all others");
        jobs.push(Job::new(name, move || stopped(point)));
    }
    jobs
}

fn killed() -> Result<(), String> {
    let (mut job, pids) = start(Point::Never)?;
    thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    signal("KILL", pids[VICTIM as usize])?;
    let (status, output) = job.finish()?;
    ensure(!status.success(), "the job ends badly", output)?;
    ensure(
        started.elapsed() < DEADLINE + SLACK,
        "it ends in time",
        output,
    )?;
    // MPICH's launcher names some process of the job, often one that it ended itself.
    let named = if is_open_mpi() {
        output.contains(&format!("process rank {VICTIM} with PID"))
    } else {
        output.contains("Killed (signal 9)")
    };
    ensure(named, "the launcher says who was killed", output)?;
    ensure_gone(&pids, output)
}

fn stopped(point: Point) -> Result<(), String> {
    let (mut job, pids) = start(point)?;
    job.wait_for("hangs", SLACK)?;
    signal("STOP", pids[VICTIM as usize])?;
    let started = Instant::now();
    let output = judge(&mut job, started)?;
    ensure_gone(&pids, &output)
}

fn judge(job: &mut Launched, started: Instant) -> Result<String, String> {
    let (status, output) = job.finish()?;
    ensure(!status.success(), "the job ends badly", output)?;
    ensure(
        started.elapsed() < DEADLINE + GRACE + SLACK,
        "it ends in time",
        output,
    )?;
    let mut named = 0;
    for rank in (0..RANKS).filter(|&rank| rank != VICTIM) {
        let own = format!("error: rank {rank} waited ");
        let error = output.lines().find(|line| line.contains(&own));
        let error =
            error.ok_or_else(|| format!("rank {rank} does not time out by itself\n{output}"))?;
        let (_, details) = error.split_once(" in round ").unwrap_or_default();
        let (_, peers) = details.split_once(" of bucket ").unwrap_or_default();
        ensure(
            peers.contains(" for rank"),
            "the error names round, bucket and peers",
            error,
        )?;
        named += usize::from(
            peers.contains(&format!("rank {VICTIM}")) || peers.contains(&format!(" {VICTIM}")),
        );
    }
    ensure(named > 0, "some rank names the one that hangs", output)?;
    Ok(output.to_owned())
}

/// A job in which all ranks take steps, and the ranks' processes.
fn start(point: Point) -> Result<(Launched, Vec<u32>), String> {
    let mut job = Launched::new(RANKS, &["steps", &point.to_arg()], Link::SharedMemory)?;
    let mut pids = Vec::new();
    for rank in 0..RANKS {
        let line = job.wait_for(&format!("rank {rank} pid "), SLACK)?;
        let pid = line.rsplit(' ').next().unwrap_or_default().parse();
        pids.push(pid.map_err(|_| line)?);
    }
    Ok((job, pids))
}

fn ensure(holds: bool, rule: &str, output: &str) -> Result<(), String> {
    if holds {
        return Ok(());
    }
    Err(format!("broken: {rule}\n{output}"))
}

/// No process is left; those that are get killed, so that one failed test leaves nothing behind.
fn ensure_gone(pids: &[u32], output: &str) -> Result<(), String> {
    let end = Instant::now() + SLACK;
    while pids.iter().any(|&pid| runs(pid)) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<u32> = pids.iter().copied().filter(|&pid| runs(pid)).collect();
    for &pid in &left {
        signal("KILL", pid).ok();
    }
    ensure(
        left.is_empty(),
        "no process is left",
        &format!("{left:?}\n{output}"),
    )
}
