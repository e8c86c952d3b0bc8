//! One run with all its workers: threads of this process, or this rank of an MPI job.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use anyhow::anyhow;
use spardl_core::{Algorithm, Layout};
use spardl_drive::{Transport, run_workers};
use spardl_train::data::Sampler;
use spardl_train::record::{Summary, Unwatched, Watch};
use spardl_train::{Data, Method, Run, Settings, buckets, data, train_until};

use super::advice::{FailedRun, explain, explain_data};
use super::config::{Config, WORKERS};
use super::engine::Engine;
use super::existing_checkpoints;
use super::stop::on_signals;
use crate::job::{Job, neighbours};
use crate::memory::{available, readable};
use crate::output::bad_request;
use crate::tune::auto::{self, CacheArgs};

/// Arrays as long as the gradient that a worker needs: parameters twice (ours and the engine's), gradient twice, velocity,
/// residual twice, a dense update. What a pass keeps of every layer comes on top, and grows with the batch.
const ARRAYS: u64 = 8;

/// A run whose parts are all there.
pub(crate) struct TrainingRun {
    pub(crate) config: Config,
    settings: Settings,
    /// None: it is chosen once the workers are there.
    method: Option<Arc<dyn Algorithm>>,
    data: Data,
    engine: Engine,
    /// The parameters of the network.
    layout: Layout,
    /// Set by a signal that asks the run to end.
    stop: Arc<AtomicBool>,
}

impl TrainingRun {
    /// Opens the data and builds the method; the first rank also takes the directory of checkpoints.
    pub(crate) fn new(config: Config, resume: bool, is_first: bool) -> anyhow::Result<Self> {
        let mut settings = config.settings(resume)?;
        // A large data set takes minutes to open: a name with a typo is refused before.
        let engine = Engine::new(&config.dnn, config.device)?;
        let method = config.named_algorithm()?.map(Arc::from);
        let lock = existing_checkpoints::check(&config, resume, is_first)?;
        if let Some(checkpoints) = &mut settings.checkpoints {
            checkpoints.lock = lock;
        }
        let data = data::open(&config.dataset, &config.request()).map_err(explain_data)?;
        // A network for other data, or too few samples, are refused here, before anything is said of the run.
        let layout = engine.layout(&config, &data.task)?;
        let workers = config.workers.unwrap_or(WORKERS) as usize;
        let batch_size = settings.batch_size;
        Sampler::new(data.train.len(), workers, 0, batch_size, config.seed)
            .map_err(explain_data)?;
        Ok(Self {
            config,
            settings,
            method,
            data,
            engine,
            layout,
            stop: on_signals()?,
        })
    }

    /// The same data with another configuration.
    pub(crate) fn again(&self, config: Config) -> anyhow::Result<Self> {
        Ok(Self {
            settings: config.settings(false)?,
            method: config.named_algorithm()?.map(Arc::from),
            data: self.data.clone(),
            engine: self.engine,
            layout: self.layout.clone(),
            stop: Arc::clone(&self.stop),
            config,
        })
    }

    /// The same run, tested on a part of its training set, which it is not trained on.
    pub(crate) fn hold_out(&self, part: f64, seed: u64) -> anyhow::Result<Self> {
        Ok(Self {
            data: self.data.hold_out(part, seed).map_err(explain_data)?,
            ..self.again(self.config.clone())?
        })
    }

    /// The data, in words.
    pub(crate) fn about_data(&self) -> String {
        let (train, test) = (self.data.train.len(), self.data.test.len());
        format!(
            "{}: {train} training samples, {test} test samples",
            self.config.dataset
        )
    }

    /// Trains; only the rank that prints is watched.
    pub(crate) fn train(
        &self,
        mut job: Option<&mut Job>,
        watch: &mut (dyn Watch + Send),
    ) -> anyhow::Result<Summary> {
        let here = match job.as_deref_mut() {
            Some(job) => neighbours(job)?,
            None => self.config.workers.unwrap_or(WORKERS),
        };
        let optimiser = &self.settings.optimiser;
        let arrays = ARRAYS
            + 2 * u64::from(optimiser.momentum_correction)
            + u64::from(optimiser.factor_masking)
            + u64::from(optimiser.rule.is_adam());
        fits(
            u64::from(self.layout.len()) * arrays,
            here.into(),
            available(),
        )?;
        let method = match &self.method {
            Some(method) => Arc::clone(method).into(),
            None => self.choose(job.as_deref_mut(), watch)?,
        };
        let Some(job) = job else {
            return self.train_threads(&method, watch);
        };
        match job.prints() {
            true => self.train_one(&method, job.transport(), watch),
            false => self.train_one(&method, job.transport(), &mut Unwatched),
        }
    }

