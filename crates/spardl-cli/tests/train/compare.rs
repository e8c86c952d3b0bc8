//! `spardl compare`.

use std::fs;

use serde_json::Value;

use super::{ends_well, small, spardl};

#[test]
fn compare_puts_methods_side_by_side_and_saves_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let mut args = small(&[
        "--methods",
        "dense,spardl@0.05,spardl/local",
        "--seeds",
        "1,2",
        "--link-gbits",
        "25",
        "--out",
        out,
    ]);
    args[0] = "compare";
    let output = ends_well(&args);
    let table = String::from_utf8(output.stdout).expect("text");
    let names: Vec<&str> = table
        .lines()
        .skip(1)
        // A second table has the differences.
        .take(3)
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert_eq!(names, ["dense", "spardl@0.05", "spardl/local"]);
    let text = fs::read_to_string(dir.path().join("compare.json")).expect("rows");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert!(
        rows.iter()
            .all(|row| row["identical"] == true && row["seeds"] == 2)
    );
    assert!(rows[1]["bytes_to_dense"].as_f64() > rows[2]["bytes_to_dense"].as_f64());
    let page = fs::read_to_string(dir.path().join("report.html")).expect("a page");
    assert!(page.contains("spardl/local"));
    let link = "speed-up at 25 Gbit/s";
    assert!(table.contains(link), "{table}");
    // The page does not break between a number and its unit.
    assert!(page.contains(&link.replace("25 ", "25\u{a0}")));
}

#[test]
fn compare_chooses_rates_on_held_out_samples_and_pairs_seeds_with_dense() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let mut args = small(&[
        "--methods",
        "dense,spardl@0.05",
        "--seeds",
        "1,2",
        "--tune-lr",
        "0.00001,0.05",
        "--tune-momentum",
        "0,0.9",
        "--tune-epochs",
        "1",
        "--held-out",
        "0.25",
        "--overlap",
        "0.6",
        "--out",
        out,
    ]);
    args[0] = "compare";
    let output = ends_well(&args);
    let (table, said) = (
        String::from_utf8(output.stdout).expect("text"),
        String::from_utf8(output.stderr).expect("text"),
    );
    assert_eq!(said.matches("chosen of 4: lr 0.05").count(), 2, "{said}");
    assert!(table.contains("points against dense"), "{table}");
    let text = fs::read_to_string(dir.path().join("compare.json")).expect("rows");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    for row in &rows {
        let tried = row["choice"]["tried"].as_array().expect("a grid");
        assert_eq!(tried.len(), 4, "{row}");
        // With a rate of next to nothing a network stays where it was.
        let accuracy = |i: usize| tried[i]["held_out_accuracy"].as_f64().expect("tested");
        assert!(
            accuracy(0) < accuracy(2) || accuracy(1) < accuracy(3),
            "{row}"
        );
    }
    let difference = |i: usize| &rows[i]["against_dense"]["at_equal_steps"];
    assert_eq!(difference(0), &Value::Null, "dense beside itself");
    assert_eq!(difference(1)["pairs"], 2);
    // What was chosen is what the runs that count were trained with.
    let config = fs::read_to_string(dir.path().join("dense-seed-2/config.toml")).expect("saved");
    assert!(config.contains("\nlr = 0.05\n"), "{config}");
}

#[test]
fn only_dense_in_f32_is_what_others_are_compared_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let mut args = small(&["--methods", "dense,spardl", "--value-type", "bf16"]);
    args.extend(["--max-steps", "2", "--out", out]);
    args[0] = "compare";
    ends_well(&args);
    let text = fs::read_to_string(dir.path().join("compare.json")).expect("rows");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let names: Vec<&Value> = rows.iter().map(|row| &row["method"]).collect();
    assert_eq!(names, ["dense-bf16", "spardl-bf16"]);
    assert!(rows.iter().all(|row| row["speedup"].is_null()), "{text}");
}

#[test]
fn compare_goes_on_after_a_run_whose_numbers_went_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let compare = |name: &str, methods: &str| {
        let out = dir.path().join(name);
        let mut args = small(&["--methods", methods, "--seeds", "1,2", "--lr", "1e30"]);
        // With nothing above its threshold hard-threshold never moves a parameter.
        args.extend(["--set", "hard-threshold.threshold=1e30"]);
        args.extend(["--weight-decay", "0", "--max-epochs", "1"]);
        args.extend(["--out", out.to_str().expect("text")]);
        args[0] = "compare";
        let output = spardl(&args);
        let errors = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let rows = fs::read_to_string(out.join("compare.json"));
        let table = String::from_utf8(output.stdout).expect("text");
        (table, errors, rows.unwrap_or_default())
    };
    let (table, errors, rows) = compare("some", "dense,hard-threshold");
    let names: Vec<&str> = table.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(names, ["method", "hard-threshold"]);
    assert!(errors.contains("dense seed 1  failed: step 2"), "{errors}");
    let verdict = "spardl: 2 of 4 runs failed: dense seed 1, dense seed 2";
    assert_eq!(errors.lines().last(), Some(verdict));
    let rows: Vec<Value> = serde_json::from_str(&rows).expect("JSON");
    assert_eq!((rows.len(), &rows[0]["seeds"]), (1, &Value::from(2)));
    assert!(dir.path().join("some/report.html").exists());

    let (table, errors, rows) = compare("none", "dense");
    assert_eq!((table.as_str(), rows.as_str()), ("", ""), "nothing to show");
    assert!(errors.contains("2 of 2 runs failed"), "{errors}");
}

#[test]
fn compare_refuses_what_it_could_not_tell_apart() {
    let refused = |more: &[&str], expected: &str| {
        let mut args = small(more);
        args[0] = "compare";
        let output = spardl(&args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {text}");
        assert!(text.contains(expected), "{more:?}: {text}");
    };
    refused(&["--methods", "dense,spardl,dense"], "names dense twice");
    refused(
        &["--methods", "dense,dense-bf16", "--value-type", "bf16"],
        "names dense-bf16 twice",
    );
    refused(&["--methods", "dense", "--seeds", "3,3"], "names 3 twice");
    refused(
        &["--seeds", "1,18446744073709551615"],
        "not in 0..=9223372036854775807",
    );
    for rate in ["0", "-1", "nan", "inf", "fast"] {
        refused(&[&format!("--link-gbits={rate}")], "not a number above 0");
    }
    for latency in ["-1", "nan", "inf"] {
        let given = format!("--link-latency={latency}");
        refused(&[&given], "not a number from 0 up");
    }
    refused(&["--methods", "dense/local"], "leave out /local");
    for ignored in [
        &["--method", "spardl"][..],
        &["--compression"],
        &["--compressor", "spardl"],
    ] {
        refused(ignored, "compare takes --methods");
    }
    refused(&["--methods", "dense@0.1,spardl"], "leave out the density");
    refused(&["--target-accuracy", "90"], "90 % is 0.9");
    refused(&["--overlap", "2"], "not a number from 0 to 1");
    refused(&["--tune-lr", "0.1,0.1"], "--tune-lr names 0.1 twice");
    refused(&["--tune-lr", "0.1", "--held-out", "1"], "a tenth is 0.1");
    refused(&["--held-out", "0.2"], "give --tune-lr");
    refused(&["--tune-lr", "0.1,-1"], "lr");
}
