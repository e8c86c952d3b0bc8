//! Tells the command which commit it was built from; numbers are stamped with it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*"]) else {
        return;
    };
    println!("cargo::rustc-env=SPARDL_COMMIT={commit}");
    // A commit or a checkout writes here.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What git answers; nothing outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
