//! The length of the lists that B-SAG exchanges between teams.
//!
//! Each team sends the `h` largest entries of its block; the union of the `d` lists should have about the quota `q` of entries.
//! If the teams agree, `h = q` is right; if they share nothing, `h = q/d`. The controller walks towards the point where
//! the union just fills the quota; all workers of a column see the same union, so their `h` stays equal without a word.

use spardl_core::{ConfigError, MethodState};

/// The controller of `h`, one per position in the team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AdaptiveLength {
    /// The current length; 0 before the first use.
    h: usize,
    step: i64,
    inertia: bool,
}

impl AdaptiveLength {
    /// The length for a quota of `q` and `d` teams: within `ceil(q/d)..=q`.
    pub(super) fn length(&mut self, q: usize, d: usize) -> usize {
        let least = q.div_ceil(d);
        if self.h == 0 {
            self.h = least;
            self.step = ((q - least) as i64 / 100).max(1);
        }
        self.h.clamp(least, q)
    }

    /// Learns from the size of a union.
    pub(super) fn learn(&mut self, union: usize, q: usize, d: usize) {
        let over = union > q;
        if over != (self.step > 0) {
            // The step already points the right way: the second time in a row it doubles.
            if self.inertia {
                self.step *= 2;
            }
            self.inertia = !self.inertia;
        } else {
            self.step = if self.step.abs() > 1 {
                -self.step / 2
            } else {
                -self.step
            };
            self.inertia = false;
        }
        let (least, most) = (q.div_ceil(d) as i64, q as i64);
        let current = (self.h as i64).clamp(least, most);
        self.h = (current + self.step).clamp(least, most) as usize;
        // A step longer than the whole range only delays the way back.
        let span = (most - least).max(1);
        self.step = self.step.clamp(-span, span);
    }

    pub(super) fn save(&self) -> MethodState {
        MethodState::default().with_u64(
            "adaptive-length",
            vec![self.h as u64, self.step as u64, u64::from(self.inertia)],
        )
    }

    pub(super) fn load(state: &MethodState) -> Result<Self, ConfigError> {
        match state.u64("adaptive-length")? {
            &[h, step, inertia] => Ok(Self {
                h: h as usize,
                // A step is never longer than a list; what exceeds that is no step that was saved.
                step: (step as i64).clamp(-i64::from(u32::MAX), i64::from(u32::MAX)),
                inertia: inertia != 0,
            }),
            other => Err(ConfigError::StateMismatch {
                what: "the length of adaptive-length".to_owned(),
                expected: "3".to_owned(),
                got: other.len().to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean union over the quota when `d` lists of `h` entries share a part `overlap` of their entries.
    fn mean_fill(q: usize, d: usize, overlap: f64) -> f64 {
        let mut length = AdaptiveLength::default();
        let (mut total, steps) = (0.0, 2000);
        for step in 0..steps {
            let h = length.length(q, d);
            assert!((q.div_ceil(d)..=q).contains(&h));
            let union = (h as f64 * (1.0 + (d - 1) as f64 * (1.0 - overlap))).round() as usize;
            length.learn(union, q, d);
            if step >= steps / 2 {
                total += union as f64 / q as f64;
            }
        }
        total / f64::from(steps / 2)
    }

    #[test]
    fn the_union_fills_the_quota_whatever_the_teams_share() {
        for q in [8, 50, 1000, 20_000] {
            for d in [2, 3, 4, 8] {
                for overlap in [0.0, 0.3, 0.7, 1.0] {
                    // For d lists that share little, rounding q/d up may by itself exceed the quota.
                    let rounding = d as f64 / q as f64;
                    let fill = mean_fill(q, d, overlap);
                    assert!(
                        (fill - 1.0).abs() <= 0.05 + rounding,
                        "q {q} d {d} {overlap}: {fill}"
                    );
                }
            }
        }
    }
}
