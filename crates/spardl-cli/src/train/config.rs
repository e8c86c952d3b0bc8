//! The effective configuration of a run: defaults, a TOML file, flags, in this order.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use spardl_core::{Algorithm, ValueType};
use spardl_train::checkpoint::Checkpoints;
use spardl_train::data::{Level, Objective, Request};
use spardl_train::optimiser::{self, Rule};
use spardl_train::schedule::{Density, LearningRate};
use spardl_train::{OnNonFinite, Settings, buckets};

use super::args::{LARGEST, MOST_THREADS, MOST_WORKERS, TrainArgs};
use super::file;
use crate::job;
use crate::method::{self, MethodArgs};
use crate::output::bad_request;

/// Everything that decides the result of a run. Saved beside it, it can be given to --config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) dnn: String,
    pub(crate) dataset: String,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) workers: Option<u32>,
    pub(crate) batch_size: u32,
    pub(crate) max_epochs: u32,
    pub(crate) max_steps: Option<u64>,
    pub(crate) train_samples: Option<usize>,
    pub(crate) test_samples: Option<usize>,
    pub(crate) image_size: Option<usize>,
    pub(crate) length: Option<usize>,
    pub(crate) vocabulary: Option<usize>,
    pub(crate) tokens: String,
    pub(crate) seed: u64,
    pub(crate) method: String,
    pub(crate) density: String,
    pub(crate) warmup_epochs: f64,
    pub(crate) teams: u32,
    pub(crate) sag: String,
    pub(crate) residual: String,
    pub(crate) value_type: String,
    pub(crate) set: Vec<String>,
    pub(crate) bucket_elements: usize,
    pub(crate) lr: f64,
    pub(crate) lr_schedule: String,
    pub(crate) lr_warmup_epochs: Option<f64>,
    pub(crate) lr_steps: Option<Vec<f64>>,
    pub(crate) lr_factor: f64,
    pub(crate) momentum: f64,
    pub(crate) nesterov: bool,
    pub(crate) weight_decay: f64,
    pub(crate) optimiser: String,
    pub(crate) momentum_correction: bool,
    pub(crate) factor_masking: bool,
    pub(crate) clip: Option<f64>,
    pub(crate) eval_every: u32,
    pub(crate) verify: bool,
    pub(crate) on_non_finite: String,
    pub(crate) checkpoint_dir: Option<PathBuf>,
    pub(crate) checkpoint_every: Option<u64>,
    pub(crate) keep_last: usize,
    pub(crate) deadline: f64,
    pub(crate) device: String,
    pub(crate) threads_per_worker: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dnn: "lenet".to_owned(),
            dataset: "synthetic".to_owned(),
            data_dir: None,
            workers: None,
            batch_size: 16,
            max_epochs: 10,
            max_steps: None,
            train_samples: None,
            test_samples: None,
            image_size: None,
            length: None,
            vocabulary: None,
            tokens: "words".to_owned(),
            seed: 1,
            method: "dense".to_owned(),
            density: "0.01".to_owned(),
            warmup_epochs: 0.0,
            teams: 1,
            sag: "auto".to_owned(),
            residual: "global-a".to_owned(),
            value_type: "f32".to_owned(),
            set: Vec::new(),
            bucket_elements: buckets::DEFAULT_ELEMENTS,
            lr: 0.1,
            lr_schedule: "auto".to_owned(),
            lr_warmup_epochs: None,
            lr_steps: None,
            lr_factor: 0.1,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 1e-4,
            optimiser: "sgd".to_owned(),
            momentum_correction: false,
            factor_masking: false,
            clip: None,
            eval_every: 1,
            verify: false,
            on_non_finite: "stop".to_owned(),
            checkpoint_dir: None,
            checkpoint_every: None,
            keep_last: 2,
            deadline: 300.0,
            device: "flex".to_owned(),
            threads_per_worker: 1,
        }
    }
}

