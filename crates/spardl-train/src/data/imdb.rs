//! IMDB film reviews (Maas et al., 2011), to be told good from bad.

use std::sync::Arc;

use super::disk::{self, Place};
use super::sequences::Sequences;
use super::words::{self, PADDING, Tokeniser, UNKNOWN, Vocabulary};
use super::{Data, DataError, Request, Task};

/// The usual size of the vocabulary, and the usual length of a review.
const VOCABULARY: usize = 50_000;
const LENGTH: usize = 500;
const LABELS: [(&str, u8); 2] = [("neg", 0), ("pos", 1)];

/// Reads the reviews and numbers their words: 0 pads, 1 is a word that is not among the most frequent ones of the training set.
pub(crate) fn open(request: &Request) -> Result<Data, DataError> {
    let limit = words::limit(request.vocabulary, VOCABULARY, 3)?;
    let length = words::length(request.length, LENGTH)?;
    let place = Place::find("imdb", request, &["aclImdb"], &["train/pos", "train/neg"])?;
    let train = reviews(&place, "train")?;
    let texts = train.iter().map(|(text, _)| text.as_str());
    // No review holds these words: they take their numbers and nothing else.
    let special = [("<pad>", PADDING), ("<unk>", UNKNOWN)];
    let vocabulary = Vocabulary::new(texts, Tokeniser::Reviews, &special, limit);
    let encode = |reviews: &[(String, u8)]| {
        let mut sequences = Sequences::new(length, request.kept);
        let mut tokens = Vec::new();
        for (text, label) in reviews {
            tokens.clear();
            vocabulary.encode(text, Tokeniser::Reviews, &mut tokens);
            sequences.push(&tokens, *label);
        }
        Arc::new(sequences)
    };
    let train = encode(&train);
    Ok(Data {
        task: Task::Sequences {
            length,
            vocabulary: vocabulary.len(),
            classes: LABELS.len(),
        },
        train,
        test: encode(&reviews(&place, "test")?),
        floor: None,
    })
}

/// The reviews of a part, cleaned, the bad ones first.
fn reviews(place: &Place, part: &str) -> Result<Vec<(String, u8)>, DataError> {
    let mut reviews = Vec::new();
    for (kind, label) in LABELS {
        let folder = place.folder().join(part).join(kind);
        let missing = || place.missing(&format!("{part}/{kind}/*.txt"));
        if !folder.is_dir() {
            return Err(missing());
        }
        let before = reviews.len();
        for name in disk::names(&folder)?
            .iter()
            .filter(|name| name.ends_with(".txt"))
        {
            let text = disk::text(&folder.join(name))?;
            reviews.push((Tokeniser::Reviews.clean(text), label));
        }
        if reviews.len() == before {
            return Err(missing());
        }
    }
    Ok(reviews)
}
