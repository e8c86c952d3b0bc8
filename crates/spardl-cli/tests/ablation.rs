//! Every ablation runs, prints the same twice, and shows what it claims to show.

use std::process::{Command, Output};

use serde_json::Value;

fn spardl(args: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_spardl"))
        .args(args)
        .output();
    command.expect("the binary was built for this test")
}

fn stdout(args: &[&str]) -> String {
    let output = spardl(args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The rows of an ablation at tiny sizes.
fn rows(name: &str) -> Vec<Value> {
    let text = stdout(&["ablation", name, "--quick", "--format", "json"]);
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object per line"))
        .collect();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row["ablation"] == name));
    rows
}

fn number(row: &Value, column: &str) -> f64 {
    let number = row[column].as_f64();
    number.unwrap_or_else(|| panic!("{column} of {row}"))
}

fn names() -> Vec<String> {
    let list = stdout(&["ablation", "list"]);
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    list.lines().filter_map(first).collect()
}

#[test]
fn every_ablation_prints_the_same_table_twice_and_another_seed_another() {
    let names = names();
    assert_eq!(names.len(), 11);
    for name in &names {
        let once = stdout(&["ablation", name, "--quick"]);
        assert_eq!(once, stdout(&["ablation", name, "--quick"]), "{name}");
        assert!(once.starts_with("# "), "{name} begins with its sizes");
        if name != "exdyna-memory" {
            let other = stdout(&["ablation", name, "--quick", "--seed", "2"]);
            assert_ne!(once, other, "{name}");
        }
    }
}

#[test]
fn an_unknown_ablation_is_refused_with_the_names() {
    let output = spardl(&["ablation", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in names() {
        assert!(message.contains(&name), "{message}");
    }
}

#[test]
fn no_message_of_the_reduce_scatter_exceeds_its_quota_where_naive_sums_do() {
    let rows = rows("accumulation");
    let rounds: Vec<&Value> = rows.iter().filter(|row| row["quota"].is_u64()).collect();
    assert_eq!(rounds.len(), 4);
    for round in &rounds {
        assert!(number(round, "spardl") <= number(round, "quota"), "{round}");
    }
    assert!(number(rounds[3], "naive") > 2.0 * number(rounds[3], "quota"));
    let after: Vec<&Value> = rows.iter().filter(|row| row["after"].is_string()).collect();
    assert_eq!(after[1]["worker 0"], "0(0+2) 1(0+2)");
    assert_eq!(after[2]["worker 3"], "3(0+1+2+3)");
}

#[test]
fn the_global_rules_lose_nothing_and_the_others_lose_something() {
    for row in rows("residuals") {
        let global = row["rule"].as_str().unwrap().starts_with("global");
        assert_eq!(row["lost exactly"] == 0, global, "{row}");
        assert_eq!(row["elements"] == 0, global, "{row}");
        if global {
            let (error, kept) = (number(&row, "error at end"), number(&row, "kept"));
            assert!(
                (error - kept).abs() < 1e-9,
                "what is missing is kept: {row}"
            );
        }
    }
}

#[test]
fn teams_save_rounds_and_keep_h_between_its_bounds() {
    for row in rows("teams") {
        let workers: f64 = row["table"].as_str().unwrap()[..1].parse().unwrap();
        let (teams, q) = (number(&row, "teams"), number(&row, "q"));
        let log = |x: f64| x.log2().ceil();
        assert_eq!(
            number(&row, "rounds"),
            2.0 * log(workers / teams) + log(teams),
            "{row}"
        );
        assert!(number(&row, "entries") <= 16.0, "{row}");
        if row["sag"] == "b" {
            let h = number(&row, "h");
            assert!(q / teams - 1.0 <= h && h <= q + 1.0, "{row}");
        }
    }
}

#[test]
fn residuals_shrink_as_the_density_grows() {
    let rows = rows("compression");
    for pair in rows.chunks(2) {
        assert_eq!(pair[0]["method"], pair[1]["method"]);
        let (sparse, denser) = (number(&pair[0], "residual"), number(&pair[1], "residual"));
        assert!(sparse > denser, "{} {}", pair[0], pair[1]);
    }
}

#[test]
fn exdyna_tracks_its_density_and_a_fixed_threshold_does_not() {
    for row in rows("density-tracking") {
        match row["method"].as_str().unwrap() {
            "exdyna corrected" => {
                assert!((number(&row, "mean 1st") - 1.0).abs() < 0.1, "{row}");
                assert!(number(&row, "back after") <= 100.0, "{row}");
            }
            "hard-threshold tuned" => assert_eq!(row["back after"], "never", "{row}"),
            _ => {}
        }
    }
}

#[test]
fn exdyna_with_one_worker_is_balanced_and_sends_nothing() {
    let rows = rows("exdyna-workers");
    let alone = rows.iter().filter(|row| row["workers"] == 1);
    for row in alone {
        assert_eq!(number(row, "imbalance"), 1.0);
        assert_eq!(number(row, "words"), 0.0);
        assert_eq!(number(row, "K/k"), 1.0);
    }
    for row in rows.iter().filter(|row| row["workers"] != 1) {
        assert!(number(row, "imbalance") >= 1.0, "{row}");
        assert!(number(row, "words") > 0.0, "{row}");
    }
}

#[test]
fn exdyna_parts_and_blocks_never_do_better_than_perfect_balance() {
    for name in ["exdyna-parts", "exdyna-blocks"] {
        for row in rows(name) {
            assert!(number(&row, "imbalance") >= 1.0, "{row}");
            // The published controller is still on its way after so few steps.
            if row["controller"] != "published" {
                assert!((0.5..2.0).contains(&number(&row, "K/k")), "{row}");
            }
        }
    }
}

#[test]
fn only_methods_with_feedback_keep_a_residual() {
    for row in rows("exdyna-memory") {
        let dense = row["method"].as_str().unwrap().starts_with("dense");
        assert_eq!(number(&row, "residual") == 0.0, dense, "{row}");
        assert!(
            number(&row, "method state") < number(&row, "working copy"),
            "{row}"
        );
    }
}

#[test]
fn an_exact_step_of_ok_topk_is_the_top_k_of_the_sum_of_top_ks() {
    let exact: Vec<Value> = rows("ok-topk-accuracy")
        .into_iter()
        .filter(|row| row["steps since"] == "0 (exact)")
        .collect();
    assert_eq!(exact.len(), 2);
    for row in exact {
        let (xi, rule) = (number(&row, "xi mean"), number(&row, "xi of the rule"));
        assert!((xi - rule).abs() <= 1e-3 * rule, "{row}");
        assert_eq!(number(&row, "K/k"), 1.0);
    }
}

#[test]
fn balance_costs_rounds_and_relieves_the_busiest_worker_when_shares_are_skewed() {
    let rows = rows("ok-topk-balance");
    let find = |table: &str, balance: &str| {
        let mut rows = rows.iter();
        rows.find(|row| {
            row["table"].as_str().unwrap().starts_with(table) && row["balance"] == balance
        })
        .expect("a row")
    };
    let moving = "hot spot that moves";
    let (always, never) = (find(moving, "always"), find(moving, "never"));
    assert!(number(always, "rounds") > number(never, "rounds"));
    assert!(number(always, "busiest") < number(never, "busiest"));
}