impl Config {
    /// What the flags and the file they name ask for.
    pub(crate) fn resolve(args: &TrainArgs) -> anyhow::Result<Self> {
        let mut table = toml::Table::try_from(Self::default()).context("the defaults")?;
        if let Some(path) = &args.config {
            let mut file = file::read(path)?;
            if args.lr_schedule.is_some() {
                // A saved file has the numbers of its own schedule: they would hide those of the one asked for.
                file.remove("lr-steps");
                file.remove("lr-warmup-epochs");
            }
            table.extend(file);
        }
        let flags = toml::Table::try_from(args);
        table.extend(
            flags.map_err(|error| {
                bad_request(format!(
                    "an option cannot be saved ({error}): numbers go up to {LARGEST}, paths must be text"
                ))
            })?,
        );
        let mut config =
            Self::deserialize(table).map_err(|error| bad_request(file::one_line(&error)))?;
        if args.method.is_none() && (args.compression || args.compressor.is_some()) {
            config.method = match (&args.compressor, args.compression) {
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
        config.fill_schedule()?;
        config.check_bounds()?;
        Ok(config)
    }

    /// Puts the numbers of the named schedule where none were given.
    fn fill_schedule(&mut self) -> anyhow::Result<()> {
        let cnn = ["vgg", "resnet", "alexnet"];
        let is_cnn = cnn.iter().any(|family| self.dnn.starts_with(family));
        if self.lr_schedule == "auto" {
            let published = is_cnn && self.max_epochs > 80;
            self.lr_schedule = if published { "spardl" } else { "constant" }.to_owned();
        }
        let (warmup, steps): (f64, &[f64]) = match self.lr_schedule.as_str() {
            "constant" => (0.0, &[]),
            "spardl" => (10.0, &[81.0, 122.0, 155.0]),
            "exdyna" => (5.0, &[150.0, 250.0]),
            "lstmimdb" => (0.0, &[10.0, 20.0, 30.0]),
            other => {
                return Err(bad_request(format!(
                    "--lr-schedule '{other}' is none of auto, constant, spardl, exdyna, lstmimdb"
                )));
            }
        };
        self.lr_warmup_epochs.get_or_insert(warmup);
        self.lr_steps.get_or_insert_with(|| steps.to_vec());
        Ok(())
    }

    /// As the file that --config takes.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("writing the configuration")
    }

    /// What has to be the same on all ranks.
    pub(crate) fn claims(&self, more: &[(String, String)]) -> anyhow::Result<job::Settings> {
        let mut table = toml::Table::try_from(self).context("the configuration")?;
        // The same data may lie elsewhere on another machine.
        table.remove("data-dir");
        let version = ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let pairs = table
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()));
        let more = more.iter().cloned();
        Ok([version].into_iter().chain(pairs).chain(more).collect())
    }

    /// The data to open; `masked` when the model fills gaps.
    pub(crate) fn request(&self) -> anyhow::Result<Request> {
        Ok(Request {
            dir: self.data_dir.clone(),
            // Which samples are chosen must not change with the seed of a run: seeds are compared on the same data.
            seed: 1,
            train_samples: self.train_samples,
            test_samples: self.test_samples,
            length: self.length,
            vocabulary: self.vocabulary,
            objective: match self.dnn.starts_with("bert") {
                true => Objective::Masked,
                false => Objective::Next,
            },
            level: one_of(
                "tokens",
                &self.tokens,
                &[("words", Level::Words), ("characters", Level::Characters)],
            )?,
            size: self.image_size,
        })
    }

    /// The method.
    pub(crate) fn algorithm(&self, name: &str) -> anyhow::Result<Box<dyn Algorithm>> {
        let args = MethodArgs {
            teams: (self.teams != 1).then_some(self.teams),
            sag: unless_default(&self.sag, "auto")?,
            residual: unless_default(&self.residual, "global-a")?,
            value_type: self.value_type()?,
            raw_indices: false,
            set: self.set.clone(),
        };
        args.build(name)
    }

    /// How values travel, unless the name of the method says it.
    pub(crate) fn value_type(&self) -> anyhow::Result<ValueType> {
        self.value_type.parse().map_err(bad_request)
    }

    /// The name of the method, with how its values travel.
    pub(crate) fn method_name(&self) -> anyhow::Result<String> {
        Ok(method::full_name(&self.method, self.value_type()?))
    }

    /// The loop's settings.
    pub(crate) fn settings(&self, resume: bool) -> anyhow::Result<Settings> {
        let positive = |name: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(value),
            false => Err(bad_request(format!("--{name} {value} is not above zero"))),
        };
        let from_zero = |name: &str, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(value),
            false => Err(bad_request(format!(
                "--{name} {value} is not a number from 0 up"
            ))),
        };
        if resume && self.checkpoint_dir.is_none() {
            return Err(bad_request(
                "--resume needs --checkpoint-dir: where to go on from",
            ));
        }
        self.check_counts()?;
        for step in self.lr_steps.iter().flatten() {
            from_zero("lr-steps", *step)?;
        }
        if self.factor_masking && !self.momentum_correction {
            return Err(bad_request("--factor-masking needs --momentum-correction"));
        }
        if self.factor_masking && self.residual == "none" {
            return Err(bad_request(
                "--factor-masking needs a residual to tell what was delivered: leave out --residual none",
            ));
        }
        Ok(Settings {
            batch_size: self.batch_size as usize,
            epochs: self.max_epochs,
            max_steps: self.max_steps,
            seed: self.seed,
            learning_rate: LearningRate {
                base: positive("lr", self.lr)?,
                warmup_epochs: from_zero("lr-warmup-epochs", self.lr_warmup_epochs.unwrap_or(0.0))?,
                steps: self.lr_steps.clone().unwrap_or_default(),
                factor: positive("lr-factor", self.lr_factor)?,
            },
            density: Density::parse(&self.density).map_err(bad_request)?,
            dense_epochs: from_zero("warmup-epochs", self.warmup_epochs)?,
            optimiser: self.optimiser()?,
            bucket_elements: self.bucket_elements,
            eval_every: self.eval_every,
            verify: self.verify,
            on_non_finite: one_of(
                "on-non-finite",
                &self.on_non_finite,
                &[("stop", OnNonFinite::Stop), ("skip", OnNonFinite::Skip)],
            )?,
            timeout: Duration::from_secs_f64(positive("deadline", self.deadline)?.min(1e9)),
            checkpoints: self.checkpoints(resume)?,
        })
    }

    /// What is counted is there at least once.
    fn check_counts(&self) -> anyhow::Result<()> {
        let counts = [
            ("max-epochs", u64::from(self.max_epochs)),
            ("max-steps", self.max_steps.unwrap_or(1)),
            ("workers", u64::from(self.workers.unwrap_or(1))),
            ("batch-size", u64::from(self.batch_size)),
            ("bucket-elements", self.bucket_elements as u64),
            ("checkpoint-every", self.checkpoint_every.unwrap_or(1)),
            ("keep-last", self.keep_last as u64),
            ("threads-per-worker", u64::from(self.threads_per_worker)),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(bad_request(format!("--{name} 0: at least 1 is needed"))),
            None => Ok(()),
        }
    }

    /// A file may ask for no more than flags. Only what was asked for is looked at: an MPI job may have more ranks.
    fn check_bounds(&self) -> anyhow::Result<()> {
        let bounds = [
            ("workers", self.workers.unwrap_or(1), MOST_WORKERS),
            ("threads-per-worker", self.threads_per_worker, MOST_THREADS),
        ];
        match bounds.iter().find(|(_, count, most)| count > most) {
            Some((name, count, most)) => Err(bad_request(format!(
                "--{name} {count}: at most {most} are possible"
            ))),
            None => Ok(()),
        }
    }

    fn checkpoints(&self, resume: bool) -> anyhow::Result<Option<Checkpoints>> {
        let Some(dir) = &self.checkpoint_dir else {
            return Ok(None);
        };
        Ok(Some(Checkpoints {
            dir: dir.clone(),
            every: self.checkpoint_every,
            keep: self.keep_last,
            resume,
            config: self.to_toml()?,
        }))
    }

    fn optimiser(&self) -> anyhow::Result<optimiser::Options> {
        // A configuration has what was asked for to all digits; what counts is the f32 that the optimiser makes of it.
        let in_range = |name: &str, value: f64| match value as f32 {
            single if (0.0..1.0).contains(&single) => Ok(single),
            _ => Err(bad_request(format!(
                "--{name} {value} is not from 0 to below 1"
            ))),
        };
        let rules = [("sgd", Rule::Sgd), ("ok-topk", Rule::OkTopk)];
        let rule = one_of("optimiser", &self.optimiser, &rules)?;
        let momentum = in_range("momentum", self.momentum)?;
        if self.nesterov && momentum == 0.0 {
            return Err(bad_request("--nesterov needs a --momentum above zero"));
        }
        if self.momentum_correction && momentum == 0.0 {
            return Err(bad_request(
                "--momentum-correction needs a --momentum above zero",
            ));
        }
        if rule == Rule::OkTopk && momentum != 0.0 && !self.momentum_correction {
            return Err(bad_request(
                "--optimiser ok-topk has no momentum after the reduction: set --momentum 0 or --momentum-correction",
            ));
        }
        let clip = self.clip.map(|clip| clip as f32);
        if clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.0)) {
            return Err(bad_request("--clip must be above zero"));
        }
        Ok(optimiser::Options {
            rule,
            momentum,
            nesterov: self.nesterov,
            weight_decay: in_range("weight-decay", self.weight_decay)?,
            momentum_correction: self.momentum_correction,
            factor_masking: self.factor_masking,
            clip,
        })
    }
}

