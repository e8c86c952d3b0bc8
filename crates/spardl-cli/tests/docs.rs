//! The pages of docs/ say what the code says.

use std::path::PathBuf;
use std::process::Command;

fn page(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, text)
}

fn spardl(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spardl"))
        .args(args)
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_page_of_methods_is_what_the_registry_says() {
    let (_, committed) = page("algorithms.md");
    assert!(
        committed == spardl(&["docs", "algorithms"]),
        "docs/algorithms.md is stale; refresh it with\n  \
         cargo run --release -p spardl-cli -- docs algorithms > docs/algorithms.md"
    );
}

#[test]
fn the_page_of_ablations_has_every_ablation_with_its_output() {
    let (_, committed) = page("ablations.md");
    for line in spardl(&["ablation", "list"]).lines() {
        let name = line.split_whitespace().next().expect("a name");
        let command = format!("```text\n$ spardl ablation {name}\n# ");
        assert!(committed.contains(&command), "no output of {name}");
    }
}

#[test]
fn the_picture_of_step_times_shows_the_tables_of_the_page() {
    let (path, _) = page("network.md");
    let (_, committed) = page("step-time.svg");
    assert!(
        committed == spardl(&["docs", "step-time", &path.to_string_lossy()]),
        "docs/step-time.svg is stale; refresh it with\n  \
         cargo run --release -p spardl-cli -- docs step-time docs/network.md > docs/step-time.svg"
    );
}

#[test]
fn the_picture_of_accuracies_shows_the_tables_of_the_page() {
    let (path, _) = page("experiments.md");
    let (_, committed) = page("accuracy-bytes.svg");
    assert!(
        committed == spardl(&["docs", "accuracy-bytes", &path.to_string_lossy()]),
        "docs/accuracy-bytes.svg is stale; refresh it with\n  \
         cargo run --release -p spardl-cli -- docs accuracy-bytes docs/experiments.md > docs/accuracy-bytes.svg"
    );
}

/// Nothing that was published hands momentum over, which is what `--sparse-momentum` does when nobody asks.
#[test]
fn a_published_configuration_says_what_momentum_steps_have_that_hold_mass_back() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let files = std::fs::read_dir(examples).expect("the examples");
    let paths = files.map(|file| file.expect("a file").path());
    let scripts: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "sh"))
        .collect();
    assert!(scripts.len() >= 12, "{scripts:?}");
    for path in scripts {
        let text = std::fs::read_to_string(&path).expect("a script");
        let (_, command) = text.split_once("set -euo pipefail").expect("a command");
        let words: Vec<&str> = command.split([' ', '(', ')', '\n']).collect();
        let after = |option| {
            let at = words.iter().position(|word| *word == option)?;
            words.get(at + 1).copied()
        };
        let shown = path.display();
        let momentum = after("--momentum").unwrap_or_else(|| panic!("{shown}: no --momentum"));
        if momentum != "0" {
            assert_eq!(after("--sparse-momentum"), Some(momentum), "{shown}");
        }
    }
}

/// Half a minute: `cargo test -p spardl-cli --test docs -- --ignored`, as `scripts/test` does.
#[test]
#[ignore = "runs all ablations at full size"]
fn the_page_of_ablations_has_the_numbers_of_its_commands() {
    let (path, committed) = page("ablations.md");
    let made = spardl(&["docs", "ablations", &path.to_string_lossy()]);
    assert!(
        committed == made,
        "docs/ablations.md is stale; refresh it with\n  \
         cargo run --release -p spardl-cli -- docs ablations docs/ablations.md > /tmp/page && mv /tmp/page docs/ablations.md\n\
         and see whether its sentences still hold"
    );
}
