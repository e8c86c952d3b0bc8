//! Where a run is, and what is known of it so far.

use crate::Score;
use crate::record::{ByTime, EpochRecord, StepRecord, Totals};

/// Where a run is. How many steps were done in all is known to the reduction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Whole epochs done.
    pub(crate) epoch: u32,
    /// Steps done of the current epoch.
    pub(crate) step_of_epoch: u64,
    /// Seconds of training.
    pub(crate) seconds: f64,
    /// Seconds of training when the current epoch began.
    pub(crate) epoch_began: f64,
    /// The score of this worker in the current epoch.
    pub(crate) score: Score,
    /// What the steps of the current epoch cost.
    pub(crate) totals: Totals,
    /// The epochs done.
    pub(crate) epochs: Vec<EpochRecord>,
    /// The last look at the times, where they decide the density.
    pub(crate) by_time: Option<ByTime>,
}

impl Progress {
    /// Counts a step that took so many seconds; one that was dropped has no score.
    pub(crate) fn count(&mut self, record: &StepRecord, score: Option<Score>, seconds: f64) {
        self.step_of_epoch += 1;
        self.score += score.unwrap_or_default();
        self.totals.add(record);
        self.seconds += seconds;
    }

    /// Notes the end of an epoch, `whole` or cut short by the end of the run.
    pub(crate) fn close_epoch(&mut self, record: EpochRecord, whole: bool) {
        self.epochs.push(record);
        if whole {
            self.epoch += 1;
            self.step_of_epoch = 0;
        }
        self.open_epoch();
    }

    /// Epochs that have a step.
    pub(crate) fn epochs_begun(&self) -> u32 {
        self.epoch + u32::from(self.step_of_epoch > 0)
    }

    /// Begins the current epoch again.
    pub(crate) fn restart_epoch(&mut self) {
        self.step_of_epoch = 0;
        self.open_epoch();
    }

    fn open_epoch(&mut self) {
        self.score = Score::default();
        self.totals = Totals::default();
        self.epoch_began = self.seconds;
    }
}
