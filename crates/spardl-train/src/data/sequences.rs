//! Sequences of tokens, each of a kind.

use super::words::{PADDING, UNKNOWN};
use super::{DataError, Dataset, Kept};
use crate::{Batch, Input};

/// Sequences of tokens in memory, padded when a batch is asked for: at the end, or before the first words when these are kept.
pub(crate) struct Sequences {
    length: usize,
    kept: Kept,
    tokens: Vec<u32>,
    /// Where each sequence ends in `tokens`.
    ends: Vec<usize>,
    labels: Vec<u8>,
}

impl Sequences {
    /// None yet; no sequence will be longer than `length`, of one that is these tokens are kept.
    pub(crate) fn new(length: usize, kept: Kept) -> Self {
        Self {
            length,
            kept,
            tokens: Vec::new(),
            ends: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Adds a sequence. An empty one becomes a single unknown word: a model takes the mean over what is not padding, and there is
    /// no mean of nothing.
    pub(crate) fn push(&mut self, tokens: &[u32], label: u8) {
        let tokens = if tokens.is_empty() {
            &[UNKNOWN]
        } else {
            tokens
        };
        let tokens = match self.kept {
            Kept::Last => &tokens[tokens.len().saturating_sub(self.length)..],
            Kept::First => &tokens[..tokens.len().min(self.length)],
        };
        self.tokens.extend_from_slice(tokens);
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
            let sequence = self.get(sample as usize);
            if self.kept == Kept::First {
                tokens.resize((row + 1) * self.length - sequence.len(), PADDING);
            }
            tokens.extend_from_slice(sequence);
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
