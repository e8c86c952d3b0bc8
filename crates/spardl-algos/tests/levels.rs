//! Updates and residuals do not depend on the SIMD level: every configuration, end to end, at every level of this CPU.
//!
//! The level is chosen once per process, so the test starts itself again for each of them.

use std::process::Command;

use spardl_kernels::Level;
use spardl_testkit::{Trial, check, configurations, generate};

const WORKERS: u32 = 4;
/// Long enough for whole registers, several windows of a fold and sampled floors in every block.
const LEN: usize = 40_000;
/// From sparse to nearly everything.
const KS: [usize; 3] = [400, 4000, 14_000];

/// A line per configuration: its name, and a hash of all updates and of what the workers keep.
fn hashes() -> String {
    let gradients: Vec<_> = (0..KS.len())
        .map(|step| generate::fractions(step as u64 + 77, WORKERS, LEN))
        .collect();
    let mut lines = String::new();
    for algorithm in configurations::every(WORKERS) {
        let mut trial = Trial::new(&*algorithm, WORKERS, LEN);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |values: &[f32]| {
            for bits in check::bits(values) {
                hash = (hash ^ u64::from(bits)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (step, &k) in KS.iter().enumerate() {
            add(&trial.step(&gradients[step], k, step as u64));
        }
        for worker in trial.cluster.workers() {
            add(worker.residual());
        }
        lines += &format!("hash {hash:016x} {}\n", algorithm.describe());
    }
    lines
}

#[test]
#[ignore = "started by the other test, once per level"]
#[expect(clippy::print_stdout, reason = "the other test reads it")]
fn print_the_hashes_of_this_level() {
    println!("level {}\n{}", Level::best().name(), hashes());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a level belongs to a whole process"
)]
fn every_level_gives_the_same_updates_and_residuals() {
    let own = hashes();
    for level in Level::available() {
        if level == Level::best() {
            continue;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "print_the_hashes"])
            .env(Level::VARIABLE, level.name())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains(&format!("level {}\n", level.name())),
            "{text}"
        );
        let theirs: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("hash"))
            .collect();
        let own: Vec<&str> = own.lines().collect();
        assert_eq!(theirs, own, "{}", level.name());
    }
}
