//! What an engine must do: one worker's copy of a network.

use spardl::Layout;

use crate::Batch;

/// One worker's copy of a network.
///
/// Parameters and gradients are flat: the tensors of [`Model::layout`] one after the other, the **last layer first**, because
/// that is the order in which a backward pass produces gradients. Everything must be a function of the arguments and the
/// parameters, bit for bit: no clock, no global random numbers, no sum whose order depends on the number of threads.
pub trait Model {
    /// Names and shapes of the parameters, the last layer first.
    fn layout(&self) -> &Layout;

    /// Copies the parameters into `values`, which has the length of the layout.
    fn parameters(&self, values: &mut [f32]);

    /// Replaces the parameters.
    fn set_parameters(&mut self, values: &[f32]);

    /// What a training pass changes besides: the running statistics of normalisation layers. Often empty.
    fn buffers(&self) -> Vec<f32>;

    /// Replaces what [`Model::buffers`] gave.
    fn set_buffers(&mut self, values: &[f32]);

    /// A forward and a backward pass: writes the gradient of the mean loss of the batch into `gradient`.
    ///
    /// `seed` is for dropout: the same seed, the same gradient.
    fn gradient(&mut self, batch: &Batch, seed: u64, gradient: &mut [f32]) -> Score;

    /// A forward pass as in use: running statistics, no dropout.
    fn evaluate(&mut self, batch: &Batch) -> Score;
}

/// How well a model did on some samples. Scores add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The sum of the losses of all targets that count.
    pub loss: f64,
    /// Targets that were the model's first choice.
    pub correct: u64,
    /// Targets that count.
    pub count: u64,
}

impl Score {
    /// The mean loss of a target.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.count as f64
    }

    /// The part of the targets that was right, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.count as f64
    }

    /// For a message.
    pub fn to_bytes(self) -> [u8; 24] {
        let words = [self.loss.to_bits(), self.correct, self.count];
        let mut bytes = [0; 24];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What [`Score::to_bytes`] wrote; `None` when it did not write this.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        Some(Self {
            loss: f64::from_bits(words.next()?),
            correct: words.next()?,
            count: words.next()?,
        })
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.count += other.count;
    }
}
