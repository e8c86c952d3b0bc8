//! `spardl simulate` and `spardl advise` as their users call them.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &str) -> Output {
    let words = arguments.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(words).output().expect("the command runs")
}

fn printed(arguments: &str) -> String {
    let output = run(arguments);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {words}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn refused(arguments: &str) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(words.lines().count(), 1, "{words}");
    words
}

#[test]
fn the_same_seed_gives_the_same_json_for_every_method_and_another_seed_another() {
    let all = "simulate --workers 6 --elements 2000 --methods all --seeds 2 --warmup 1 --format json \
               --backward 1ms --noise lognormal:0.2 --buckets 3 --fault drop=0.05 --topology fat-tree --leaf-size 2 --seed";
    let first = printed(&format!("{all} 1"));
    assert_eq!(first, printed(&format!("{all} 1")));
    assert_ne!(first, printed(&format!("{all} 2")));
    let whole: Value = serde_json::from_str(&first).expect("JSON");
    for row in whole["methods"].as_array().expect("rows") {
        let parts = [
            "compute",
            "select",
            "merge",
            "latency",
            "transfer",
            "contention",
            "faults",
        ];
        let path = &row["critical_path"];
        let sum: u64 = parts
            .iter()
            .filter_map(|part| path[format!("{part}_ns")].as_u64())
            .sum();
        assert_eq!(Some(sum), row["median_ns"].as_u64(), "{row}");
    }
}

#[test]
fn the_model_is_printed_beside_the_simulator_and_the_papers() {
    let text = printed(
        "simulate --workers 8 --elements 4096 --methods spardl,dense,ok-topk --check-model --sharing none --seeds 1",
    );
    for word in ["simulated", "off by", "published", "spardl", "ok-topk"] {
        assert!(text.contains(word), "{text}");
    }
    let whole = printed(
        "simulate --workers 100000 --elements 1300000000 --methods all --cost-only --format json",
    );
    let whole: Value = serde_json::from_str(&whole).expect("JSON");
    let rows = whole["methods"].as_array().expect("rows");
    let ring = rows.iter().find(|row| row["method"] == "dense-ring");
    assert_eq!(ring.expect("a row")["rounds"], 2 * 99_999);
}

#[test]
fn a_message_that_is_lost_for_good_is_a_failure_that_names_the_ranks() {
    let output = run("simulate --workers 4 --methods spardl --fault lose,from=2,to=0");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("rank 0") && words.contains("rank 2"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_on_one_line() {
    assert!(refused("simulate --latency 10").contains("'10' is not a time"));
    assert!(refused("simulate --bandwidth fast").contains("'fast' is not a rate"));
    assert!(
        refused("simulate --topology nowhere.csv")
            .contains("flattened-butterfly or a readable file")
    );
    assert!(refused("simulate --density 2").contains("density"));
    assert!(refused("simulate --fault explode").contains("'explode' is not a fault"));
    assert!(refused("simulate --workers 6 --teams 4").contains("4"));
    assert!(refused("simulate --cost-only --topology fat-tree").contains("flat network only"));
    assert!(refused("simulate --workers 900000 --elements 4000000000").contains("--cost-only"));
    assert!(refused("advise --workers 4 --model gpt9").contains("'gpt9' is not a model"));
}

#[test]
fn advice_says_what_to_use_and_where_it_flips() {
    let text = printed("advise --model resnet50 --workers 16 --bandwidth 1gbit --backward 120ms");
    for words in [
        "Use `",
        "with dense f32 it takes",
        "The answer flips at about",
    ] {
        assert!(text.contains(words), "{text}");
    }
}
