//! Where results and complaints go.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::screen::{fitted, stderr_width, stdout_width};

/// A request that cannot be met as it stands, told apart from a run that failed.
#[derive(Debug)]
pub(crate) struct BadRequest(pub(crate) String);

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRequest {}

/// An error that the user was told already, or is told by another rank; only the exit code is left.
#[derive(Debug)]
pub(crate) struct AlreadyReported(pub(crate) u8);

impl std::fmt::Display for AlreadyReported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error that was said before")
    }
}

impl std::error::Error for AlreadyReported {}

/// An error that says what was asked wrongly.
pub(crate) fn bad_request(message: impl ToString) -> anyhow::Error {
    BadRequest(message.to_string()).into()
}

/// The first sentence of the argument parser's complaint, what may have been meant, and where to read on.
pub(crate) fn bad_usage(error: &clap::Error) -> anyhow::Error {
    let complaint = error.to_string();
    let first = complaint.trim_start_matches("error: ").lines();
    let sentence: Vec<&str> = first
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let sentence = sentence.join(" ");
    bad_request(match suggestion(error) {
        Some(meant) => format!("{sentence}; did you mean '{meant}'? (see --help)"),
        None => format!("{sentence} (see --help)"),
    })
}

/// What the argument parser thinks was meant: the nearest of what it knows.
fn suggestion(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let kinds = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(meant) => Some(meant.clone()),
        // The nearest comes last.
        ContextValue::Strings(meant) => meant.last().cloned(),
        _ => None,
    })
}

/// A path that is a directory or can become one.
pub(crate) fn directory() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.exists() && !path.is_dir() {
        true => Err("it is a file: name a directory"),
        false => Ok(path),
    })
}

/// The arguments of this call, for headers; what is not UTF-8 has replacement characters.
pub(crate) fn arguments() -> Vec<String> {
    let arguments = std::env::args_os().skip(1);
    arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

/// Writes data to stdout at once.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("writing to stdout")
}

/// Writes a text for people to stdout, in lines that fit a terminal.
pub(crate) fn tell(text: &str) -> anyhow::Result<()> {
    print(&fitted(text, stdout_width()))
}

/// Writes a message, one line, to stderr.
#[cfg(feature = "train")]
pub(crate) fn say(line: &str) {
    write_line(line);
}

/// Writes a warning, one line, to stderr.
pub(crate) fn warn(line: &str) {
    write_line(&format!("spardl: {line}"));
}

/// One write, end of line included: stderr has no buffer, and the lines of ranks must not mix. On a terminal a line that is too
/// long goes on in the next one.
fn write_line(line: &str) {
    let line = fitted(line, stderr_width());
    // Nothing can be done when stderr is gone.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Tells the user what went wrong and picks the exit code.
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // The reader of our output (head, less) has seen enough: not an error.
    if error.chain().any(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(complain(&error, ""))
}

/// Tells the user what went wrong, on one line behind `place`, unless that was done; returns the exit code.
pub(crate) fn complain(error: &anyhow::Error, place: &str) -> u8 {
    if let Some(AlreadyReported(code)) = error.downcast_ref() {
        return *code;
    }
    let line = format!("{error:#}").replace('\n', " ");
    write_line(&format!("spardl: {place}{line}"));
    code(error)
}

/// The exit code of an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(AlreadyReported(code)) => *code,
        None if error.downcast_ref::<BadRequest>().is_some() => 2,
        None => 1,
    }
}
