//! Text as token numbers.

use std::collections::HashMap;

use super::DataError;

/// Fills a sequence up to its length.
pub(crate) const PADDING: u32 = 0;
/// A word that the vocabulary does not hold.
pub(crate) const UNKNOWN: u32 = 1;
/// Stands where a masked language model has to find the token. Only in running text, as the next.
pub(crate) const MASK: u32 = 2;
/// The end of a line.
pub(crate) const END: u32 = 3;

/// How text is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokeniser {
    /// Words in lower case, nothing else: for reviews, which are full of markup.
    Reviews,
    /// Words in lower case, every punctuation mark and every end of a line.
    Prose,
    /// What stands between spaces, and every end of a line: the text was cut into tokens by its makers.
    Spaced,
    /// Characters.
    Characters,
}

impl Tokeniser {
    /// What has to be done to a text before it is cut.
    pub(crate) fn clean(self, text: String) -> String {
        match self {
            Self::Reviews => text.to_lowercase().replace("<br />", " "),
            Self::Prose => text.to_lowercase(),
            Self::Spaced | Self::Characters => text,
        }
    }

    /// Calls `each` with the tokens of a clean text, one after the other.
    pub(crate) fn cut<'a>(self, text: &'a str, mut each: impl FnMut(&'a str)) {
        match self {
            Self::Reviews => text
                .split(|c: char| !is_word(c))
                .map(|word| word.trim_matches('\''))
                .filter(|word| !word.is_empty())
                .for_each(each),
            Self::Prose => prose(text, each),
            Self::Spaced => text.split_inclusive('\n').for_each(|line| {
                line.split_whitespace().for_each(&mut each);
                if line.ends_with('\n') {
                    each("\n");
                }
            }),
            Self::Characters => {
                text.char_indices()
                    .for_each(|(at, c)| each(&text[at..at + c.len_utf8()]));
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '\''
}

fn prose<'a>(text: &'a str, mut each: impl FnMut(&'a str)) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        if first == '\n' || !first.is_whitespace() {
            each(&rest[..end]);
        }
        rest = &rest[end..];
    }
}

/// Token numbers of words.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    numbers: HashMap<String, u32>,
    len: usize,
}

impl Vocabulary {
    /// The most frequent words of some clean texts, as many as go with the `special` words into `limit` numbers. Of words that
    /// are equally frequent the first in the alphabet is taken, so that the numbers are the same on every machine.
    pub(crate) fn new<'a>(
        texts: impl Iterator<Item = &'a str>,
        tokeniser: Tokeniser,
        special: &[(&str, u32)],
        limit: usize,
    ) -> Self {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        texts.for_each(|text| tokeniser.cut(text, |word| *counts.entry(word).or_default() += 1));
        for (word, _) in special {
            counts.remove(word);
        }
        let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
        counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let first = special
            .iter()
            .map(|(_, number)| number + 1)
            .max()
            .unwrap_or(0);
        counts.truncate(limit.saturating_sub(first as usize));
        let len = counts.len() + first as usize;
        let frequent = counts
            .iter()
            .zip(first..)
            .map(|(&(word, _), number)| (word, number));
        let numbers = special.iter().copied().chain(frequent);
        Self {
            numbers: numbers
                .map(|(word, number)| (word.to_owned(), number))
                .collect(),
            len,
        }
    }

    /// Token numbers are below this.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends the token numbers of a clean text.
    pub(crate) fn encode(&self, text: &str, tokeniser: Tokeniser, out: &mut Vec<u32>) {
        tokeniser.cut(text, |word| {
            out.push(self.numbers.get(word).copied().unwrap_or(UNKNOWN))
        });
    }
}

/// The vocabulary size asked for, or the usual one.
pub(crate) fn limit(asked: Option<usize>, usual: usize, least: usize) -> Result<usize, DataError> {
    at_least("a vocabulary of", asked, usual, least)
}

/// The length of a sequence asked for, or the usual one.
pub(crate) fn length(asked: Option<usize>, usual: usize) -> Result<usize, DataError> {
    at_least("sequences of length", asked, usual, 1)
}

fn at_least(
    what: &str,
    asked: Option<usize>,
    usual: usize,
    least: usize,
) -> Result<usize, DataError> {
    match asked.unwrap_or(usual) {
        // Token numbers are 32 bits; a batch of longer sequences would fit no memory.
        number if number >= least && number <= 1 << 24 => Ok(number),
        number => Err(DataError::Request(format!(
            "{what} {number} was asked for: expected {least} to {}",
            1 << 24
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(tokeniser: Tokeniser, text: &str) -> Vec<String> {
        let clean = tokeniser.clean(text.to_owned());
        let mut words = Vec::new();
        tokeniser.cut(&clean, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn reviews_lose_markup_and_punctuation() {
        let words = cut(
            Tokeniser::Reviews,
            "It's GREAT!<br /><br />'Really' -- 10/10, señor",
        );
        assert_eq!(words, ["it's", "great", "really", "10", "10", "señor"]);
    }

    #[test]
    fn prose_keeps_marks_and_ends_of_lines() {
        let words = cut(Tokeniser::Prose, "Speak, speak.\n\n  All: I'll");
        assert_eq!(
            words,
            ["speak", ",", "speak", ".", "\n", "\n", "all", ":", "i'll"]
        );
    }

    #[test]
    fn spaced_text_is_taken_as_it_is() {
        let words = cut(Tokeniser::Spaced, " = Robert <unk> = \n \nHe @-@ who");
        assert_eq!(
            words,
            ["=", "Robert", "<unk>", "=", "\n", "\n", "He", "@-@", "who"]
        );
    }

    #[test]
    fn frequent_words_come_first_and_the_rest_is_unknown() {
        let text = "b b c a a d\n<unk>";
        let special = [("<unk>", UNKNOWN), ("\n", END)];
        let vocabulary = Vocabulary::new([text].into_iter(), Tokeniser::Spaced, &special, 7);
        assert_eq!(vocabulary.len(), 7);
        let mut numbers = Vec::new();
        vocabulary.encode("a b c d e\n<unk>", Tokeniser::Spaced, &mut numbers);
        assert_eq!(numbers, [4, 5, 6, UNKNOWN, UNKNOWN, END, UNKNOWN]);
    }

    proptest! {
        #[test]
        fn any_text_is_cut_into_tokens_that_are_not_empty(text in "\\PC*|[a-z'<br />\n\u{0}é😀 ]*") {
            use Tokeniser::{Characters, Prose, Reviews, Spaced};
            for tokeniser in [Reviews, Prose, Spaced, Characters] {
                prop_assert!(cut(tokeniser, &text).iter().all(|word| !word.is_empty()));
            }
            prop_assert_eq!(cut(Characters, &text).concat(), text);
        }
    }
}
