//! Density by time. Budgets that nothing exceeds and that nothing meets need no clock to be tested with.

use std::time::Duration;

use super::*;

/// Five looks at the times, of 20 steps each.
fn run(budget: Budget, checkpoints: Option<Checkpoints>, steps: u64) -> Vec<Ended> {
    let settings = Settings {
        epochs: 8,
        max_steps: Some(steps),
        density: "auto:0.002..0.04".parse().expect("a schedule"),
        exchange_budget: budget,
        checkpoints,
        ..settings()
    };
    train_all(4, "spardl", &settings, &images())
}

fn targets(ended: &Ended) -> Vec<f64> {
    let mut targets: Vec<f64> = ended.heard.steps.iter().map(|s| s.density_target).collect();
    targets.dedup();
    targets
}

#[test]
fn the_density_goes_to_its_bounds_by_halves_and_doubles_and_replicas_stay_the_same() {
    let little = Budget::Time(Duration::from_nanos(1));
    let much = Budget::Time(Duration::from_secs(3600));
    for (budget, expected) in [
        (little, vec![0.01, 0.005, 0.0025, 0.002]),
        (much, vec![0.01, 0.02, 0.04]),
    ] {
        let ended = run(budget, None, 90);
        assert_eq!(targets(&ended[0]), expected);
        let summary = ended[0].summary.as_ref().expect("it ends well");
        assert!(summary.identical);
        let look = summary.epochs.last().and_then(|epoch| epoch.by_time);
        let look = look.expect("a look at the times");
        assert_eq!(look.density, *expected.last().expect("some"));
        assert!(look.exchange_ms > 0.0 && look.budget_ms >= 0.0);
        assert!(
            ended
                .iter()
                .all(|one| one.parameters == ended[0].parameters)
        );
    }
}

#[test]
fn a_run_that_goes_on_begins_with_the_density_that_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let little = Budget::Time(Duration::from_nanos(1));
    run(little, saving(dir.path(), false), 50);
    let resumed = run(little, saving(dir.path(), true), 60);
    assert_eq!(targets(&resumed[0])[0], 0.0025);
}
