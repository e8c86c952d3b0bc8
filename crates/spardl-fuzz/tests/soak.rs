//! Every target of the soak, on so many inputs, and all of them together.

use std::time::Duration;

use spardl_fuzz::soak::{self, Length};

/// What takes a thousandth of a second each.
const INPUTS: u64 = 1500;

#[test]
fn every_target_takes_or_refuses_damaged_inputs() {
    for target in soak::targets() {
        for seed in 1..=2 {
            let result = soak::run_bounded(&target, INPUTS, seed);
            assert_eq!(result, Ok(()), "{}", target.name);
        }
    }
}

/// By inputs, not by the clock: a test has the same inputs on every machine.
#[test]
fn a_short_soak_reaches_every_target_finds_nothing_and_is_the_same_again() {
    let soak = || {
        let soaked = soak::run(Length::Inputs(64), 2, 7, |_| {});
        soaked.expect("no failure").counts
    };
    let counts = soak();
    assert_eq!(counts.len(), soak::targets().len());
    let all = counts.iter();
    assert!(
        all.clone()
            .all(|count| count.inputs == 128 && count.outcomes > 0),
        "{counts:?}"
    );
    let names: Vec<&str> = all.map(|count| count.target).collect();
    for name in [
        "lists",
        "messages",
        "saved states",
        "npy",
        "safetensors",
        "configuration",
        "command line",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(counts, soak());
}

#[test]
fn a_soak_without_time_has_no_inputs() {
    let soaked = soak::run(Length::Time(Duration::ZERO), 1, 1, |_| {});
    assert_eq!(soaked.expect("no failure").inputs(), 0);
}
