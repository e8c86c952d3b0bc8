//! Whether a run is to end before its end: all workers after the same step.

use spardl::Transport;

use crate::TrainError;
use crate::learner::Learner;

/// Workers ask each other about so often, in seconds, and after every step when steps take longer.
const EVERY: f64 = 0.25;
/// However short steps are.
const MOST_STEPS: f64 = 1000.0;

/// One worker's wish to end, and when it is next spoken of.
pub(crate) struct Stop<'a> {
    wanted: &'a dyn Fn() -> bool,
    ask_at: u64,
}

impl<'a> Stop<'a> {
    pub(crate) const fn new(wanted: &'a dyn Fn() -> bool) -> Self {
        Self { wanted, ask_at: 0 }
    }

    /// After a step that took so many seconds: does some worker want to end? The same on all of them.
    pub(crate) fn is_agreed<T: Transport>(
        &mut self,
        learner: &mut Learner<'_, T>,
        seconds: f64,
    ) -> Result<bool, TrainError> {
        let step = learner.step();
        if step < self.ask_at {
            return Ok(false);
        }
        let pause = (EVERY / seconds.max(1e-9)).clamp(1.0, MOST_STEPS) as u16;
        let [low, high] = pause.to_le_bytes();
        let all = learner.gather(&[u8::from((self.wanted)()), low, high])?;
        // Steps take different times on different workers: rank 0's counts.
        let pause = match all[0].as_slice() {
            [_, low, high] => u16::from_le_bytes([*low, *high]),
            _ => 1,
        };
        self.ask_at = step + u64::from(pause);
        Ok(all.iter().any(|said| said.first() == Some(&1)))
    }
}