/// The value of a name, or a complaint that lists the names.
fn one_of<V: Copy>(option: &str, name: &str, known: &[(&str, V)]) -> anyhow::Result<V> {
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        bad_request(format!(
            "--{option} '{name}' is none of {}",
            names.join(", ")
        ))
    })
}

/// The value of a word, unless it is the default, which `--set` may replace.
fn unless_default<T: std::str::FromStr<Err = String>>(
    word: &str,
    default: &str,
) -> anyhow::Result<Option<T>> {
    let set = (word != default).then(|| word.parse());
    set.transpose().map_err(bad_request)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_effective_configuration_can_be_given_again() {
        let args = TrainArgs {
            dnn: Some("vgg16".to_owned()),
            max_epochs: Some(121),
            compression: true,
            lr: Some(0.05),
            set: vec!["ok-topk.preset=vgg".to_owned()],
            ..TrainArgs::default()
        };
        let config = Config::resolve(&args).expect("a valid one");
        assert_eq!(config.method, "spardl");
        assert_eq!(
            config.lr_steps.as_deref(),
            Some([81.0, 122.0, 155.0].as_slice())
        );
        let dir = std::env::temp_dir().join(format!("spardl-config-{}", std::process::id()));
        fs::write(&dir, config.to_toml().expect("text")).expect("a temporary file");
        let again = TrainArgs {
            config: Some(dir.clone()),
            ..TrainArgs::default()
        };
        assert_eq!(Config::resolve(&again).expect("its own file"), config);
        let louder = TrainArgs {
            lr: Some(0.5),
            ..again
        };
        assert_eq!(Config::resolve(&louder).expect("flags win").lr, 0.5);
        fs::write(&dir, "lr = 0.1\nlearning-rat = 2").expect("a temporary file");
        let error = Config::resolve(&louder).expect_err("a typo").to_string();
        assert!(
            error.contains("learning-rat") && !error.contains('\n'),
            "{error}"
        );
        fs::remove_file(dir).expect("it is there");
    }

    #[test]
    fn a_schedule_that_is_asked_for_replaces_the_numbers_of_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let saved = Config {
            lr_schedule: "spardl".to_owned(),
            lr_warmup_epochs: Some(10.0),
            lr_steps: Some(vec![81.0, 122.0, 155.0]),
            ..Config::default()
        };
        fs::write(file.path(), saved.to_toml().expect("text")).expect("written");
        let with = |lr_schedule: Option<&str>, lr_steps: Option<Vec<f64>>| {
            let args = TrainArgs {
                config: Some(file.path().to_owned()),
                lr_schedule: lr_schedule.map(str::to_owned),
                lr_steps,
                ..TrainArgs::default()
            };
            let config = Config::resolve(&args).expect("valid");
            (config.lr_warmup_epochs, config.lr_steps.unwrap_or_default())
        };
        assert_eq!(with(None, None), (Some(10.0), vec![81.0, 122.0, 155.0]));
        assert_eq!(with(Some("exdyna"), None), (Some(5.0), vec![150.0, 250.0]));
        assert_eq!(with(Some("constant"), None), (Some(0.0), Vec::new()));
        let own = Some(vec![7.0]);
        assert_eq!(with(Some("exdyna"), own), (Some(5.0), vec![7.0]));
    }

    #[test]
    fn numbers_are_saved_as_they_were_given() {
        let config = Config::default();
        let text = config.to_toml().expect("text");
        for line in ["momentum = 0.9", "weight-decay = 0.0001"] {
            assert!(text.lines().any(|saved| saved == line), "{text}");
        }
        let table = toml::Table::try_from(&config).expect("a table");
        assert_eq!(table["momentum"].as_float(), Some(0.9));
        let options = config.optimiser().expect("valid");
        assert_eq!((options.momentum, options.weight_decay), (0.9, 1e-4));
    }

    #[test]
    fn as_published_a_compressor_needs_compression() {
        let resolve = |compression, compressor: Option<&str>, method: Option<&str>| {
            let args = TrainArgs {
                compression,
                compressor: compressor.map(str::to_owned),
                method: method.map(str::to_owned),
                ..TrainArgs::default()
            };
            Config::resolve(&args).expect("valid").method
        };
        assert_eq!(resolve(false, None, None), "dense");
        assert_eq!(resolve(false, Some("gtopk"), None), "dense");
        assert_eq!(resolve(true, Some("gtopk"), None), "gtopk");
        assert_eq!(resolve(true, None, None), "spardl");
        assert_eq!(resolve(false, None, Some("exdyna")), "exdyna");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused_in_one_line() {
        let refuse = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.settings(false).expect_err("refused").to_string()
        };
        assert!(refuse(|c| c.lr = -1.0).contains("--lr"));
        assert!(refuse(|c| c.momentum = 1.5).contains("--momentum"));
        assert!(refuse(|c| c.density = "2".to_owned()).contains("density"));
        assert!(refuse(|c| c.on_non_finite = "hope".to_owned()).contains("stop, skip"));
        assert!(refuse(|c| c.optimiser = "ok-topk".to_owned()).contains("--momentum 0"));
        assert!(refuse(|c| c.clip = Some(0.0)).contains("--clip"));
        assert!(refuse(|c| c.clip = Some(1e-60)).contains("--clip"));
        assert!(refuse(|c| c.momentum = 0.999_999_999_999).contains("--momentum"));
        assert!(refuse(|c| c.checkpoint_every = Some(0)).contains("--checkpoint-every 0"));
        assert!(refuse(|c| c.bucket_elements = 0).contains("--bucket-elements 0"));
        let from_zero = "is not a number from 0 up";
        assert!(refuse(|c| c.lr_steps = Some(vec![f64::NAN])).contains(from_zero));
        assert!(refuse(|c| c.warmup_epochs = f64::INFINITY).contains(from_zero));
        let error = Config::default().settings(true).expect_err("no directory");
        assert!(error.to_string().contains("--checkpoint-dir"));
    }
}
