//! Whether steps still take what they were expected to, and another choice when they do not.

use std::sync::Arc;

use spardl_core::{Algorithm, Density, Layout, Model};
use spardl_drive::Transport;

use super::Reducer;
use crate::tune::{Tuner, Tuning, measure};
use crate::{Error, Report};

/// What a step is expected to take, in the units of [`Watch::times`].
const EXPECTED: u64 = 1_000_000;

/// What a reducer that chose its method itself remembers.
#[derive(Debug)]
pub(crate) struct Watch {
    tuner: Tuner,
    tuning: Tuning,
    /// What steps took over what they should, when that was last looked at: a model knows neither the other programs of a
    /// machine nor waits that buckets hide.
    calibration: f64,
    /// What the next step should take, in nanoseconds, with which density.
    expected: Option<(Density, u64)>,
    /// Millionths of what they should take that steps took since the last look: densities may change from step to step.
    times: Vec<u64>,
}

impl Watch {
    pub(crate) const fn new(tuner: Tuner, tuning: Tuning) -> Self {
        Self {
            tuner,
            tuning,
            calibration: 1.0,
            expected: None,
            times: Vec::new(),
        }
    }

    /// A step of this density begins.
    pub(super) fn expect(&mut self, layouts: &[Layout], density: Density) {
        if self.expected.is_none_or(|(last, _)| last != density) {
            let nanos = self.tuning.exchange_at(layouts, density);
            self.expected = Some((density, nanos.max(1)));
        }
    }

    /// Notes what a step took this worker.
    pub(super) fn note(&mut self, report: &Report) {
        let Some((_, expected)) = self.expected else {
            return;
        };
        let took = report.counts.select + report.counts.merge + report.waited;
        let parts = took.as_nanos() * u128::from(EXPECTED) / u128::from(expected);
        self.times.push(u64::try_from(parts).unwrap_or(u64::MAX));
    }

    /// The middle of what the steps took, when it is time to look at them.
    fn due(&self) -> Option<u64> {
        let (factor, every) = self.tuner.watched();
        if factor < 1.0 || (self.times.len() as u64) < every.max(1) {
            return None;
        }
        let mut times = self.times.clone();
        times.sort_unstable();
        Some(times[times.len() / 2])
    }

    /// Did steps leave what was expected of them?
    fn has_left(&self, took: f64) -> bool {
        let (factor, _) = self.tuner.watched();
        let times = took / self.calibration;
        times > factor || times * factor < 1.0
    }
}

impl<T: Transport> Reducer<T> {
    /// How the method was chosen, when the reducer was asked to do so.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.watch.as_ref().map(|watch| &watch.tuning)
    }

    /// Goes on with another method from the next step on, with the residual as it is: nothing is lost. All workers must do so at
    /// the same step.
    ///
    /// # Errors
    /// When a step is not finished or not decided, or the method refuses the world or a layout; nothing changes.
    pub fn change_method(&mut self, algorithm: impl Into<Arc<dyn Algorithm>>) -> Result<(), Error> {
        self.between_steps("change_method")?;
        let algorithm = algorithm.into();
        if self.warming_up {
            for layout in &self.layouts {
                algorithm.machine(self.world(), layout)?;
            }
            self.algorithm = algorithm;
            return Ok(());
        }
        let saved = self.save();
        self.driver.change_method(&*algorithm, &self.layouts)?;
        for collective in self.driver.collectives_mut() {
            collective.set_threads(Arc::clone(&self.threads));
        }
        self.algorithm = algorithm;
        self.restore_residual(&saved.buckets)
    }

    /// Alpha and beta of the transport and the gamma of the method at this density, the same on all workers. All must call it,
    /// between steps.
    ///
    /// # Errors
    /// When a step is not finished or not decided, or a peer is lost or late.
    pub fn measure_model(&mut self, density: Density) -> Result<Model, Error> {
        self.between_steps("measure_model")?;
        let (algorithm, layouts) = (Arc::clone(&self.algorithm), self.layouts.clone());
        let limit = self.driver.timeout();
        let transport = self.driver.transport_mut();
        Ok(measure::model(
            transport,
            &*algorithm,
            &layouts,
            density,
            limit,
        )?)
    }

    /// Between steps: when steps no longer take what was expected, on the worker that waits least, all workers measure and choose
    /// again. True: another method is used from now on. The first bucket of a step that begins does the same; all workers must
    /// call it at the same place.
    ///
    /// # Errors
    /// When a step is not finished or not decided, or a peer is lost or late.
    pub fn look_at_times(&mut self) -> Result<bool, Error> {
        self.between_steps("look_at_times")?;
        let Some(mine) = self.watch.as_ref().and_then(Watch::due) else {
            return Ok(false);
        };
        let all = self.driver.gather(&mine.to_le_bytes())?;
        let all = all
            .iter()
            .filter_map(|said| said.as_slice().try_into().ok());
        let took = all.map(u64::from_le_bytes).min().unwrap_or(mine);
        let Some(mut watch) = self.watch.take() else {
            return Ok(false);
        };
        watch.times.clear();
        let looked = self.judge_times(&mut watch, took as f64 / EXPECTED as f64);
        self.watch = Some(watch);
        looked
    }

    /// Steps took so many times what is expected of the method.
    fn judge_times(&mut self, watch: &mut Watch, took: f64) -> Result<bool, Error> {
        if !watch.has_left(took) {
            return Ok(false);
        }
        let (layouts, density) = (self.layouts.clone(), self.density);
        let before = watch.tuning.exchange_at(&layouts, density);
        let transport = self.driver.transport_mut();
        // Two measurements differ by noise: a change has to be worth it.
        let tuner = watch.tuner.clone().stay_with(watch.tuning.best().clone());
        let tuning = tuner.tune_anew(transport, &layouts, density)?;
        let is_same = tuning.best().algorithm().describe() == self.algorithm.describe();
        if is_same {
            let now = tuning.exchange_at(&layouts, density);
            watch.calibration = took * before as f64 / now.max(1) as f64;
        } else {
            self.change_method(Arc::clone(tuning.best().algorithm()))?;
            watch.calibration = 1.0;
        }
        watch.tuning = tuning;
        watch.expected = None;
        Ok(!is_same)
    }
}
