//! Cross entropy, computed on the host.
//!
//! The score needs the logits on the host anyway, and there one pass gives the loss, the first choice and the gradient; the
//! engine's own operations would make half a dozen. The engine takes over from the gradient of the logits.

use spardl_train::{IGNORE, Score};

/// The score of some logits, one row per target, and optionally the gradient of the mean loss, written over the logits.
///
/// A target that is [`IGNORE`] does not count, and its row has no gradient. The sums run in f64 and in order, so the result
/// is a function of the logits.
///
/// # Panics
/// If a target is not below the number of classes.
pub fn score(logits: &mut [f32], targets: &[u32], with_gradient: bool) -> Score {
    let classes = logits.len() / targets.len().max(1);
    let counted = targets.iter().filter(|target| **target != IGNORE);
    let scale = 1.0 / counted.count() as f32;
    let mut score = Score::default();
    for (row, &target) in logits.chunks_exact_mut(classes.max(1)).zip(targets) {
        if target == IGNORE {
            row.fill(0.0);
            continue;
        }
        let target = target as usize;
        assert!(target < classes, "target {target} is not below {classes}");
        let (mut best, mut top) = (0, f32::NEG_INFINITY);
        for (class, &logit) in row.iter().enumerate() {
            if logit > top {
                (best, top) = (class, logit);
            }
        }
        let own = row[target];
        let sum: f64 = row
            .iter()
            .map(|&logit| f64::from((logit - top).exp()))
            .sum();
        score.loss += sum.ln() - f64::from(own - top);
        score.correct += u64::from(best == target);
        score.count += 1;
        if with_gradient {
            let factor = scale / sum as f32;
            for logit in row.iter_mut() {
                *logit = (*logit - top).exp() * factor;
            }
            row[target] -= scale;
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_cost_the_logarithm_of_the_classes() {
        let score = score(&mut [0.5; 8], &[1, 3], false);
        assert!((score.loss - 2.0 * 4f64.ln()).abs() < 1e-6);
        assert_eq!((score.correct, score.count), (0, 2));
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_mean_loss() {
        let logits = [0.3f32, -1.0, 2.0, 0.1, 0.2, -0.4];
        let targets = [2, 0];
        let mut gradient = logits;
        score(&mut gradient, &targets, true);
        for at in 0..logits.len() {
            let moved = |by: f32| {
                let mut logits = logits;
                logits[at] += by;
                score(&mut logits, &targets, false).mean_loss()
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((slope - f64::from(gradient[at])).abs() < 1e-4, "{at}");
        }
    }

    #[test]
    fn a_logit_that_is_not_a_number_shows_in_the_loss() {
        let score = score(&mut [0.0, f32::NAN], &[0], true);
        assert!(score.loss.is_nan());
    }
}
