//! The transport in real processes. Without `rank` as its first argument this program starts itself under `mpiexec`, once
//! per job; other arguments select the jobs whose names contain one of them.
//!
//! | job | what each rank does |
//! | --- | --- |
//! | conformance | the suite that every transport must pass |
//! | bits | every method of the registry; the bits are those of the simulator |
//! | large | messages far above any eager limit; the bits are those of the simulator |
//! | faults | steps until a rank is killed, or stopped at a point of a step |
//! | training | a few steps of training; the loss curve is that over threads |
//! | measure | prints times; not a test, see `rank measure` |

#![expect(clippy::print_stdout, reason = "its users read the output")]

mod bits;
mod conformance;
mod faults;
mod launch;
mod measure;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../spardl-train/tests/training/softmax.rs"]
mod softmax;
mod steps;
mod training;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rank", "conformance"] => conformance::rank(),
        ["rank", "bits"] => bits::rank(bits::Size::Small),
        ["rank", "large"] => bits::rank(bits::Size::Large),
        ["rank", "training"] => training::rank(),
        ["rank", "steps", point] => return steps::rank(point),
        ["rank", "measure", ref methods @ ..] => measure::rank(methods),
        ref filters => return jobs(filters),
    }
    ExitCode::SUCCESS
}

/// Runs all jobs whose names match and counts them.
fn jobs(filters: &[&str]) -> ExitCode {
    // `cargo test -- --nocapture` and the like are meant for another harness.
    let filters: Vec<&str> = filters
        .iter()
        .copied()
        .filter(|f| !f.starts_with('-'))
        .collect();
    let library = spardl_mpi::Mpi::library_version();
    println!("{}", library.lines().next().unwrap_or_default());
    let (mut passed, mut failed) = (0, 0);
    let all = [
        conformance::jobs(),
        bits::jobs(),
        training::jobs(),
        faults::jobs(),
    ];
    for job in all.into_iter().flatten() {
        if !filters.is_empty() && !filters.iter().any(|filter| job.name.contains(filter)) {
            continue;
        }
        let started = std::time::Instant::now();
        let result = (job.run)();
        let seconds = started.elapsed().as_secs_f32();
        match result {
            Ok(()) => {
                passed += 1;
                println!("ok     {} ({seconds:.1} s)", job.name);
            }
            Err(reason) => {
                failed += 1;
                println!("FAILED {} ({seconds:.1} s)\n{reason}", job.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
