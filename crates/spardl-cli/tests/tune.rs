//! `spardl tune` and `--method auto` as their users call them.

mod command;

use std::fs;

use serde_json::Value;

use command::{printed, refused, run};

#[test]
fn a_pick_is_explained_in_a_table_kept_and_taken_from_the_cache() {
    let dir = tempfile::tempdir().expect("a directory");
    let cache = dir.path().join("tunings.json");
    let tune = format!(
        "tune --workers 2 --elements 4000 --cache {}",
        cache.display()
    );
    let text = printed(&tune);
    for word in ["choice", "exchange", "select", "merge", "is used: "] {
        assert!(text.contains(word), "{text}");
    }
    let again = printed(&tune);
    assert!(again.contains("measured before"), "{again}");
    assert_eq!(again.lines().last(), text.lines().last());
    let kept: Value = serde_json::from_slice(&fs::read(&cache).expect("a file")).expect("JSON");
    assert_eq!(kept[0]["conditions"]["workers"], 2);
}

#[test]
fn what_local_work_costs_is_measured_for_every_method_and_used_for_advice() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("gamma.json");
    let file = file.display();
    let text = printed(&format!(
        "tune --local --elements 20000 --no-cache --save {file}"
    ));
    for method in ["spardl-bf16", "dense-ring", "ok-topk", "sparse, median"] {
        assert!(text.contains(method), "{text}");
    }
    let advice = format!("advise --model resnet50 --workers 16 --measured {file}");
    assert!(printed(&advice).contains("Use "));
    let model = format!("simulate --cost-only --workers 8 --format json --measured {file}");
    let model: Value = serde_json::from_str(&printed(&model)).expect("JSON");
    assert!(
        model["methods"][0]["select_ns"].as_u64() > Some(0),
        "{model}"
    );
}

#[test]
fn every_choice_is_run_for_real_and_the_regret_is_printed() {
    let text = printed("tune --workers 2 --elements 3000 --no-cache --check 1 --format json");
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole["checked"]["regret"].as_f64() >= Some(0.0), "{text}");
    assert_eq!(whole["checked"]["picked"], whole["choice"]);
}

#[test]
fn auto_is_explained_with_what_it_chooses_from() {
    let text = printed("explain auto");
    for words in [
        "auto: the method that is fastest here",
        "docs/tuner.md",
        "a tenth faster",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let below = |heading: &str| {
        let mut lines = text.lines().skip_while(|line| *line != heading).skip(1);
        let names = lines.next().expect("names").split("  ");
        names
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        below("Dense:"),
        ["dense", "dense-rabenseifner", "dense-ring"]
    );
    let sparse = below("Sparse:");
    for name in ["spardl", "spardl with teams", "ok-topk", "clt-k"] {
        assert_eq!(
            sparse.iter().filter(|found| *found == name).count(),
            1,
            "{sparse:?}"
        );
    }
    // It needs more than a density to be compared.
    assert!(!text.contains("random-k"), "{text}");
}

#[test]
fn a_budget_of_time_is_met_by_the_density() {
    let text = printed(
        "tune --workers 2 --elements 3000 --no-cache --exchange-budget 10s --steps 30 --method spardl",
    );
    assert!(text.contains("next 0.02000"), "{text}");
    assert!(
        text.contains("looks are within 20 % of the budget"),
        "{text}"
    );
}

#[test]
fn the_bench_says_what_was_picked() {
    let output = run(
        "bench --workers 2 --elements 4000 --methods auto --iterations 2 --format json --no-cache",
    );
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && words.contains("is used"),
        "{words}"
    );
    let row: Value = serde_json::from_slice(&output.stdout).expect("one row");
    assert_eq!(row["method"], "auto");
    assert_eq!(row["agreed"], true);
}

#[test]
fn what_cannot_be_tuned_is_refused_on_one_line() {
    assert!(refused("tune --density 2").contains("density"));
    assert!(refused("tune --deadline 0").contains("seconds above zero"));
    assert!(refused("tune --value-types f99").contains("f99"));
    let part = refused("tune --workers 1 --elements 10 --no-cache --exchange-budget 0.5");
    assert!(part.contains("give a time like 20ms"), "{part}");
    assert!(
        refused("advise --model vgg16 --workers 4 --measured nowhere.json")
            .contains("spardl tune --local")
    );
}
