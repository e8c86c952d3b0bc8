//! `cargo run --release -p spardl-fuzz --bin soak -- SECONDS [SEED]`: all targets on all cores, with counts.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use spardl_fuzz::soak;

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
    match soak::run(Duration::from_secs(seconds), threads, seed) {
        Ok(counts) => {
            for (target, count) in &counts {
                writeln!(out, "{target:16} {count:>14}")?;
            }
            let all: u64 = counts.iter().map(|(_, count)| count).sum();
            writeln!(out, "{:16} {all:>14}", "all")?;
            writeln!(
                out,
                "{seconds} s on {threads} threads, seed {seed}: no panic, no hang"
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            writeln!(out, "{} panicked on {}", failure.target, failure.input)?;
            Ok(ExitCode::FAILURE)
        }
    }
}
