//! The configuration of a run. Every option is declared here once: its flag, its key in a file, its default and its description.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use clap::{ArgAction, Args, Command, FromArgMatches};
use serde::de::{self, DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spardl::Budget;
use spardl_algos::{Residual, Sag};
use spardl_core::{ValueType, offer};
use spardl_train::buckets;
use spardl_train::data::Level;
use spardl_train::optimiser::{Rule, SecondMoment, SparseMomentum};
use spardl_train::schedule::DensitySchedule;

/// The largest integer of TOML, in which a configuration is saved.
pub(crate) const LARGEST: u64 = i64::MAX as u64;

/// Workers when nobody says how many.
pub(crate) const WORKERS: u32 = 4;

/// Threads of this process that are workers, and threads of a worker: more are a slip of the finger.
pub(crate) const MOST_WORKERS: u32 = 4096;
pub(crate) const MOST_THREADS: u32 = 1024;

/// Everything that decides the result of a run. Saved beside it, it can be given to --config.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The network: see 'spardl train --list' [default: the first one there that knows the data set].
    #[arg(
        long,
        visible_alias = "model",
        value_name = "NAME",
        help_heading = "Job",
        default_value = "mlp",
        hide_default_value = true
    )]
    pub(crate) dnn: String,
    /// The data set: see 'spardl train --list' [default: a generated one that the network can learn].
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Job",
        default_value = "synthetic",
        hide_default_value = true
    )]
    pub(crate) dataset: String,
    /// Where the data is [default: the directory in SPARDL_DATA_DIR].
    #[arg(long, value_name = "DIR", help_heading = "Job")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Workers: threads of this process, or the ranks of the MPI job [default: 4; with MPI the number of ranks].
    #[arg(long, visible_alias = "nworkers", value_name = "P", help_heading = "Job", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WORKERS)))]
    pub(crate) workers: Option<u32>,
    /// Samples of a worker's step [default: by network and data set, see --list].
    #[arg(long, value_name = "N", help_heading = "Job", default_value_t = 16, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_size: u32,
    /// Passes over the data [default: by network and data set, see --list].
    #[arg(
        long,
        visible_alias = "epochs",
        value_name = "N",
        help_heading = "Job",
        default_value_t = 10,
        hide_default_value = true
    )]
    pub(crate) max_epochs: u32,
    /// Stop after that many steps.
    #[arg(long, value_name = "N", help_heading = "Job", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    pub(crate) max_steps: Option<u64>,
    /// Train on that many samples, always the same ones.
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub(crate) train_samples: Option<usize>,
    /// Test on that many samples, always the same ones.
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub(crate) test_samples: Option<usize>,
    /// Rows and columns of an image, for imagenet and synthetic [default: 224 and 16, or more where the network needs it].
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub(crate) image_size: Option<usize>,
    /// Tokens of a sequence, for text [default: by network and data set].
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub(crate) length: Option<usize>,
    /// Size of the vocabulary, for text: the most frequent words keep a number of their own, the others share one.
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub(crate) vocabulary: Option<usize>,
    /// What a token of plain text is.
    #[arg(long, value_name = "words|characters", help_heading = "Job", default_value = "words", value_parser = word::<Level>)]
    pub(crate) tokens: Level,
    /// What everything random is drawn from.
    #[arg(long, value_name = "N", help_heading = "Job", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    pub(crate) seed: u64,

    /// The method of the registry by which gradients are reduced (see 'spardl list'); auto: the fastest here, as 'spardl tune' says.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Reduction",
        default_value = "dense"
    )]
    pub(crate) method: String,
    /// The part of the entries an update should have, or a schedule EPOCH:DENSITY,.., or ramp:D: 1/4, 1/16, .. down to D, or auto:
    /// as much as --exchange-budget allows, between auto:LEAST..MOST.
    #[arg(
        long,
        value_name = "D|E:D,..|ramp:D|auto",
        help_heading = "Reduction",
        default_value = "0.01"
    )]
    pub(crate) density: DensitySchedule,
    /// With --density auto: what the exchange of a step may take, as a time (20ms) or as a part of the time that the gradient takes.
    #[arg(
        long,
        value_name = "TIME|PART",
        help_heading = "Reduction",
        default_value = "0.67"
    )]
    #[serde(with = "text")]
    pub(crate) exchange_budget: Budget,
    /// Epochs in which the whole gradient is reduced, before the method begins.
    #[arg(
        long,
        value_name = "E",
        help_heading = "Reduction",
        default_value_t = 0.0
    )]
    pub(crate) warmup_epochs: f64,
    /// Tensors of fewer dimensions are always reduced whole: with 2 those of batch normalisation, and biases.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Reduction",
        default_value_t = 0
    )]
    pub(crate) dense_below_dims: usize,
    /// SparDL: number of teams; must divide the number of workers.
    #[arg(
        long,
        value_name = "D",
        help_heading = "Reduction",
        default_value_t = 1
    )]
    pub(crate) teams: u32,
    /// SparDL: how teams synchronise.
    #[arg(
        long,
        value_name = "auto|r|b",
        help_heading = "Reduction",
        default_value = "auto"
    )]
    #[serde(with = "text")]
    pub(crate) sag: Sag,
    /// SparDL: what is kept of undelivered mass: auto (global-b below 0.5 %, else global-a), global-a, global-b, no-in-procedure, local or none.
    #[arg(
        long,
        value_name = "RULE",
        help_heading = "Reduction",
        default_value = "auto"
    )]
    #[serde(with = "text")]
    pub(crate) residual: Residual,
    /// How values travel.
    #[arg(
        long,
        value_name = "f32|bf16|q8|q4|q2|q1",
        help_heading = "Reduction",
        default_value = "f32"
    )]
    #[serde(with = "text")]
    pub(crate) value_type: ValueType,
    /// An option of a single method: METHOD.OPTION=VALUE (see 'spardl explain METHOD'). May be repeated.
    #[arg(long, value_name = "METHOD.OPTION=VALUE", help_heading = "Reduction")]
    pub(crate) set: Vec<String>,
    /// Cut the gradient into buckets of whole layers with about that many elements [default: one bucket].
    #[arg(long, value_name = "N", help_heading = "Reduction", default_value_t = buckets::DEFAULT_ELEMENTS, hide_default_value = true)]
    pub(crate) bucket_elements: usize,

    /// The learning rate [default: by network and data set, see --list].
    #[arg(
        long,
        visible_alias = "learning-rate",
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 0.02,
        hide_default_value = true
    )]
    pub(crate) lr: f64,
    /// How the rate changes: constant, spardl, exdyna, lstmimdb (as published), or auto: spardl's for CNNs in runs of more than
    /// 80 epochs, otherwise by network and data set.
    #[arg(long, value_name = "NAME", help_heading = "Optimiser", default_value = "auto", value_parser = word::<LrSchedule>)]
    pub(crate) lr_schedule: LrSchedule,
    /// Epochs in which the rate rises to LR.
    #[arg(long, value_name = "E", help_heading = "Optimiser")]
    pub(crate) lr_warmup_epochs: Option<f64>,
    /// Where it rises from [default: LR/P].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    pub(crate) lr_warmup_from: Option<f64>,
    /// Epochs at which the rate is multiplied by --lr-factor.
    #[arg(
        long,
        value_name = "E,..",
        help_heading = "Optimiser",
        value_delimiter = ','
    )]
    pub(crate) lr_steps: Option<Vec<f64>>,
    /// See --lr-steps [default: 0.1 for most networks].
    #[arg(
        long,
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 0.1,
        hide_default_value = true
    )]
    pub(crate) lr_factor: f64,
    /// Momentum; of Adam the first moment's.
    #[arg(
        long,
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 0.9
    )]
    pub(crate) momentum: f64,
    /// Momentum of steps that hold mass back, which acts as momentum itself; auto: what each element's wait leaves of --momentum
    /// [default: auto].
    #[arg(
        long,
        value_name = "auto|X",
        help_heading = "Optimiser",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) sparse_momentum: SparseMomentum,
    /// Nesterov's form of momentum.
    #[arg(long, help_heading = "Optimiser", value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, hide_default_value = true)]
    pub(crate) nesterov: bool,
    /// Weight decay [default: 0.0001 for images, 0 for text].
    #[arg(
        long,
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 1e-4,
        hide_default_value = true
    )]
    pub(crate) weight_decay: f64,
    /// Tensors of fewer dimensions have no weight decay: with 2 those of batch normalisation, and biases.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Optimiser",
        default_value_t = 0
    )]
    pub(crate) no_decay_below_dims: usize,
    /// Where the learning rate comes in: sgd (after the reduction: SparDL, ExDyna) or ok-topk (inside the residual); or adam, adamw.
    #[arg(long, visible_alias = "optimizer", value_name = "sgd|ok-topk|adam|adamw", help_heading = "Optimiser", default_value = "sgd", value_parser = word::<Rule>)]
    pub(crate) optimiser: Rule,
    /// Adam: the part of the second moment that goes on to the next step.
    #[arg(
        long,
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 0.999
    )]
    pub(crate) beta2: f64,
    /// Adam: added to the root of the second moment.
    #[arg(
        long,
        value_name = "X",
        help_heading = "Optimiser",
        default_value_t = 1e-8
    )]
    pub(crate) epsilon: f64,
    /// Adam, while mass is held back: the second moment stays that of dense steps, or follows what is delivered.
    #[arg(long, value_name = "frozen|running", help_heading = "Optimiser", default_value = "frozen", value_parser = word::<SecondMoment>)]
    pub(crate) second_moment: SecondMoment,
    /// Adam: steps from one whole gradient to the next that a frozen second moment is refreshed by; 0: never.
    #[arg(long, value_name = "N", help_heading = "Optimiser", default_value_t = 500, value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    pub(crate) refresh_every: u64,
    /// Momentum on each worker before the reduction, as in Deep Gradient Compression.
    #[arg(long, help_heading = "Optimiser", value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, hide_default_value = true)]
    pub(crate) momentum_correction: bool,
    /// With --momentum-correction: momentum stops where mass was delivered.
    #[arg(long, help_heading = "Optimiser", value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, hide_default_value = true)]
    pub(crate) factor_masking: bool,
    /// The longest a worker's gradient may be (L2 norm) [default: none for images].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    pub(crate) clip: Option<f64>,

    /// Epochs from test to test; 0: only at the end.
    #[arg(long, value_name = "N", help_heading = "Run", default_value_t = 1)]
    pub(crate) eval_every: u32,
    /// Compare all replicas after every step, not only after every epoch.
    #[arg(long, help_heading = "Run", value_name = "true|false", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true, hide_default_value = true)]
    pub(crate) verify: bool,
    /// When a worker's loss or gradient is NaN or infinite: stop or skip the step, on all workers.
    #[arg(long, value_name = "stop|skip", help_heading = "Run", default_value = "stop", value_parser = word::<NonFinite>)]
    pub(crate) on_non_finite: NonFinite,
    /// Write checkpoints into DIR, which all workers must see.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
    /// Steps from checkpoint to checkpoint [default: an epoch].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Checkpoints that are kept.
    #[arg(long, value_name = "N", help_heading = "Run", default_value_t = 2)]
    pub(crate) keep_last: usize,
    /// Seconds until a worker that waits for another gives up.
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Run",
        default_value_t = 300.0
    )]
    pub(crate) deadline: f64,
    /// What computes: flex (CPU), and where built in wgpu or cuda.
    #[arg(long, value_name = "NAME", help_heading = "Run", default_value = "flex", value_parser = word::<Device>)]
    pub(crate) device: Device,
    /// Threads that compute for a worker; with more than one the last bits may differ from run to run.
    #[arg(long, value_name = "N", help_heading = "Run", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_THREADS)))]
    pub(crate) threads_per_worker: u32,
    /// Threads of a worker's part in the reduction; the bits are the same for any number of them.
    #[arg(long, value_name = "N", help_heading = "Run", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_THREADS)))]
    pub(crate) threads: u32,
}