    /// What the tuner picks for the buckets of this network, at the density that training begins with.
    fn choose(
        &self,
        mut job: Option<&mut Job>,
        watch: &mut (dyn Watch + Send),
    ) -> anyhow::Result<Method> {
        let settings = &self.settings;
        let cut = buckets::cut(
            &self.layout,
            settings.bucket_elements,
            settings.dense_below_dims,
        );
        let tuner = auto::tuner(&CacheArgs::default(), job.as_deref()).timeout(settings.timeout);
        let (workers, density) = (
            self.config.workers.unwrap_or(WORKERS),
            settings.density.at(0.0),
        );
        let tuning = auto::choose(&tuner, workers, &cut, density, job.as_deref_mut())?;
        if job.is_none_or(|job| job.prints()) {
            auto::complain_about_cache(&tuning);
            watch.note(&format!("auto: {}", tuning.in_words()));
        }
        Ok(Method::Chosen(Box::new((tuner, tuning))))
    }

    fn train_threads(
        &self,
        method: &Method,
        watch: &mut (dyn Watch + Send),
    ) -> anyhow::Result<Summary> {
        let workers = self.config.workers.unwrap_or(WORKERS);
        let watch = Mutex::new(Some(watch));
        let results = run_workers(workers, |transport| {
            let mine = match transport.world().rank().get() {
                0 => watch.lock().ok().and_then(|mut watch| watch.take()),
                _ => None,
            };
            match mine {
                Some(watch) => self.train_one(method, transport, watch),
                None => self.train_one(method, transport, &mut Unwatched),
            }
        })?;
        let secondary = |error: &anyhow::Error| {
            let failed = error.downcast_ref::<FailedRun>();
            failed.is_some_and(|failed| failed.0.is_secondary())
        };
        let (mut first, mut error) = (None, None);
        for result in results {
            match result {
                Ok(summary) => first = first.or(Some(summary)),
                // The first cause; others only heard that a peer was gone.
                Err(new)
                    if error
                        .as_ref()
                        .is_none_or(|old| secondary(old) && !secondary(&new)) =>
                {
                    error = Some(new);
                }
                Err(_) => {}
            }
        }
        match error {
            Some(error) => Err(error),
            None => first.ok_or_else(|| anyhow!("no worker ended")),
        }
    }

    fn train_one<T: Transport>(
        &self,
        method: &Method,
        transport: T,
        watch: &mut dyn Watch,
    ) -> anyhow::Result<Summary> {
        let mut model = self.engine.model(&self.config, &self.data.task)?;
        let run = Run {
            settings: &self.settings,
            method: method.clone(),
            data: &self.data,
        };
        let stop = || self.stop.load(Relaxed);
        train_until(&run, &mut *model, transport, watch, &stop).map_err(explain)
    }
}

/// Refuses a run that needs more memory than there is, before it starts.
fn fits(elements: u64, workers: u64, available: Option<u64>) -> anyhow::Result<()> {
    let needed = 4 * elements * workers;
    match available {
        Some(available) if needed > available => Err(bad_request(format!(
            "{workers} workers need {} of memory for the arrays of their replicas and {} are available: take fewer workers or a \
             smaller network",
            readable(needed),
            readable(available)
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_does_not_fit_is_refused() {
        assert!(fits(8_000_000, 4, Some(200_000_000)).is_ok());
        assert!(fits(8_000_000, 4, None).is_ok());
        let error = fits(800_000_000, 8, Some(16_000_000_000)).expect_err("too much");
        let text = error.to_string();
        assert!(
            text.contains("25.6 GB") && text.contains("16.0 GB"),
            "{text}"
        );
    }
}
