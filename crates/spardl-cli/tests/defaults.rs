//! What `spardl train` does when it is told next to nothing: it learns.
#![cfg(feature = "train")]

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Trains and gives the summary and what was said.
fn train(flags: &[&str]) -> (Value, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_spardl"))
        .args(["train", "--out"])
        .arg(dir.path())
        .args(["--eval-every", "0", "--test-samples", "500"])
        .args(flags)
        .env_remove("SPARDL_DATA_DIR")
        .output()
        .expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{flags:?}: {said}");
    let text = fs::read_to_string(dir.path().join("summary.json")).expect("a summary");
    (serde_json::from_str(&text).expect("JSON"), said)
}

/// How many times the accuracy of guessing the last test had.
fn against_guessing(summary: &Value, classes: usize) -> f64 {
    let epochs = summary["epochs"].as_array();
    let last = epochs.and_then(|epochs| epochs.last()).expect("an epoch");
    last["test_accuracy"].as_f64().expect("tested") * classes as f64
}

/// A small network has at most so many parameters: the others take minutes.
#[cfg(feature = "networks")]
const SMALL: u32 = 500_000;

#[cfg(feature = "networks")]
#[test]
fn every_small_network_learns_with_what_it_has_by_default() {
    use spardl_burn::layout;
    use spardl_train::data::{Objective, Request, open};

    let mut seen = Vec::new();
    for model in spardl_nets::MODELS {
        let recipe = model.recipes[0];
        let request = Request {
            objective: match model.name.starts_with("bert") {
                true => Objective::Masked,
                false => Objective::Next,
            },
            length: recipe.length,
            vocabulary: recipe.vocabulary,
            size: recipe.image_size,
            ..Request::default()
        };
        let task = open(recipe.dataset, &request).expect("needs no files").task;
        let parameters = layout(model.name, &task).expect("it fits").len();
        if parameters > SMALL {
            continue;
        }
        seen.push(model.name);
        // Long enough to see that it learns; a whole run is longer.
        let steps = if parameters > SMALL / 2 { "40" } else { "120" };
        let (summary, said) = train(&["--dnn", model.name, "--max-steps", steps]);
        let accuracy = against_guessing(&summary, task.classes());
        // They reach 1.8 times that of guessing with two classes, where 2 is the most, and 4.8 to 7.9 times with more.
        let least = if task.classes() == 2 { 1.5 } else { 3.0 };
        assert!(accuracy > least, "{}: {accuracy}; {said}", model.name);
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn the_second_command_anyone_types_learns_too() {
    for flags in [
        &["--workers", "2", "--compression", "--max-epochs", "2"][..],
        &["--method", "spardl", "--max-epochs", "2"],
        #[cfg(feature = "networks")]
        &["--dnn", "lenet", "--method", "spardl", "--max-epochs", "2"],
    ] {
        let (summary, said) = train(flags);
        let accuracy = against_guessing(&summary, 10);
        assert!(accuracy > 7.0, "{flags:?}: {accuracy}; {said}");
        assert!(!said.contains("nothing was learnt"), "{said}");
    }
}

#[test]
fn a_network_that_learns_nothing_is_said_to_when_it_had_time() {
    let few = "--lr 1e-9 --workers 2 --batch-size 8 --max-epochs 1 --train-samples";
    for (samples, steps, is_said) in [("640", 40, false), ("3200", 200, true)] {
        let flags: Vec<&str> = few.split(' ').chain([samples]).collect();
        let (summary, said) = train(&flags);
        assert_eq!(summary["epochs"][0]["step"], steps);
        let warned = said.contains("nothing was learnt in this epoch");
        assert_eq!(warned, is_said, "{steps} steps: {said}");
    }
}

#[cfg(not(feature = "networks"))]
#[test]
fn a_network_that_is_not_in_this_build_is_refused_with_the_feature_that_has_it() {
    for flags in [&["--dnn", "resnet20"][..], &["--dataset", "synthetic-text"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_spardl"))
            .arg("train")
            .args(flags)
            .output()
            .expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("not in this build"), "{said}");
        assert!(said.contains("--features networks"), "{said}");
    }
}
