//! Running text, cut into windows: what is the next token, or the hidden one?

use super::random::{Stream, combine};
use super::words::{END, MASK};
use super::{DataError, Dataset, Objective};
use crate::{Batch, IGNORE, Input};

/// The first token number that is a word and no sign.
pub(crate) const FIRST_WORD: u32 = END + 1;
/// How many of the tokens are to be found, and what becomes of them: the rule of BERT.
const HIDDEN: f32 = 0.15;
const MASKED: f32 = 0.8;
const REPLACED: f32 = 0.1;
/// Where the masks of a test are drawn from: the same at every test.
const TEST_SEED: u64 = 0x7E57;

/// A text in windows that follow one another without overlap.
pub(crate) struct Windows {
    tokens: Vec<u32>,
    length: usize,
    vocabulary: usize,
    objective: Objective,
}

impl Windows {
    /// A text as token numbers below `vocabulary`.
    pub(crate) fn new(
        tokens: Vec<u32>,
        length: usize,
        vocabulary: usize,
        objective: Objective,
    ) -> Self {
        Self {
            tokens,
            length,
            vocabulary,
            objective,
        }
    }

    /// BERT's rule on one window; at least one token is hidden, or there would be nothing to learn from it.
    fn hide(&self, tokens: &mut [u32], targets: &mut [u32], seed: u64) {
        let mut stream = Stream::new(seed);
        let always = stream.below(tokens.len());
        let mut any = false;
        for at in 0..tokens.len() {
            if stream.chance(HIDDEN) {
                any = true;
                self.hide_one(&mut tokens[at], &mut targets[at], &mut stream);
            }
        }
        if !any {
            self.hide_one(&mut tokens[always], &mut targets[always], &mut stream);
        }
    }

    fn hide_one(&self, token: &mut u32, target: &mut u32, stream: &mut Stream) {
        *target = *token;
        let draw = stream.unit();
        if draw < MASKED {
            *token = MASK;
        } else if draw < MASKED + REPLACED {
            *token = FIRST_WORD + stream.below(self.vocabulary - FIRST_WORD as usize) as u32;
        }
    }
}

impl Dataset for Windows {
    fn len(&self) -> usize {
        let ahead = usize::from(self.objective == Objective::Next);
        self.tokens.len().saturating_sub(ahead) / self.length
    }

    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError> {
        let mut tokens = Vec::with_capacity(samples.len() * self.length);
        let mut targets = Vec::with_capacity(samples.len() * self.length);
        for &sample in samples {
            let start = sample as usize * self.length;
            let row = tokens.len();
            tokens.extend_from_slice(&self.tokens[start..start + self.length]);
            match self.objective {
                Objective::Next => {
                    targets.extend_from_slice(&self.tokens[start + 1..start + 1 + self.length]);
                }
                Objective::Masked => {
                    targets.resize(row + self.length, IGNORE);
                    let seed = combine(seed.unwrap_or(TEST_SEED), u64::from(sample));
                    self.hide(&mut tokens[row..], &mut targets[row..], seed);
                }
            }
        }
        Ok(Batch {
            len: samples.len(),
            input: Input::Tokens(tokens),
            targets,
        })
    }
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            tokens,
            length,
            objective,
            ..
        } = self;
        write!(
            f,
            "Windows {{ tokens: {}, length: {length}, objective: {objective:?} }}",
            tokens.len()
        )
    }
}
