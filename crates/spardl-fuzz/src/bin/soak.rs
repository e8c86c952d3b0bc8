//! `cargo run --profile soak -p spardl-fuzz --bin soak -- SECONDS [SEED]`: all targets on all cores, with counts.

#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use spardl_fuzz::soak::{self, Length, Soaked};

const MIB: u64 = 1 << 20;

/// The most address space this process ever had: what was allocated and never touched counts, too. 0 where the system does not say.
fn peak() -> io::Result<u64> {
    let status = match fs::read_to_string("/proc/self/status") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        status => status?,
    };
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let digits = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib = digits.and_then(|digits| digits.trim().parse::<u64>().ok());
    Ok(kib.unwrap_or(0) * 1024)
}

fn main() -> io::Result<ExitCode> {
    let mut numbers = env::args().skip(1).map(|word| word.parse::<u64>());
    let (seconds, seed) = match (numbers.next(), numbers.next()) {
        (None, _) => (60, 1),
        (Some(Ok(seconds)), None) => (seconds, 1),
        (Some(Ok(seconds)), Some(Ok(seed))) => (seconds, seed),
        _ => {
            writeln!(io::stderr(), "soak: expected SECONDS and perhaps a SEED")?;
            return Ok(ExitCode::from(2));
        }
    };
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let mut out = io::stdout();
    let tell = |so_far: &Soaked| {
        let (all, seconds) = (so_far.inputs(), so_far.spent.awake.as_secs());
        // Nobody may be listening.
        let _ = writeln!(io::stderr(), "{seconds} s: {all} inputs");
    };
    let length = Length::Time(Duration::from_secs(seconds));
    match soak::run(length, threads, seed, tell) {
        Ok(soaked) => {
            writeln!(out, "{:16} {:>14} {:>9}", "target", "inputs", "outcomes")?;
            for count in &soaked.counts {
                let (inputs, outcomes) = (count.inputs, count.outcomes);
                writeln!(out, "{:16} {inputs:>14} {outcomes:>9}", count.target)?;
            }
            writeln!(out, "{:16} {:>14}", "all", soaked.inputs())?;
            let (peak, bound) = (peak()?, MIB * (512 + 256 * threads as u64));
            let (peak_mib, bound_mib) = (peak / MIB, bound / MIB);
            let (awake, cpu) = (soaked.spent.awake.as_secs(), soaked.spent.cpu.as_secs());
            writeln!(
                out,
                "{awake} s on {threads} threads, {cpu} s of CPU time, seed {seed}: no panic, no hang, {peak_mib} MiB of \
                 address space (bound {bound_mib})"
            )?;
            Ok(ExitCode::from(u8::from(peak > bound)))
        }
        Err(failure) => {
            writeln!(out, "{} panicked on {}", failure.target, failure.input)?;
            Ok(ExitCode::FAILURE)
        }
    }
}
