//! Sequences of tokens, each of a kind.

use super::words::{PADDING, UNKNOWN};
use super::{DataError, Dataset};
use crate::{Batch, Input};

/// Sequences of tokens in memory, padded at the end when a batch is asked for.
pub(crate) struct Sequences {
    length: usize,
    tokens: Vec<u32>,
    /// Where each sequence ends in `tokens`.
    ends: Vec<usize>,
    labels: Vec<u8>,
}

impl Sequences {
    /// None yet; no sequence will be longer than `length`.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            tokens: Vec::new(),
            ends: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Adds a sequence; of one that is too long the **last** tokens are kept. An empty one becomes a single unknown word: a
    /// model takes the mean over what is not padding, and there is no mean of nothing.
    pub(crate) fn push(&mut self, tokens: &[u32], label: u8) {
        let tokens = if tokens.is_empty() {
            &[UNKNOWN]
        } else {
            tokens
        };
        self.tokens
            .extend_from_slice(&tokens[tokens.len().saturating_sub(self.length)..]);
        self.ends.push(self.tokens.len());
        self.labels.push(label);
    }

    fn get(&self, sample: usize) -> &[u32] {
        let start = sample.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[sample]]
    }
}

impl Dataset for Sequences {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn batch(&self, samples: &[u32], _: Option<u64>) -> Result<Batch, DataError> {
        let mut tokens = Vec::with_capacity(samples.len() * self.length);
        for (row, &sample) in samples.iter().enumerate() {
            tokens.extend_from_slice(self.get(sample as usize));
            tokens.resize((row + 1) * self.length, PADDING);
        }
        let targets = samples
            .iter()
            .map(|&sample| u32::from(self.labels[sample as usize]));
        Ok(Batch {
            len: samples.len(),
            targets: targets.collect(),
            input: Input::Tokens(tokens),
        })
    }
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Sequences {{ length: {}, len: {} }}",
            self.length,
            self.labels.len()
        )
    }
}
