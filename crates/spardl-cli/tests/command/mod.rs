//! The command as its users call it.

use std::process::{Command, Output};

/// A call with these arguments.
pub(crate) fn spardl(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(arguments.split_whitespace());
    command
}

pub(crate) fn run(arguments: &str) -> Output {
    spardl(arguments).output().expect("the binary runs")
}

/// The output of a call that must succeed and say nothing on stderr.
pub(crate) fn printed(arguments: &str) -> String {
    let output = run(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {complaint}");
    assert_eq!(complaint, "", "{arguments}");
    String::from_utf8(output.stdout).expect("text")
}

/// The one line of complaint of a request that must be refused.
pub(crate) fn refused(arguments: &str) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments}");
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert_eq!(complaint.lines().count(), 1, "{arguments}: {complaint}");
    complaint
}
