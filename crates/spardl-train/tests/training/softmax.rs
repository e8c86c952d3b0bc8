//! Softmax regression: a model whose gradient fits on a screen.

use spardl::Layout;
use spardl_train::{Batch, Input, Model, Score, Task};

/// One matrix and one bias, all zero at first.
#[derive(Clone, Debug)]
pub(crate) struct Softmax {
    layout: Layout,
    classes: usize,
    pixels: usize,
    weights: Vec<f32>,
    /// A stand-in for running statistics: the mean of the first pixel of every batch seen.
    seen: f32,
    rank: u32,
    /// On this rank the loss of this step (from 1) is NaN.
    pub(crate) breaks: Option<(u32, u64)>,
    steps: u64,
}

impl Softmax {
    pub(crate) fn new(task: &Task, rank: u32) -> Self {
        let Task::Images { shape, classes } = *task else {
            panic!("images");
        };
        let pixels = shape.iter().product();
        let tensors = [("bias", vec![classes]), ("weight", vec![classes, pixels])];
        Self {
            layout: Layout::new(tensors).expect("short"),
            classes,
            pixels,
            weights: vec![0.0; classes * (pixels + 1)],
            seen: 0.0,
            rank,
            breaks: None,
            steps: 0,
        }
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Calls `visit` with each sample's pixels, target and class probabilities.
    fn each(&self, batch: &Batch, mut visit: impl FnMut(&[f32], usize, &[f32])) {
        let Input::Pixels(pixels) = &batch.input else {
            panic!("pixels");
        };
        let (bias, weights) = self.weights.split_at(self.classes);
        for (image, target) in pixels.chunks_exact(self.pixels).zip(&batch.targets) {
            let logit = |(row, bias): (&[f32], &f32)| {
                bias + row.iter().zip(image).map(|(w, x)| w * x).sum::<f32>()
            };
            let rows = weights.chunks_exact(self.pixels).zip(bias);
            let logits: Vec<f32> = rows.map(logit).collect();
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers: Vec<f32> = logits.iter().map(|l| (l - most).exp()).collect();
            let sum: f32 = powers.iter().sum();
            let chances: Vec<f32> = powers.iter().map(|p| p / sum).collect();
            visit(image, *target as usize, &chances);
        }
    }
}

fn judge(score: &mut Score, target: usize, chances: &[f32]) {
    score.loss -= f64::from(chances[target].max(1e-30).ln());
    let best = chances.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    score.correct += u64::from(chances[target] == best);
    score.count += 1;
}

impl Model for Softmax {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn parameters(&self, values: &mut [f32]) {
        values.copy_from_slice(&self.weights);
    }

    fn set_parameters(&mut self, values: &[f32]) {
        self.weights.copy_from_slice(values);
    }

    fn buffers(&self) -> Vec<f32> {
        vec![self.seen]
    }

    fn set_buffers(&mut self, values: &[f32]) {
        self.seen = values[0];
    }

    fn gradient(&mut self, batch: &Batch, _seed: u64, gradient: &mut [f32]) -> Score {
        self.steps += 1;
        let (classes, pixels, share) = (self.classes, self.pixels, 1.0 / batch.len as f32);
        let mut score = Score::default();
        gradient.fill(0.0);
        let mut first = 0.0;
        self.each(batch, |image, target, chances| {
            judge(&mut score, target, chances);
            first += image[0];
            for class in 0..classes {
                let slope = share * (chances[class] - f32::from(u8::from(class == target)));
                gradient[class] += slope;
                let row = &mut gradient[classes + class * pixels..][..pixels];
                row.iter_mut().zip(image).for_each(|(g, x)| *g += slope * x);
            }
        });
        // The statistics take part in the gradient, so that a resume that lost them shows.
        self.seen = 0.9 * self.seen + 0.1 * first * share;
        gradient[0] += 1e-3 * self.seen;
        if self.breaks == Some((self.rank, self.steps)) {
            score.loss = f64::NAN;
            self.seen = f32::NAN;
        }
        score
    }

    fn evaluate(&mut self, batch: &Batch) -> Score {
        let mut score = Score::default();
        self.each(batch, |_, target, chances| {
            judge(&mut score, target, chances)
        });
        score
    }
}
