//! Faults that lose nothing change no bit; a message that is lost for good is an error on everybody who needed it.

use std::time::Duration;

use spardl_core::Rank;
use spardl_drive::DriveError;
use spardl_sim::{Effect, Fabric, Line, Rule, Rules, Sharing, Topology};
use spardl_testkit::check::bits;
use spardl_testkit::{Trial, configurations, generate};

const LEN: usize = 90;
const K: usize = 13;
const STEPS: u64 = 3;

fn harmless() -> Vec<Rule> {
    let again = Duration::from_millis(2);
    let mut slow_worker = Rule::always(Effect::Delay(Duration::from_micros(300)));
    slow_worker.from = Some(Rank::new(1));
    let mut slow_round = Rule::always(Effect::Delay(Duration::from_micros(77)));
    slow_round.round = Some(1);
    vec![
        Rule::always(Effect::Drop { again }).with_probability(0.3),
        Rule::always(Effect::Duplicate).with_probability(0.5),
        slow_worker.with_probability(0.8),
        slow_round,
    ]
}

fn on_a_network(mut trial: Trial, workers: u32) -> Trial {
    let line = Line {
        latency: 5_000,
        bandwidth: 1_000_000_000,
    };
    let fabric = Fabric::new(Topology::Flat, workers, line).unwrap();
    trial.cluster = trial.cluster.with_fabric(fabric, Sharing::Fair);
    trial
}

#[test]
fn faults_that_lose_nothing_for_good_change_no_bit_and_only_take_time() {
    for workers in [2, 3, 4, 6] {
        for algorithm in configurations::every(workers) {
            let fresh = || on_a_network(Trial::new(&*algorithm, workers, LEN), workers);
            let (mut clean, mut faulty) = (fresh(), fresh());
            let mut rules = Rules::new(&harmless(), 9);
            faulty
                .cluster
                .set_fault(move |message| rules.decide(message));
            for step in 0..STEPS {
                let gradients = generate::fractions(step, workers, LEN);
                let expected = clean.step(&gradients, K, step);
                let update = faulty.step(&gradients, K, step);
                assert_eq!(bits(&expected), bits(&update), "{}", clean.context);
                assert!(clean.kept() == faulty.kept(), "{}", clean.context);
            }
        }
    }
}

#[test]
fn after_a_message_is_lost_for_good_every_worker_reports_an_error_that_names_a_peer() {
    for workers in [2, 3, 5] {
        for algorithm in configurations::every(workers) {
            let mut trial = on_a_network(Trial::new(&*algorithm, workers, LEN), workers);
            let gradients = generate::fractions(0, workers, LEN);
            let Some(lost) = trial.messages(&gradients, K, 0).pop() else {
                continue;
            };
            let mut rule = Rule::always(Effect::Lose);
            (rule.from, rule.to) = (Some(lost.from), Some(lost.to));
            let mut rules = Rules::new(&[rule], 1);
            trial
                .cluster
                .set_fault(move |message| rules.decide(message));
            let first = trial.cluster.step(&gradients, K, 0).unwrap_err();
            let context = format!("{}: {first}", trial.context);
            assert!(names_a_peer(&first), "{context}");
            assert!(
                first.to_string().contains(&format!("rank {}", lost.from)),
                "{context}"
            );
            for (rank, error) in trial.cluster.other_failures() {
                assert!(names_a_peer(error), "{context}; rank {rank}: {error}");
            }
        }
    }
}

fn names_a_peer(error: &DriveError) -> bool {
    let text = error.to_string();
    matches!(error, DriveError::Transport(_)) && text.matches("rank").count() >= 2
}
