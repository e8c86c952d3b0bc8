//! Text that is made up from a seed.

use std::sync::Arc;

use super::language::{FIRST_WORD, Windows};
use super::random::{Permutation, Stream, combine};
use super::sequences::Sequences;
use super::text::usual_length;
use super::words::{self, UNKNOWN};
use super::{Data, DataError, Dataset, Objective, Request, Task};

/// Tokens to learn from and to be tested on.
const TRAIN: usize = 200_000;
const TEST: usize = 20_000;
/// What may follow a word, with probability 1/2, 1/4, 1/8 and 1/8.
const FOLLOWERS: usize = 4;
/// The entropy of what follows a word.
const BITS: f64 = 1.75;

/// A Markov chain: four words may follow each word, the same four wherever it stands. So no model that says the next word has a
/// mean loss below 1.75 bits, and one that knows the pairs has just that.
pub(crate) fn text(request: &Request) -> Result<Data, DataError> {
    let vocabulary = words::limit(request.vocabulary, 64, FIRST_WORD as usize + FOLLOWERS)?;
    let length = words::length(request.length, usual_length(request.objective))?;
    if length >= TEST {
        return Err(DataError::Request(format!(
            "synthetic sequences of length {length} were asked for: expected less than {TEST}"
        )));
    }
    let followers = Followers {
        seed: combine(request.seed, 0),
        words: vocabulary - FIRST_WORD as usize,
    };
    let part = |tokens, seed| {
        let tokens = followers.walk(tokens, combine(request.seed, seed));
        Arc::new(Windows::new(tokens, length, vocabulary, request.objective)) as Arc<dyn Dataset>
    };
    Ok(Data {
        task: Task::Language { length, vocabulary },
        train: part(TRAIN, 1),
        test: part(TEST, 2),
        floor: (request.objective == Objective::Next).then_some(BITS * std::f64::consts::LN_2),
    })
}

/// Which words follow which.
struct Followers {
    seed: u64,
    words: usize,
}

impl Followers {
    /// A text.
    fn walk(&self, len: usize, seed: u64) -> Vec<u32> {
        let mut stream = Stream::new(seed);
        let mut word = stream.below(self.words);
        let mut next = || {
            // Half, a quarter, an eighth, an eighth: the leading zeros of three bits.
            let choice = ((stream.below(8) as u8).leading_zeros() - (u8::BITS - 3)) as usize;
            word = Permutation::new(combine(self.seed, word as u64), self.words).get(choice);
            FIRST_WORD + word as u32
        };
        (0..len).map(|_| next()).collect()
    }
}

/// Sequences that are good or bad: among words that mean nothing are some that speak for one side, most of them for the right one.
pub(crate) fn reviews(request: &Request) -> Result<Data, DataError> {
    let vocabulary = words::limit(request.vocabulary, 200, UNKNOWN as usize + 1 + 4)?;
    let length = words::length(request.length, 40)?;
    let part = |len, seed| {
        let mut stream = Stream::new(combine(request.seed, seed));
        let mut sequences = Sequences::new(length, request.kept);
        for _ in 0..len {
            let label = stream.below(2);
            let words = length - stream.below(length / 2 + 1);
            let tokens: Vec<u32> = (0..words)
                .map(|_| opinion(label, vocabulary, &mut stream))
                .collect();
            sequences.push(&tokens, label as u8);
        }
        Arc::new(sequences)
    };
    Ok(Data {
        task: Task::Sequences {
            length,
            vocabulary,
            classes: 2,
        },
        train: part(4096, 1),
        test: part(1024, 2),
        floor: None,
    })
}

/// A word of a sequence of this label: the first quarter of the words speak for label 0, the second for label 1.
fn opinion(label: usize, vocabulary: usize, stream: &mut Stream) -> u32 {
    let first = UNKNOWN as usize + 1;
    let quarter = (vocabulary - first) / 4;
    let word = if stream.chance(0.3) {
        let side = if stream.chance(0.8) { label } else { 1 - label };
        side * quarter + stream.below(quarter)
    } else {
        2 * quarter + stream.below(vocabulary - first - 2 * quarter)
    };
    (first + word) as u32
}
