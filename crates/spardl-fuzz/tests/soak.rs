//! Every target of the soak, on so many inputs, and all of them for a moment.

use std::time::Duration;

use spardl_fuzz::soak;

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

#[test]
fn a_short_soak_reaches_every_target_and_finds_nothing() {
    let counts = soak::run(Duration::from_millis(500), 2, 7, |_| {})
        .expect("no failure")
        .counts;
    assert_eq!(counts.len(), soak::targets().len());
    let all = counts.iter();
    assert!(
        all.clone()
            .all(|count| count.inputs > 0 && count.outcomes > 0),
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
}
