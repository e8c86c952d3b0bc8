//! What becomes of a run when steps are dropped because numbers are not finite.

use spardl::{OnNonFinite, Rank, Transport};

use crate::TrainError;
use crate::learner::Learner;
use crate::record::Watch;

/// Steps in a row that may be dropped: after more the parameters themselves must be past mending.
const MOST_IN_A_ROW: u32 = 50;

/// Whether a run goes on after a step that was dropped.
#[derive(Debug)]
pub(crate) struct SkipPolicy {
    on_non_finite: OnNonFinite,
    /// Steps dropped since the last one that was not.
    in_a_row: u32,
}

impl SkipPolicy {
    pub(crate) const fn new(on_non_finite: OnNonFinite) -> Self {
        Self {
            on_non_finite,
            in_a_row: 0,
        }
    }

    /// Was the last step dropped?
    pub(crate) const fn last_step_failed(&self) -> bool {
        self.in_a_row > 0
    }

    /// A step counted.
    pub(crate) const fn counted(&mut self) {
        self.in_a_row = 0;
    }

    /// All workers dropped the step just done; finds out who was a reason.
    pub(crate) fn dropped<T: Transport>(
        &mut self,
        learner: &mut Learner<'_, T>,
        at_fault: bool,
        watch: &mut dyn Watch,
    ) -> Result<(), TrainError> {
        let step = learner.step();
        let flags = learner.gather(&[u8::from(at_fault)])?;
        let ranks = (0u32..).map(Rank::new).zip(&flags);
        let ranks = ranks.filter(|(_, flag)| flag.as_slice() != [0]);
        let error = TrainError::NonFinite {
            step,
            ranks: ranks.map(|(rank, _)| rank).collect(),
        };
        self.in_a_row += 1;
        if self.on_non_finite == OnNonFinite::Raise {
            return Err(error);
        }
        if self.in_a_row >= MOST_IN_A_ROW {
            let skipped = self.in_a_row;
            return Err(TrainError::TooManySkipped { step, skipped });
        }
        if learner.is_first() {
            watch.note(&format!("{error}: step dropped on all workers"));
        }
        Ok(())
    }
}
