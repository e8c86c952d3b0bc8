//! What the command line says to a person at a shell: suggestions, completions, a manual page.

mod command;

use command::{printed, refused};

#[test]
fn a_misspelt_option_or_command_gets_a_suggestion() {
    let words = refused("bench --densty 0.1");
    assert!(words.contains("did you mean '--density'?"), "{words}");
    let words = refused("bnch");
    assert!(words.contains("did you mean 'bench'?"), "{words}");
    let words = refused("bench --zzzz");
    assert!(!words.contains("did you mean"), "{words}");
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&format!("completions {shell}"));
        for word in ["bench", "doctor", "iterations"] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
    }
    assert!(refused("completions tcsh").contains("bash"));
}

#[test]
fn the_manual_page_has_every_command_that_help_shows() {
    let page = printed("man");
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
        for more in ["", "--dnn lenet --help"] {
            let words = refused(&format!("{command} {more}"));
            assert!(words.contains("training is not in this build"), "{words}");
        }
    }
}
