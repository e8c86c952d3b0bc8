//! What `spardl train` can be asked: on the command line or, under the same names, in a TOML file.

use std::path::PathBuf;

use serde::Serialize;

use crate::launch::TransportChoice;

/// The largest integer of TOML, in which a configuration is saved.
pub(crate) const LARGEST: u64 = i64::MAX as u64;

/// Threads of this process that are workers, and threads of a worker: more are a slip of the finger.
pub(crate) const MOST_WORKERS: u32 = 4096;
pub(crate) const MOST_THREADS: u32 = 1024;

/// How to train. What is not given comes from the file of --config, then from the defaults.
#[derive(Clone, Debug, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TrainArgs {
    /// The network: see 'spardl train --list'.
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dnn: Option<String>,
    /// The data set: see 'spardl train --list'.
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dataset: Option<String>,
    /// Where the data is [default: the directory in SPARDL_DATA_DIR].
    #[arg(long, value_name = "DIR", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Workers: threads of this process, or the ranks of the MPI job [default: 4; with MPI the number of ranks].
    #[arg(long, visible_alias = "nworkers", value_name = "P", help_heading = "Job", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WORKERS)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<u32>,
    /// Samples of a worker's step [default: 16].
    #[arg(long, value_name = "N", help_heading = "Job", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch_size: Option<u32>,
    /// Passes over the data [default: 10].
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_epochs: Option<u32>,
    /// Stop after that many steps.
    #[arg(long, value_name = "N", help_heading = "Job", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_steps: Option<u64>,
    /// Train on that many samples, always the same ones.
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) train_samples: Option<usize>,
    /// Test on that many samples, always the same ones.
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) test_samples: Option<usize>,
    /// Rows and columns of an image, for imagenet and synthetic [default: 224 and 16].
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image_size: Option<usize>,
    /// Tokens of a sequence, for text.
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<usize>,
    /// Words that are told apart, for text.
    #[arg(long, value_name = "N", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vocabulary: Option<usize>,
    /// What a token of plain text is: words or characters [default: words].
    #[arg(long, value_name = "words|characters", help_heading = "Job")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<String>,
    /// What everything random is drawn from [default: 1].
    #[arg(long, value_name = "N", help_heading = "Job", value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,

    /// The method of the registry by which gradients are reduced (see 'spardl list').
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Reduction",
        conflicts_with = "compressor"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    /// Compress: without it (and without --method) gradients are reduced whole.
    #[arg(long, help_heading = "Reduction")]
    #[serde(skip)]
    pub(crate) compression: bool,
    /// The method when --compression is given [default: spardl].
    #[arg(long, value_name = "NAME", help_heading = "Reduction")]
    #[serde(skip)]
    pub(crate) compressor: Option<String>,
    /// The part of the entries an update should have, or a schedule EPOCH:DENSITY,.. [default: 0.01].
    #[arg(long, value_name = "D|E:D,..", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) density: Option<String>,
    /// Epochs in which the whole gradient is reduced, before the method begins [default: 0].
    #[arg(long, value_name = "E", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warmup_epochs: Option<f64>,
    /// SparDL: number of teams; must divide the number of workers [default: 1].
    #[arg(long, value_name = "D", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) teams: Option<u32>,
    /// SparDL: how teams synchronise [default: auto].
    #[arg(long, value_name = "auto|r|b", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sag: Option<String>,
    /// SparDL: none, local, no-in-procedure, global-a or global-b [default: global-a].
    #[arg(long, value_name = "RULE", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) residual: Option<String>,
    /// How values travel [default: f32].
    #[arg(long, value_name = "f32|bf16|q8|q4|q2|q1", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_type: Option<String>,
    /// An option of a single method: METHOD.OPTION=VALUE (see 'spardl explain METHOD'). May be repeated.
    #[arg(
        long = "set",
        value_name = "METHOD.OPTION=VALUE",
        help_heading = "Reduction"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) set: Vec<String>,
    /// Cut the gradient into buckets of whole layers with about that many elements [default: one bucket].
    #[arg(long, value_name = "N", help_heading = "Reduction")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bucket_elements: Option<usize>,

    /// The learning rate [default: 0.1].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lr: Option<f64>,
    /// How the rate changes: constant, spardl, exdyna, lstmimdb (as published), or auto: spardl's for CNNs in runs of more than
    /// 80 epochs, constant otherwise [default: auto].
    #[arg(long, value_name = "NAME", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lr_schedule: Option<String>,
    /// Epochs in which the rate rises from LR/P to LR.
    #[arg(long, value_name = "E", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lr_warmup_epochs: Option<f64>,
    /// Epochs at which the rate is multiplied by --lr-factor.
    #[arg(
        long,
        value_name = "E,..",
        value_delimiter = ',',
        help_heading = "Optimiser"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lr_steps: Option<Vec<f64>>,
    /// See --lr-steps [default: 0.1].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lr_factor: Option<f64>,
    /// Momentum [default: 0.9].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) momentum: Option<f64>,
    /// Nesterov's form of momentum.
    #[arg(long, help_heading = "Optimiser", num_args = 0..=1, default_missing_value = "true", value_name = "true|false", require_equals = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nesterov: Option<bool>,
    /// Weight decay [default: 0.0001].
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight_decay: Option<f64>,
    /// Where the learning rate comes in: sgd (after the reduction: SparDL, ExDyna) or ok-topk (inside the residual) [default: sgd].
    #[arg(long, value_name = "sgd|ok-topk", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) optimiser: Option<String>,
    /// Momentum on each worker before the reduction, as in Deep Gradient Compression.
    #[arg(long, help_heading = "Optimiser", num_args = 0..=1, default_missing_value = "true", value_name = "true|false", require_equals = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) momentum_correction: Option<bool>,
    /// With --momentum-correction: momentum stops where mass was delivered.
    #[arg(long, help_heading = "Optimiser", num_args = 0..=1, default_missing_value = "true", value_name = "true|false", require_equals = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) factor_masking: Option<bool>,
    /// The longest a worker's gradient may be (L2 norm).
    #[arg(long, value_name = "X", help_heading = "Optimiser")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clip: Option<f64>,

    /// Epochs from test to test; 0: only at the end [default: 1].
    #[arg(long, value_name = "N", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eval_every: Option<u32>,
    /// Compare all replicas after every step, not only after every epoch.
    #[arg(long, help_heading = "Run", num_args = 0..=1, default_missing_value = "true", value_name = "true|false", require_equals = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verify: Option<bool>,
    /// When a worker's loss or gradient is NaN or infinite: stop or skip the step, on all workers [default: stop].
    #[arg(long, value_name = "stop|skip", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_non_finite: Option<String>,
    /// Write checkpoints into DIR, which all workers must see.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
    /// Steps from checkpoint to checkpoint [default: an epoch].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u64).range(1..=LARGEST))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_every: Option<u64>,
    /// Checkpoints that are kept [default: 2].
    #[arg(long, value_name = "N", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_last: Option<usize>,
    /// Go on from the newest checkpoint in --checkpoint-dir that is whole.
    #[arg(long, help_heading = "Run")]
    #[serde(skip)]
    pub(crate) resume: bool,
    /// Write configuration, steps, epochs, TensorBoard events and a page of charts into DIR.
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    #[serde(skip)]
    pub(crate) out: Option<PathBuf>,
    /// Seconds until a worker that waits for another gives up [default: 300].
    #[arg(long, value_name = "SECONDS", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<f64>,
    /// What computes: flex (CPU), and where built in wgpu or cuda [default: flex].
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// Threads that compute for a worker; with more than one the last bits may differ from run to run [default: 1].
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_THREADS)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads_per_worker: Option<u32>,
    /// A TOML file with options under the same names, all but --resume, --out, --transport; options given here win.
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// What moves the rounds. Under mpiexec or srun, auto is MPI.
    #[arg(long, value_name = "auto|threads|mpi", help_heading = "Run")]
    #[serde(skip)]
    pub(crate) transport: Option<TransportChoice>,
}

impl TrainArgs {
    /// What moves the rounds.
    pub(crate) fn transport(&self) -> TransportChoice {
        self.transport.unwrap_or(TransportChoice::Auto)
    }

    /// Was nothing asked for?
    pub(crate) fn is_bare(&self) -> bool {
        let options = toml::Table::try_from(self).is_ok_and(|table| table.is_empty());
        let others = self.compression || self.resume || self.compressor.is_some();
        options
            && !others
            && self.out.is_none()
            && self.config.is_none()
            && self.transport.is_none()
    }
}
