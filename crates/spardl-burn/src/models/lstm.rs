//! Long short-term memory: a word language model and a sentiment classifier.
//!
//! `lstm`. Paper: Zaremba, Sutskever, Vinyals, "Recurrent neural network regularization", 2014, the medium model.
//! Shape: embedding of 650, two layers of 650, linear to the vocabulary; dropout 0.5 before, between and after the layers, not
//! within a layer. 19,775,200 parameters for 10,000 words.
//! Differs: every sequence starts with an empty state (the paper carries it over from the sequence before). The papers on
//! sparse all-reduce use layers of 1500, 66 million parameters: too slow on a CPU, and nothing else changes with the width.
//!
//! `lstmimdb`. Paper: Hochreiter, Schmidhuber, "Long short-term memory", 1997, as classifier of reviews, in the shape of the
//! program published with SparDL.
//! Shape: embedding of 50, one layer of 100, the last output, linear; 2,560,652 parameters for 50,001 words and two kinds.
//! Differs: one logit for each kind, and one bias of a gate instead of two that are added.
//!
//! `sentiment`. The same, made to learn in a few minutes on a CPU.
//! Shape: embedding of 64, one layer of 64, the means over all tokens that are not padding of the outputs and of the embedding,
//! linear; 1,313,282 parameters for 20,000 words and two kinds.
//! Differs: the means; the last output alone learns slowly, because a review has hundreds of tokens.

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};

use crate::dropout::Noise;
use crate::ops::lstm::lstm;
use crate::replica::Network;
use spardl_nets::init::{self, Init, Site};

/// The medium language model.
const WORDS: usize = 650;
const DROPOUT: f64 = 0.5;
/// The published classifier: its embedding and its layer.
const IMDB: [usize; 2] = [50, 100];
/// The classifier by means.
const REVIEWS: usize = 64;

/// A language model: the next word of each word.
#[derive(Module, Debug)]
pub(crate) struct WordModel {
    embedding: Embedding,
    lstm: Vec<Lstm>,
    decoder: Linear,
}

impl WordModel {
    /// For a vocabulary of this size.
    pub(crate) fn new(vocabulary: usize, device: &Device) -> Self {
        Self::sized(vocabulary, WORDS, 2, device)
    }

    /// Of any width and number of layers.
    pub(crate) fn sized(vocabulary: usize, width: usize, layers: usize, device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(vocabulary, width).init(device),
            lstm: (0..layers)
                .map(|_| Lstm::new(width, width, device))
                .collect(),
            decoder: LinearConfig::new(width, vocabulary).init(device),
        }
    }
}

impl Network for WordModel {
    type Input = Tensor<2, Int>;

    fn features(&self, input: Tensor<2, Int>, noise: &Noise) -> Tensor<2> {
        // Steps first: then the samples of a step are neighbours.
        let mut x = noise.drop(self.embedding.forward(input.swap_dims(0, 1)), DROPOUT);
        for layer in &self.lstm {
            x = noise.drop(layer.forward(x), DROPOUT);
        }
        x.swap_dims(0, 1).flatten::<2>(0, 1)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.decoder.forward(features)
    }

    fn first(site: &Site) -> Init {
        match site.is("decoder.bias") {
            true => Init::Constant(0.0),
            false => Init::Uniform(0.05),
        }
    }
}

/// A classifier of sequences by the last output; what pads them comes first.
#[derive(Module, Debug)]
pub(crate) struct LastOutput {
    embedding: Embedding,
    lstm: Lstm,
    fc: Linear,
}

impl LastOutput {
    /// For a vocabulary of this size.
    pub(crate) fn new(vocabulary: usize, classes: usize, device: &Device) -> Self {
        let [embedding, width] = IMDB;
        Self {
            embedding: EmbeddingConfig::new(vocabulary, embedding).init(device),
            lstm: Lstm::new(embedding, width, device),
            fc: LinearConfig::new(width, classes).init(device),
        }
    }
}

impl Network for LastOutput {
    type Input = Tensor<2, Int>;

    fn features(&self, input: Tensor<2, Int>, _noise: &Noise) -> Tensor<2> {
        let [_, steps] = input.dims();
        let words = self.embedding.forward(input.swap_dims(0, 1));
        let outputs = self.lstm.forward(words);
        outputs.narrow(0, steps - 1, 1).flatten::<2>(0, 1)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc.forward(features)
    }

    fn first(site: &Site) -> Init {
        if site.is("embedding.weight") {
            Init::Normal(1.0)
        } else {
            Lstm::first(site).unwrap_or_else(|| init::usual(site))
        }
    }
}

/// A classifier of sequences by means; token 0 is padding.
#[derive(Module, Debug)]
pub(crate) struct Sentiment {
    embedding: Embedding,
    lstm: Lstm,
    fc: Linear,
}

impl Sentiment {
    /// For a vocabulary of this size.
    pub(crate) fn new(vocabulary: usize, classes: usize, device: &Device) -> Self {
        Self::sized(vocabulary, classes, REVIEWS, device)
    }

    /// Of any width.
    pub(crate) fn sized(vocabulary: usize, classes: usize, width: usize, device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(vocabulary, width).init(device),
            lstm: Lstm::new(width, width, device),
            fc: LinearConfig::new(2 * width, classes).init(device),
        }
    }
}

impl Network for Sentiment {
    type Input = Tensor<2, Int>;

    fn features(&self, input: Tensor<2, Int>, _noise: &Noise) -> Tensor<2> {
        let input = input.swap_dims(0, 1);
        let counts = input.clone().not_equal_elem(0).float();
        let weights = counts.clone() / counts.sum_dim(0).clamp_min(1.0);
        let weights = weights.unsqueeze_dim::<3>(2);
        let words = self.embedding.forward(input);
        let mean = |x: Tensor<3>| (x * weights.clone()).sum_dim(0).flatten::<2>(0, 1);
        let outputs = self.lstm.forward(words.clone());
        Tensor::cat(vec![mean(outputs), mean(words)], 1)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc.forward(features)
    }

    fn first(site: &Site) -> Init {
        if site.is("embedding.weight") {
            Init::Normal(0.3)
        } else {
            Lstm::first(site).unwrap_or_else(|| init::usual(site))
        }
    }
}

/// A layer.
#[derive(Module, Debug)]
struct Lstm {
    /// From the input to the four gates.
    input: Linear,
    /// From the last output to the four gates.
    recurrent: Param<Tensor<2>>,
}

impl Lstm {
    fn new(inputs: usize, width: usize, device: &Device) -> Self {
        Self {
            input: LinearConfig::new(inputs, 4 * width).init(device),
            recurrent: Param::from_tensor(Tensor::zeros([width, 4 * width], device)),
        }
    }

    /// From `[steps, samples, inputs]` to `[steps, samples, width]`.
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        lstm(self.input.forward(x), self.recurrent.val())
    }

    /// Uniform within one over the square root of the width.
    fn first(site: &Site) -> Option<Init> {
        let width = *site.shape.last()? as f64 / 4.0;
        (site.is("input.weight") || site.is("input.bias") || site.is("recurrent"))
            .then(|| Init::Uniform((1.0 / width).sqrt()))
    }
}