/// How the learning rate changes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LrSchedule {
    Auto,
    Constant,
    Spardl,
    Exdyna,
    Lstmimdb,
}

/// What to do about NaN and infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NonFinite {
    Stop,
    Skip,
}

/// What computes, whether it is built in or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Device {
    Flex,
    Wgpu,
    Cuda,
}

impl Default for Config {
    /// What the flags are when none is given.
    fn default() -> Self {
        let matches = Self::augment_args(Command::new("defaults")).get_matches_from(["defaults"]);
        Self::from_arg_matches(&matches).expect("the defaults are valid")
    }
}

impl Config {
    /// As the file that --config takes.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("writing the configuration")
    }
}

/// A word of an enum on the command line, spelled as in a file.
fn word<V: DeserializeOwned>(text: &str) -> Result<V, NotAWord> {
    V::deserialize(text.into_deserializer())
}

/// What to say of a word that is not one of an enum.
#[derive(Debug)]
struct NotAWord(String);

impl fmt::Display for NotAWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAWord {}

impl de::Error for NotAWord {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self(offer(word, known))
    }
}

/// Values that are written and read as the methods write and read them.
mod text {
    use super::*;

    pub(super) fn serialize<V: ToString, S: Serializer>(
        value: &V,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_string())
    }

    pub(super) fn deserialize<'de, V, D>(from: D) -> Result<V, D::Error>
    where
        V: FromStr<Err: std::fmt::Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
