//! What a model is fed with.

/// A target that does not count: padding, or a token that was not masked.
pub const IGNORE: u32 = u32::MAX;

/// Some samples and what a model should say about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The number of samples.
    pub len: usize,
    /// The samples, one after the other.
    pub input: Input,
    /// The right answers: one per sample, or one per token where the task asks for that. [`IGNORE`] does not count.
    pub targets: Vec<u32>,
}

/// The samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Images: channels, then rows, then columns; already normalised.
    Pixels(Vec<f32>),
    /// Sequences of token numbers, all of the same length.
    Tokens(Vec<u32>),
}
