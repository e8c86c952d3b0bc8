//! From a configuration to what the library takes, with complaints that name the option.

use std::time::Duration;

use anyhow::Context;
use spardl::AUTO;
use spardl_algos::{Residual, Sag};
use spardl_core::Algorithm;
use spardl_nets::Recipe;
use spardl_train::Settings;
use spardl_train::checkpoint::Checkpoints;
use spardl_train::data::{Kept, Objective, Request};
use spardl_train::optimiser::{self, AdamOptions, Rule, SparseMomentum};
use spardl_train::schedule::LearningRate;

use super::config::{Config, LrSchedule, MOST_THREADS, MOST_WORKERS, NonFinite, WORKERS};
use crate::job;
use crate::launch;
use crate::method::{self, MethodArgs};
use crate::output::bad_request;

/// Where the published warm-up of ExDyna's CNNs begins, whatever it rises to.
const EXDYNA_FROM: f64 = 0.1;

impl Config {
    /// Puts the numbers of the named schedule where none were given; those of the recipe when none is named.
    pub(super) fn fill_schedule(&mut self, recipe: &Recipe) {
        let cnn = ["vgg", "resnet", "alexnet"];
        let is_cnn = cnn.iter().any(|family| self.dnn.starts_with(family));
        if self.lr_schedule == LrSchedule::Auto && is_cnn && self.max_epochs > 80 {
            self.lr_schedule = LrSchedule::Spardl;
        }
        let epochs = f64::from(self.max_epochs);
        let (warmup, steps) = match self.lr_schedule {
            LrSchedule::Auto => {
                let drops = recipe.lr_drops.iter().map(|part| part * epochs);
                (0.0, drops.collect())
            }
            LrSchedule::Constant => (0.0, vec![]),
            LrSchedule::Spardl => (10.0, vec![81.0, 122.0, 155.0]),
            LrSchedule::Exdyna => {
                self.lr_warmup_from.get_or_insert(EXDYNA_FROM);
                (5.0, vec![150.0, 250.0])
            }
            LrSchedule::Lstmimdb => (0.0, vec![10.0, 20.0, 30.0]),
        };
        self.lr_warmup_epochs.get_or_insert(warmup);
        self.lr_steps.get_or_insert(steps);
    }

    /// A file may ask for no more than flags. Only what was asked for is looked at: an MPI job may have more ranks.
    pub(super) fn check_bounds(&self) -> anyhow::Result<()> {
        let bounds = [
            ("workers", self.workers.unwrap_or(1), MOST_WORKERS),
            ("threads-per-worker", self.threads_per_worker, MOST_THREADS),
            ("threads", self.threads, MOST_THREADS),
        ];
        match bounds.iter().find(|(_, count, most)| count > most) {
            Some((name, count, most)) => Err(bad_request(format!(
                "--{name} {count}: at most {most} are possible"
            ))),
            None => Ok(()),
        }
    }

    /// How long workers wait for each other.
    pub(crate) fn patience(&self) -> anyhow::Result<Duration> {
        launch::deadline(self.deadline)
    }

