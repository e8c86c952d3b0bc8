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
fn a_misspelt_value_gets_a_suggestion_too() {
    for (call, meant) in [
        ("ablation residual", "residuals"),
        ("ablation lst", "list"),
        ("bench --value-type bf61", "bf16"),
        ("bench --residual gobal-b", "global-b"),
        ("bench --set spardl.reidual=local", "residual"),
        ("simulate --topology fattree", "fat-tree"),
        ("advise --workers 8 --model resnet05", "resnet50"),
    ] {
        let words = refused(call);
        let offer = format!("did you mean '{meant}'?");
        assert!(words.contains(&offer), "{call}: {words}");
    }
    let words = refused("simulate --topology ring.csv");
    assert!(!words.contains("did you mean"), "{words}");
}

#[cfg(feature = "train")]
#[test]
fn a_misspelt_word_of_training_gets_a_suggestion() {
    for (call, meant) in [
        ("train --optimiser sdg", "sgd"),
        ("train --optimizer AdamV", "adam"),
        ("train --lr-schedule constent", "constant"),
        ("train --on-non-finite skipp", "skip"),
        ("train --residual golbal-a", "global-a"),
        ("compare --value-type bf15", "bf16"),
    ] {
        let words = refused(call);
        let offer = format!("did you mean '{meant}'?");
        assert!(words.contains(&offer), "{call}: {words}");
    }
}

#[test]
fn advice_takes_the_length_of_the_gradient_by_the_name_it_has_elsewhere() {
    let advice = printed("advise --workers 8 --elements 7000000");
    assert_eq!(advice, printed("advise --workers 8 --parameters 7000000"));
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
