//! Signals that ask a run to end: Ctrl-C, and what clusters send before they kill.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spardl_train::record::Summary;

use super::config::Config;
use crate::output::{AlreadyReported, arguments, say};

/// What shells say of a program that Ctrl-C ended.
const STOPPED: u8 = 130;

/// A flag that the first signal sets; the second one ends the process at once.
pub(super) fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let wanted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset, and then sets it.
        flag::register_conditional_shutdown(signal, STOPPED.into(), Arc::clone(&wanted))
            .and_then(|_| flag::register(signal, Arc::clone(&wanted)))
            .context("listening to signals")?;
    }
    Ok(wanted)
}

/// The end of a run: one that was stopped says how to go on, where it `prints`.
pub(super) fn concluded(summary: &Summary, config: &Config, prints: bool) -> anyhow::Result<()> {
    let Some(step) = summary.stopped else {
        return Ok(());
    };
    if prints {
        say(&words(step, config.checkpoint_dir.is_some(), &arguments()));
    }
    Err(AlreadyReported(STOPPED).into())
}

fn words(step: u64, saved: bool, arguments: &[String]) -> String {
    if !saved {
        let why = match arguments.first().map(String::as_str) {
            Some("compare") => "compare keeps no checkpoints; the runs that ended are shown",
            _ => "nothing to go on from: give --checkpoint-dir for that",
        };
        return format!("stopped after step {step}; {why}");
    }
    let mut call = arguments.join(" ");
    if !arguments.iter().any(|argument| argument == "--resume") {
        call += " --resume";
    }
    format!("stopped after step {step}; go on with: spardl {call}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_stopped_says_how_to_go_on() {
        let call =
            |words: &str| -> Vec<String> { words.split(' ').map(ToOwned::to_owned).collect() };
        let fresh = call("train --checkpoint-dir d");
        assert_eq!(
            words(7, true, &fresh),
            "stopped after step 7; go on with: spardl train --checkpoint-dir d --resume"
        );
        let resumed = call("train --checkpoint-dir d --resume");
        assert_eq!(
            words(9, true, &resumed),
            "stopped after step 9; go on with: spardl train --checkpoint-dir d --resume"
        );
        assert!(words(7, false, &fresh).contains("nothing to go on from"));
        let compared = words(7, false, &call("compare --methods dense,spardl"));
        assert!(compared.contains("keeps no checkpoints"), "{compared}");
    }
}