    /// What has to be the same on all ranks.
    pub(crate) fn claims(&self, more: &[(String, String)]) -> anyhow::Result<job::Settings> {
        let mut table = toml::Table::try_from(self).context("the configuration")?;
        // The same data may lie elsewhere on another machine.
        table.remove("data-dir");
        let pairs = table
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()));
        let more = more.iter().cloned();
        Ok(pairs.chain(more).collect())
    }

    /// The data to open; `masked` when the model fills gaps.
    pub(crate) fn request(&self) -> Request {
        Request {
            dir: self.data_dir.clone(),
            // Which samples are chosen must not change with the seed of a run: seeds are compared on the same data.
            seed: 1,
            train_samples: self.train_samples,
            test_samples: self.test_samples,
            length: self.length,
            vocabulary: self.vocabulary,
            kept: match self.dnn == "lstmimdb" {
                true => Kept::First,
                false => Kept::Last,
            },
            objective: match self.dnn.starts_with("bert") {
                true => Objective::Masked,
                false => Objective::Next,
            },
            level: self.tokens,
            size: self.image_size,
        }
    }

    /// The method; none when it is chosen once the workers are there.
    pub(crate) fn named_algorithm(&self) -> anyhow::Result<Option<Box<dyn Algorithm>>> {
        if self.method != AUTO {
            let algorithm = self.algorithm()?;
            method::check_workers(&*algorithm, self.workers.unwrap_or(WORKERS))?;
            return Ok(Some(algorithm));
        }
        let usual = Self::default();
        let is_plain = self.teams == usual.teams
            && self.sag == usual.sag
            && self.residual == usual.residual
            && self.value_type == usual.value_type
            && self.set.is_empty();
        match is_plain {
            true => Ok(None),
            false => Err(bad_request(
                "--method auto chooses a method with its options: leave out --teams, --sag, --residual, --value-type and --set",
            )),
        }
    }

    /// The method.
    pub(crate) fn algorithm(&self) -> anyhow::Result<Box<dyn Algorithm>> {
        let args = MethodArgs {
            // What was not asked for may be asked for by --set.
            teams: (self.teams != 1).then_some(self.teams),
            sag: (self.sag != Sag::default()).then_some(self.sag),
            residual: (self.residual != Residual::default()).then_some(self.residual),
            value_type: self.value_type,
            raw_indices: false,
            set: self.set.clone(),
        };
        if self.factor_masking && args.residual_rule()? == Residual::None {
            return Err(bad_request(
                "--factor-masking needs a residual to tell what was delivered: leave out the residual rule none",
            ));
        }
        args.build(&self.method)
    }

    /// The name of the method, with how its values travel.
    pub(crate) fn method_name(&self) -> String {
        method::full_name(&self.method, self.value_type)
    }

    /// The loop's settings.
    pub(crate) fn settings(&self, resume: bool) -> anyhow::Result<Settings> {
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
        Ok(Settings {
            batch_size: self.batch_size as usize,
            epochs: self.max_epochs,
            max_steps: self.max_steps,
            seed: self.seed,
            learning_rate: LearningRate {
                base: positive("lr", self.lr)?,
                warmup_epochs: from_zero("lr-warmup-epochs", self.lr_warmup_epochs.unwrap_or(0.0))?,
                warmup_from: self
                    .lr_warmup_from
                    .map(|from| positive("lr-warmup-from", from))
                    .transpose()?,
                steps: self.lr_steps.clone().unwrap_or_default(),
                factor: positive("lr-factor", self.lr_factor)?,
            },
            density: self.density.clone(),
            exchange_budget: self.exchange_budget,
            dense_epochs: from_zero("warmup-epochs", self.warmup_epochs)?,
            dense_below_dims: self.dense_below_dims,
            optimiser: self.optimiser()?,
            bucket_elements: self.bucket_elements,
            eval_every: self.eval_every,
            verify: self.verify,
            on_non_finite: match self.on_non_finite {
                NonFinite::Stop => spardl_drive::OnNonFinite::Raise,
                NonFinite::Skip => spardl_drive::OnNonFinite::SkipStep,
            },
            threads: self.threads as usize,
            timeout: self.patience()?,
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
            ("threads", u64::from(self.threads)),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(bad_request(format!("--{name} 0: at least 1 is needed"))),
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
            lock: None,
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
        let rule = self.optimiser;
        let momentum = in_range("momentum", self.momentum)?;
        if self.nesterov && momentum == 0.0 {
            return Err(bad_request("--nesterov needs a --momentum above zero"));
        }
        if self.momentum_correction && momentum == 0.0 {
            return Err(bad_request(
                "--momentum-correction needs a --momentum above zero",
            ));
        }
        if self.factor_masking && !self.momentum_correction {
            return Err(bad_request("--factor-masking needs --momentum-correction"));
        }
        if rule == Rule::OkTopk && momentum != 0.0 && !self.momentum_correction {
            return Err(bad_request(
                "--optimiser ok-topk has no momentum after the reduction: set --momentum 0 or --momentum-correction",
            ));
        }
        if self.momentum_correction && self.sparse_momentum != SparseMomentum::Auto {
            return Err(bad_request(
                "--momentum-correction puts momentum before the reduction: leave out --sparse-momentum",
            ));
        }
        if rule.is_adam() && (self.nesterov || self.momentum_correction) {
            return Err(bad_request(
                "adam has moments of its own: leave out --nesterov and --momentum-correction",
            ));
        }
        let epsilon = self.epsilon as f32;
        if !(epsilon.is_finite() && epsilon > 0.0) {
            return Err(bad_request("--epsilon must be above zero"));
        }
        let clip = self.clip.map(|clip| clip as f32);
        if clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.0)) {
            return Err(bad_request("--clip must be above zero"));
        }
        Ok(optimiser::Options {
            rule,
            momentum,
            sparse_momentum: self.sparse_momentum,
            nesterov: self.nesterov,
            weight_decay: in_range("weight-decay", self.weight_decay)?,
            momentum_correction: self.momentum_correction,
            factor_masking: self.factor_masking,
            clip,
            no_decay_below_dims: self.no_decay_below_dims,
            adam: AdamOptions {
                beta2: in_range("beta2", self.beta2)?,
                epsilon,
                second_moment: self.second_moment,
                refresh_every: self.refresh_every,
                ..AdamOptions::USUAL
            },
        })
    }
}

fn positive(name: &str, value: f64) -> anyhow::Result<f64> {
    match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err(bad_request(format!(
            "--{name} {value} is not a finite number above zero"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_that_make_no_sense_are_refused_in_one_line() {
        let refuse = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.settings(false).expect_err("refused").to_string()
        };
        assert!(refuse(|c| c.lr = -1.0).contains("--lr"));
        assert!(refuse(|c| c.momentum = 1.5).contains("--momentum"));
        assert!(refuse(|c| c.optimiser = Rule::OkTopk).contains("--momentum 0"));
        assert!(refuse(|c| c.clip = Some(0.0)).contains("--clip"));
        let both = refuse(|c| {
            c.momentum_correction = true;
            c.sparse_momentum = SparseMomentum::Fixed(0.5);
        });
        assert!(both.contains("leave out --sparse-momentum"), "{both}");
        let both = refuse(|c| {
            c.nesterov = true;
            c.optimiser = Rule::AdamW;
        });
        assert!(both.contains("leave out --nesterov"), "{both}");
        assert!(refuse(|c| c.beta2 = 1.0).contains("--beta2"));
        assert!(refuse(|c| c.lr_warmup_from = Some(0.0)).contains("--lr-warmup-from 0"));
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

    #[test]
    fn masking_is_refused_where_nothing_is_kept_however_that_was_asked_for() {
        let refuse = |change: fn(&mut Config)| {
            let mut config = Config {
                method: "spardl".to_owned(),
                factor_masking: true,
                momentum_correction: true,
                ..Config::default()
            };
            config.algorithm().expect("spardl keeps a residual");
            change(&mut config);
            let error = config.algorithm().expect_err("refused").to_string();
            assert!(
                error.contains("--factor-masking needs a residual"),
                "{error}"
            );
        };
        refuse(|c| c.residual = Residual::None);
        refuse(|c| c.set = vec!["spardl.residual=none".to_owned()]);
    }
}
