//! What `spardl train` is asked: on the command line or, under the same names, in a TOML file.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Deserialize;
use toml::Table;

use super::config::{Config, LARGEST};
use super::{defaults, file};
use crate::launch::TransportChoice;
use crate::output::{bad_request, directory};

/// How to train. What is not given comes from the file of --config, then from the defaults.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    given: Given,
    /// Compress: without it (and without --method) gradients are reduced whole.
    #[arg(long, help_heading = "Reduction")]
    pub(crate) compression: bool,
    /// The method when --compression is given [default: spardl].
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Reduction",
        conflicts_with = "method"
    )]
    pub(crate) compressor: Option<String>,
    /// Go on from the newest checkpoint in --checkpoint-dir that is whole.
    #[arg(long, help_heading = "Run")]
    pub(crate) resume: bool,
    /// Write configuration, steps, epochs, TensorBoard events and a page of charts into DIR.
    #[arg(long, value_name = "DIR", help_heading = "Run", value_parser = directory())]
    pub(crate) out: Option<PathBuf>,
    /// A TOML file with options under the same names, all but --resume, --out, --transport; options given here win.
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub(crate) config: Option<PathBuf>,
    /// What moves the rounds. Under mpiexec or srun, auto is MPI.
    #[arg(long, value_name = "auto|threads|mpi", help_heading = "Run")]
    pub(crate) transport: Option<TransportChoice>,
}

/// The options of a [`Config`] that were given on the command line.
#[derive(Clone, Debug, Default)]
struct Given(Table);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut table = Table::try_from(Config::from_arg_matches(matches)?).map_err(|error| {
            let text = format!(
                "an option cannot be saved ({error}): numbers go up to {LARGEST}, paths must be text"
            );
            clap::Error::raw(ErrorKind::ValueValidation, text)
        })?;
        let is_given = |name: &str| {
            let source = matches.value_source(&name.replace('-', "_"));
            source == Some(ValueSource::CommandLine)
        };
        table.retain(|name, _| is_given(name));
        Ok(Self(table))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        Config::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Config::augment_args_for_update(command)
    }
}

impl TrainArgs {
    /// A network and a data set, and nothing else.
    pub(crate) fn of(dnn: &str, dataset: &str) -> Self {
        let given = [("dnn", dnn), ("dataset", dataset)];
        let given = given.map(|(name, value)| (name.to_owned(), value.into()));
        Self {
            given: Given(given.into_iter().collect()),
            ..Self::default()
        }
    }

    /// What moves the rounds.
    pub(crate) fn transport(&self) -> TransportChoice {
        self.transport.unwrap_or(TransportChoice::Auto)
    }

    /// Was this option given?
    pub(crate) fn gives(&self, name: &str) -> bool {
        self.given.0.contains_key(name)
    }

    /// Was nothing asked for?
    pub(crate) fn is_bare(&self) -> bool {
        let others = self.compression || self.resume || self.compressor.is_some();
        self.given.0.is_empty()
            && !others
            && self.out.is_none()
            && self.config.is_none()
            && self.transport.is_none()
    }

    /// The effective configuration: flags, then the file of --config, then what suits the network and its data.
    pub(crate) fn resolve(&self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(file::read).transpose()?;
        self.resolve_over(file)
    }

    /// [`TrainArgs::resolve`] with the options of a file, if there is one.
    pub(super) fn resolve_over(&self, file: Option<Table>) -> anyhow::Result<Config> {
        let mut table = Table::new();
        if let Some(options) = file {
            table = options;
            if self.gives("lr-schedule") {
                // A saved file has the numbers of its own schedule: they would hide those of the one asked for.
                for number in ["lr-steps", "lr-warmup-epochs", "lr-warmup-from"] {
                    table.remove(number);
                }
            }
        }
        table.extend(self.given.0.clone());
        let recipe = defaults::fill(&mut table)?;
        let mut config =
            Config::deserialize(table).map_err(|error| bad_request(file::one_line(&error)))?;
        if !self.gives("method") && (self.compression || self.compressor.is_some()) {
            config.method = match (&self.compressor, self.compression) {
                (Some(name), true) => name.clone(),
                (None, true) => "spardl".to_owned(),
                // As published: without --compression the compressor is not used.
                (_, false) => "dense".to_owned(),
            };
        }
        config.data_dir = config.data_dir.or_else(|| {
            let dir = std::env::var_os("SPARDL_DATA_DIR")?;
            (!dir.is_empty()).then(|| dir.into())
        });
        config.fill_schedule(&recipe);
        config.check_bounds()?;
        Ok(config)
    }

