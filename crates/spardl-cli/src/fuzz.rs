//! What reads files and arguments, as functions of bytes, for the fuzz crate: bytes are taken, or refused in words; a panic is
//! a broken law.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{CommandFactory, FromArgMatches};

use crate::bench::{plan, recorded};
use crate::output;
use crate::{Cli, Command, is_answer};

/// Why bytes are refused.
pub type Refused = String;

/// Something that reads bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it reads.
    pub name: &'static str,
    /// Reads it.
    pub run: fn(&[u8]) -> Result<(), Refused>,
    /// Valid bytes, to be damaged.
    pub examples: fn() -> Vec<Vec<u8>>,
}

/// All of them. A build without training has no configuration of a run.
pub const TARGETS: &[Target] = &[
    Target {
        name: "command line",
        run: command_line,
        examples: command_lines,
    },
    Target {
        name: "npy",
        run: recorded::any_npy,
        examples: recorded::npy_examples,
    },
    Target {
        name: "safetensors",
        run: recorded::any_safetensors,
        examples: recorded::safetensors_examples,
    },
    #[cfg(feature = "train")]
    Target {
        name: "configuration",
        run: crate::train::fuzz::configuration,
        examples: crate::train::fuzz::examples,
    },
];

/// Bytes as the arguments of a call, each ended by a zero: parsed, and checked as far as that touches no files. A complaint is
/// about the request, never about a run.
pub fn command_line(data: &[u8]) -> Result<(), Refused> {
    let arguments = data.split(|byte| *byte == 0);
    let arguments = arguments.map(|argument| OsString::from_vec(argument.to_vec()));
    let result = match parse(std::iter::once("spardl".into()).chain(arguments)) {
        Ok(cli) => check(&cli.command),
        Err(answer) if is_answer(&answer) => Ok(()),
        Err(error) => Err(output::bad_usage(&error)),
    };
    result.map_err(|error| {
        assert_eq!(output::code(&error), 2, "{error:#}");
        error.to_string()
    })
}

thread_local! {
    /// The options of all commands: making them anew takes longer than reading a line.
    static OPTIONS: RefCell<clap::Command> = RefCell::new(Cli::command());
}

/// `Cli::try_parse_from`, with options that are there already.
fn parse(arguments: impl Iterator<Item = OsString>) -> clap::error::Result<Cli> {
    OPTIONS.with_borrow_mut(|options| {
        let mut matches = options.try_get_matches_from_mut(arguments)?;
        Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(options))
    })
}

fn check(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Bench(args) => plan::check(args),
        #[cfg(feature = "train")]
        Command::Train(args) => crate::train::fuzz::check(args),
        _ => Ok(()),
    }
}

/// A call with every option of every command, and some with values.
fn command_lines() -> Vec<Vec<u8>> {
    let mut all: Vec<String> = Vec::new();
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let mut together = vec![name.to_owned()];
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            all.push(format!("{name}\0--{option}"));
            all.push(format!("{name}\0--{option}\x001"));
            together.push(format!("--{option}=1"));
        }
        all.push(together.join("\0"));
    }
    let typed = [
        "bench --workers 2,3 --elements 10,1000 --density 0.5,1e-3 --methods dense,spardl-bf16 --deadline 1e300",
        "bench --methods all --set ok-topk.preset=vgg --correlation 0.5 --distribution sparse --local --format csv",
        "train --dnn mlp --workers 2 --lr inf --momentum 0.9 --density 0:1,3:0.01 --lr-steps 1,2.5 --method spardl-q4",
        "train --compression --compressor gtopk --density ramp:0.001 --sparse-momentum 0.5 --optimiser adamw --beta2 1",
        "compare --methods dense,spardl --seeds 1,2,3 --max-steps 9 --sag b --teams 2 --residual global-b",
        "simulate --workers 8 --topology fat-tree",
        "advise --workers 8",
        "explain spardl",
    ];
    all.extend(typed.map(|line| line.replace(' ', "\0")));
    all.into_iter().map(String::into_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_read_and_enough_of_them_taken() {
        for target in TARGETS {
            let examples = (target.examples)();
            let taken = examples.iter().filter(|bytes| (target.run)(bytes).is_ok());
            assert!(taken.count() * 8 > examples.len(), "{}", target.name);
        }
    }

    #[test]
    fn arguments_that_are_no_text_are_refused_in_words() {
        let refused = command_line(b"bench\0--methods\0\xff\xfe").expect_err("not text");
        assert!(refused.contains("invalid UTF-8"), "{refused}");
    }
}
