//! What a collective keeps between steps: read, written, added to, saved and taken back.

use super::Collective;
use crate::error::ConfigError;
use crate::state::State;

impl Collective {
    /// The residual: what this worker keeps for later. Empty for methods that deliver everything.
    pub fn residual(&self) -> &[f32] {
        self.feedback.residual()
    }

    /// Overwrites the residual from element `start` on, as when buckets are cut anew.
    ///
    /// # Errors
    /// When a step is under way, the method keeps no residual, the elements are not there, or a value is NaN or infinite. Nothing is
    /// written then.
    pub fn write_residual(&mut self, start: usize, values: &[f32]) -> Result<(), ConfigError> {
        let call = "write_residual";
        self.between_steps(call)?;
        self.feedback
            .change_residual(call, start, values, |_, given| given)
    }

    /// Adds to the residual from element `start` on: mass that was taken elsewhere and not delivered is given back so.
    ///
    /// # Errors
    /// As [`Collective::write_residual`], for the sums.
    pub fn add_to_residual(&mut self, start: usize, values: &[f32]) -> Result<(), ConfigError> {
        let call = "add_to_residual";
        self.between_steps(call)?;
        self.feedback
            .change_residual(call, start, values, |old, given| old + given)
    }

    /// Takes back a residual without the state of the method, which restarts as if no step had been made: its thresholds and
    /// partitions are found anew. Nothing is lost so, but the next steps do not have the bits of a run that was never stopped.
    ///
    /// # Errors
    /// When a step is under way, or the residual has another length or holds NaN or an infinity.
    pub fn restore_residual(&mut self, residual: &[f32]) -> Result<(), ConfigError> {
        self.between_steps("restore_residual")?;
        self.feedback.check(residual)?;
        self.feedback.restore(residual);
        self.machine
            .restore(&self.fresh)
            .expect("a machine takes back its own state");
        Ok(())
    }

    /// A copy of everything that lives on from step to step.
    pub fn state(&self) -> State {
        State {
            residual: self.residual().to_vec(),
            method: self.machine.state(),
        }
    }

    /// Takes back a saved state.
    ///
    /// # Errors
    /// When a step is under way, or the state does not fit or holds NaN or an infinity.
    pub fn restore(&mut self, state: &State) -> Result<(), ConfigError> {
        self.between_steps("restore")?;
        self.feedback.check(&state.residual)?;
        self.machine.restore(&state.method)?;
        self.feedback.restore(&state.residual);
        Ok(())
    }
}
