//! The data sets by name.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spardl_core::offer;

use super::{
    Data, DataError, cifar, imagenet, imdb, mnist, random, subset, synthetic, synthetic_text, text,
};

/// What to open, and how.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Where the files are: the folder of the set, or one above it.
    pub dir: Option<PathBuf>,
    /// What is random about a set (generated samples, the choice of a part) is drawn from this.
    pub seed: u64,
    /// Learn from this many samples, chosen at random; all if not given.
    pub train_samples: Option<usize>,
    /// Test on this many samples, chosen at random; all if not given.
    pub test_samples: Option<usize>,
    /// Tokens of a sequence, where samples are sequences.
    pub length: Option<usize>,
    /// How many token numbers there may be, those for padding and the like included.
    pub vocabulary: Option<usize>,
    /// What is kept of a sequence that is too long, where samples are sequences of a kind.
    pub kept: Kept,
    /// What a language model has to find.
    pub objective: Objective,
    /// What the tokens of a plain text are.
    pub level: Level,
    /// Rows and columns of an image, where they can be chosen (imagenet, synthetic).
    pub size: Option<usize>,
}

/// What is kept of a sequence that is too long, and where a short one is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// The last tokens, as people come to their verdict at the end; padded after them.
    #[default]
    Last,
    /// The first tokens; padded before them, so that a model that looks at the last output sees a word there.
    First,
}

/// What a language model has to find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The next token, for every token.
    #[default]
    Next,
    /// Tokens that were hidden, by BERT's rule.
    Masked,
}

/// What the tokens of a plain text are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Words and punctuation marks.
    #[default]
    Words,
    /// Characters.
    Characters,
}

/// A data set that can be opened.
#[derive(Debug)]
pub struct Set {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// One line.
    pub about: &'static str,
    /// What is expected on disk.
    pub expects: &'static str,
    /// How to get it.
    pub source: &'static str,
    open: fn(&Request) -> Result<Data, DataError>,
}

/// The data sets that can be opened.
pub const SETS: &[Set] = &[
    Set {
        name: "synthetic",
        title: "the synthetic images",
        about: "generated images of 10 kinds: a smooth pattern, shifted, under noise; 1 x 16 x 16, 8192 for training, 2048 for the test",
        expects: "nothing",
        source: "it is made from the seed",
        open: synthetic::images,
    },
    Set {
        name: "synthetic-text",
        title: "the synthetic text",
        about: "a generated text in which one of four words follows each word; no model gets below a loss of 1.213",
        expects: "nothing",
        source: "it is made from the seed",
        open: synthetic_text::text,
    },
    Set {
        name: "synthetic-reviews",
        title: "the synthetic reviews",
        about: "generated sequences of 20 to 40 words, good or bad, 4096 for training, 1024 for the test",
        expects: "nothing",
        source: "it is made from the seed",
        open: synthetic_text::reviews,
    },
    Set {
        name: "mnist",
        title: "MNIST",
        about: "handwritten digits, 1 x 28 x 28, 10 classes, 60,000 + 10,000",
        expects: "{train,t10k}-{images-idx3,labels-idx1}-ubyte, .gz or not, here or in mnist/ or MNIST/raw/",
        source: "get the four .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ and put them there",
        open: mnist::open,
    },
    Set {
        name: "cifar10",
        title: "CIFAR-10",
        about: "photographs, 3 x 32 x 32, 10 classes, 50,000 + 10,000; cropped and flipped at random",
        expects: "data_batch_{1..5}.bin and test_batch.bin, here or in cifar10/ or cifar-10-batches-bin/",
        source: "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there",
        open: cifar::open10,
    },
    Set {
        name: "cifar100",
        title: "CIFAR-100",
        about: "photographs, 3 x 32 x 32, 100 classes (the fine ones), 50,000 + 10,000; cropped and flipped at random",
        expects: "train.bin and test.bin, here or in cifar100/ or cifar-100-binary/",
        source: "get cifar-100-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there",
        open: cifar::open100,
    },
    Set {
        name: "imagenet",
        title: "ImageNet",
        about: "photographs of any size, made 3 x 224 x 224 (or another size), a class for each folder; decoded when needed, cropped at random",
        expects: "train/ and val/ with a folder of JPEG (or PNG) files for each class, here or in imagenet/",
        source: "get ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from https://image-net.org (after registration) \
                 and unpack them into a folder per class",
        open: imagenet::open,
    },
    Set {
        name: "imdb",
        title: "IMDB",
        about: "film reviews, good or bad, 25,000 + 25,000; the 50,000 most frequent words, the last 500 of a review",
        expects: "{train,test}/{pos,neg}/*.txt, here or in imdb/ or aclImdb/",
        source: "get aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/ and unpack it there",
        open: imdb::open,
    },
    Set {
        name: "text",
        title: "text",
        about: "any plain text, for language models: words or characters; the last tenth is the test set",
        expects: "a .txt file, or a folder of them, or such a folder called text/",
        source: "any text will do, for example a book from https://www.gutenberg.org as plain text",
        open: text::open,
    },
    Set {
        name: "wikitext",
        title: "WikiText",
        about: "articles of Wikipedia, cut into words by its makers (wikitext-2 or wikitext-103), for language models",
        expects: "wiki.train.tokens and wiki.test.tokens (or .raw), here or in wikitext-2/ or wikitext-103/ (or -raw)",
        source: "get the original zip, for example from https://huggingface.co/datasets/mattdangerw/wikitext-103-raw, \
                 and unpack it there",
        open: text::open_wiki,
    },
];

/// Opens a data set by its name.
///
/// # Errors
/// When there is no such set, or its files are not there or damaged, or the request does not fit it.
pub fn open(name: &str, request: &Request) -> Result<Data, DataError> {
    let Some(set) = SETS.iter().find(|set| set.name == name) else {
        let known: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        return Err(DataError::Unknown {
            name: name.to_owned(),
            offer: offer(name, &known).to_string(),
        });
    };
    if request.size.is_some() && !["imagenet", "synthetic"].contains(&set.name) {
        return Err(DataError::FixedSize { title: set.title });
    }
    let mut data = (set.open)(request)?;
    let seed = |word| random::combine(request.seed, word);
    data.train = subset::first(data.train, request.train_samples, seed(1), "training")?;
    data.test = subset::first(data.test, request.test_samples, seed(2), "test")?;
    Ok(data)
}
