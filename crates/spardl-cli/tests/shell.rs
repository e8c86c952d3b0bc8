//! What the command line says to a person at a shell: suggestions, completions, a manual page.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(arguments).output().expect("the binary runs")
}

fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let words = String::from_utf8(output.stderr).expect("text");
    assert_eq!(words.lines().count(), 1, "{words}");
    words
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_misspelt_option_or_command_gets_a_suggestion() {
    let words = refused(&["bench", "--densty", "0.1"]);
    assert!(words.contains("did you mean '--density'?"), "{words}");
    let words = refused(&["bnch"]);
    assert!(words.contains("did you mean 'bench'?"), "{words}");
    let words = refused(&["bench", "--zzzz"]);
    assert!(!words.contains("did you mean"), "{words}");
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["completions", shell]);
        for word in ["bench", "doctor", "iterations"] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
    }
    assert!(refused(&["completions", "tcsh"]).contains("bash"));
}

#[test]
fn the_manual_page_has_every_command_that_help_shows() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH spardl 1"), "{page}");
    for command in ["LIST", "EXPLAIN", "BENCH", "DOCTOR", "ABLATION"] {
        assert!(
            page.contains(&format!(".SH \"SPARDL {command}\"")),
            "no {command}"
        );
    }
    assert!(!page.contains("SPARDL DOCS"), "hidden commands stay hidden");
}

#[cfg(not(feature = "train"))]
#[test]
fn a_build_without_training_says_so() {
    for command in ["train", "compare"] {
        for arguments in [&[command][..], &[command, "--dnn", "lenet", "--help"]] {
            let words = refused(arguments);
            assert!(words.contains("training is not in this build"), "{words}");
        }
    }
}