    /// What flags say, for tests.
    #[cfg(test)]
    pub(super) fn parse(flags: &[&str]) -> Self {
        let command = Self::augment_args(Command::new("train").no_binary_name(true));
        let matches = command.try_get_matches_from(flags).expect("valid flags");
        Self::from_arg_matches(&matches).expect("valid flags")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::train::config::LrSchedule;

    #[test]
    fn the_effective_configuration_can_be_given_again() {
        let args = TrainArgs::parse(&[
            "--dnn=vgg16",
            "--max-epochs=121",
            "--compression",
            "--lr=0.05",
            "--set=ok-topk.preset=vgg",
        ]);
        let config = args.resolve().expect("a valid one");
        assert_eq!(config.method, "spardl");
        assert_eq!(
            config.lr_steps.as_deref(),
            Some([81.0, 122.0, 155.0].as_slice())
        );
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let path = file.path().to_str().expect("text");
        fs::write(path, config.to_toml().expect("text")).expect("written");
        let again = TrainArgs::parse(&["--config", path]);
        assert_eq!(again.resolve().expect("its own file"), config);
        let louder = TrainArgs::parse(&["--config", path, "--lr", "0.5"]);
        assert_eq!(louder.resolve().expect("flags win").lr, 0.5);
        // A flag wins even when it asks for the default.
        let usual = TrainArgs::parse(&["--config", path, "--lr", "0.1"]);
        assert_eq!(usual.resolve().expect("flags win").lr, 0.1);
        fs::write(path, "lr = 0.1\nlearning-rat = 2").expect("written");
        let error = louder.resolve().expect_err("a typo").to_string();
        assert!(
            error.contains("learning-rat") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn a_schedule_that_is_asked_for_replaces_the_numbers_of_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let path = file.path().to_str().expect("text");
        let saved = Config {
            lr_schedule: LrSchedule::Spardl,
            lr_warmup_epochs: Some(10.0),
            lr_steps: Some(vec![81.0, 122.0, 155.0]),
            ..Config::default()
        };
        fs::write(path, saved.to_toml().expect("text")).expect("written");
        let with = |more: &[&str]| {
            let args = TrainArgs::parse(&[&["--config", path], more].concat());
            let config = args.resolve().expect("valid");
            (config.lr_warmup_epochs, config.lr_steps.unwrap_or_default())
        };
        assert_eq!(with(&[]), (Some(10.0), vec![81.0, 122.0, 155.0]));
        let exdyna = "--lr-schedule=exdyna";
        assert_eq!(with(&[exdyna]), (Some(5.0), vec![150.0, 250.0]));
        assert_eq!(with(&["--lr-schedule=constant"]), (Some(0.0), Vec::new()));
        assert_eq!(with(&[exdyna, "--lr-steps=7"]), (Some(5.0), vec![7.0]));
    }

    #[test]
    fn as_published_a_compressor_needs_compression() {
        let method = |flags: &[&str]| TrainArgs::parse(flags).resolve().expect("valid").method;
        assert_eq!(method(&[]), "dense");
        assert_eq!(method(&["--compressor", "gtopk"]), "dense");
        assert_eq!(method(&["--compression", "--compressor", "gtopk"]), "gtopk");
        assert_eq!(method(&["--compression"]), "spardl");
        assert_eq!(method(&["--method", "exdyna"]), "exdyna");
    }

    #[test]
    fn only_what_was_given_is_given() {
        assert!(TrainArgs::parse(&[]).is_bare());
        let args = TrainArgs::parse(&["--nworkers=4", "--nesterov"]);
        assert!(args.gives("workers") && args.gives("nesterov") && !args.gives("seed"));
        assert!(!args.is_bare() && args.resolve().expect("valid").nesterov);
    }
}
