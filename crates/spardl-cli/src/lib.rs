//! The command `spardl`: train with, list, explain and bench methods of sparse all-reduce.
//!
//! Results go to stdout, messages to stderr. Exit codes: 0 success, 1 a run that failed, 2 a request that cannot be met, 130
//! a run that a signal stopped.
//!
//! It is a library so that the fuzz crate reaches what reads files and arguments: [`fuzz`].

#![forbid(unsafe_code)]

mod ablation;
mod advise;
mod bench;
mod docs;
mod doctor;
mod explain;
pub mod fuzz;
mod job;
mod launch;
mod list;
mod local_work;
mod memory;
mod method;
mod output;
mod progress;
mod screen;
mod shell;
mod simulate;
mod stamp;
mod sweep;
#[cfg(feature = "train")]
mod train;
mod tune;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use spardl_kernels::Level;

/// What a newcomer tries; a build without training has no `train`.
const START: &str = if cfg!(feature = "train") {
    "Start with: spardl train, spardl list, spardl explain spardl, spardl bench --methods dense,spardl"
} else {
    "Start with: spardl list, spardl explain spardl, spardl bench --methods dense,spardl"
};

/// Sparse all-reduce for data-parallel training: workers exchange the few largest entries of the gradient, agree bit for
/// bit on the result, and lose nothing.
#[derive(Debug, Parser)]
#[command(
    name = "spardl",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    args_override_self = true
)]
#[command(
    after_help = START
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the methods with their rounds, bytes and laws.
    List(list::Args),
    /// Explain a method: the idea, a worked example, cost, options, differences from the authors' code.
    Explain(explain::Args),
    /// Measure methods side by side, with workers as threads or as ranks of an MPI job.
    #[command(allow_negative_numbers = true)]
    Bench(Box<bench::Args>),
    /// Train a network on many workers; without options, see what spardl does in about a minute.
    #[cfg(feature = "train")]
    #[command(allow_negative_numbers = true)]
    Train(Box<train::Args>),
    /// Train the same network with several methods and put the results side by side.
    #[cfg(feature = "train")]
    #[command(allow_negative_numbers = true)]
    Compare(Box<train::CompareArgs>),
    /// Say how long a step takes on a network, with real machines under virtual time.
    Simulate(Box<simulate::Args>),
    /// Say which method wins on many networks, as advise would, as JSON and as a page of pictures.
    Sweep(sweep::Args),
    /// Say in plain words what to use on a network, and from which bandwidth on dense is faster.
    Advise(advise::Args),
    /// Measure network and machine, and say which method is fastest here: what --method auto uses.
    Tune(Box<tune::Args>),
    /// Say what spardl finds here: launcher, MPI, ranks, hosts, cores, links; and what looks wrong.
    Doctor(doctor::Args),
    /// Answer one question about a method with a table: `spardl ablation list`.
    Ablation(ablation::Args),
    /// Train a network on many workers (not in this build).
    #[cfg(not(feature = "train"))]
    #[command(disable_help_flag = true)]
    Train(shell::Anything),
    /// Train the same network with several methods (not in this build).
    #[cfg(not(feature = "train"))]
    #[command(disable_help_flag = true)]
    Compare(shell::Anything),
    /// Print what lets a shell complete spardl's options: `source <(spardl completions bash)`.
    Completions(shell::Completions),
    /// Print the manual page: `spardl man | man -l -`.
    Man,
    /// Print a page of docs/ that is made from the code.
    #[command(hide = true)]
    Docs(docs::Args),
}

/// Does what the arguments of this process ask for.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are answers; everything else is a complaint and fits on one line like all others.
        Err(answer) if is_answer(&answer) => answer.exit(),
        Err(error) => return output::exit_code(Err(output::bad_usage(&error))),
    };
    let result = level_can_be_had().and_then(|()| run(cli.command));
    output::exit_code(result)
}

/// The library runs with what the CPU has when `SPARDL_LEVEL` asks for something else; whoever set it wants to know.
fn level_can_be_had() -> anyhow::Result<()> {
    Level::asked().map(drop).map_err(output::bad_request)
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "train")]
        Command::Train(args) => train::run(&args),
        #[cfg(feature = "train")]
        Command::Compare(args) => train::run_compare(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ablation(args) => ablation::run(&args),
        #[cfg(not(feature = "train"))]
        Command::Train(_) | Command::Compare(_) => Err(shell::not_built_in()),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man => shell::man(&Cli::command()),
        Command::Docs(args) => docs::run(&args),
    }
}

fn is_answer(message: &clap::Error) -> bool {
    let no_arguments = clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    !message.use_stderr() || message.kind() == no_arguments
}
