//! BERT as masked language model.
//!
//! Paper: Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for language understanding",
//! 2019; tiny and small from Turc, Chang, Lee, Toutanova, "Well-read students learn better", 2019.
//! Shape: embeddings of words, positions and segments; encoders (attention, two linear layers with GELU, normalisation after
//! each); a linear layer with GELU and normalisation; the word embedding again as decoder, with a bias. Tiny has 2 encoders of
//! 128, small 4 of 512, base 12 of 768, heads of 64. For 30,522 words and 512 positions 4,416,698, 28,795,194 and 109,514,298
//! parameters.
//! Differs: all tokens are of the first segment (the second keeps its row, without a gradient); there is no prediction of the
//! next sentence, and so no pooler; there are as many positions as a sequence of the data set has tokens; no token is padding.

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Device, Int, Tensor};

use crate::dropout::Noise;
use crate::replica::Network;
use spardl_nets::init::{self, Init, Site};

const DROPOUT: f64 = 0.1;

/// How many encoders of which width, and the width of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) head: usize,
}

/// 2 encoders of 128.
pub(crate) const TINY: Size = Size {
    layers: 2,
    width: 128,
    head: 64,
};
/// 4 encoders of 512.
pub(crate) const SMALL: Size = Size {
    layers: 4,
    width: 512,
    head: 64,
};
/// 12 encoders of 768.
pub(crate) const BASE: Size = Size {
    layers: 12,
    width: 768,
    head: 64,
};

/// A masked language model.
#[derive(Module, Debug)]
pub(crate) struct Bert {
    words: Embedding,
    positions: Param<Tensor<2>>,
    segments: Param<Tensor<2>>,
    norm: LayerNorm,
    encoder: Vec<Encoder>,
    transform: Linear,
    transform_norm: LayerNorm,
    bias: Param<Tensor<1>>,
}

impl Bert {
    /// For sequences of `length` tokens below `vocabulary`.
    pub(crate) fn new(length: usize, vocabulary: usize, size: Size, device: &Device) -> Self {
        let zeros = |rows| Param::from_tensor(Tensor::zeros([rows, size.width], device));
        Self {
            words: EmbeddingConfig::new(vocabulary, size.width).init(device),
            positions: zeros(length),
            segments: zeros(2),
            norm: norm(size.width, device),
            encoder: (0..size.layers)
                .map(|_| Encoder::new(size, device))
                .collect(),
            transform: LinearConfig::new(size.width, size.width).init(device),
            transform_norm: norm(size.width, device),
            bias: Param::from_tensor(Tensor::zeros([vocabulary], device)),
        }
    }
}

impl Network for Bert {
    type Input = Tensor<2, Int>;

    fn features(&self, input: Tensor<2, Int>, noise: &Noise) -> Tensor<2> {
        let segment = self.segments.val().narrow(0, 0, 1);
        let place = (self.positions.val() + segment).unsqueeze::<3>();
        let x = self.norm.forward(self.words.forward(input) + place);
        let mut x = noise.drop(x, DROPOUT);
        for encoder in &self.encoder {
            x = encoder.forward(x, noise);
        }
        x.flatten::<2>(0, 1)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        let x = self
            .transform_norm
            .forward(gelu(self.transform.forward(features)));
        x.matmul(self.words.weight.val().transpose()) + self.bias.val().unsqueeze::<2>()
    }

    fn first(site: &Site) -> Init {
        if site.is("gamma") || site.is("beta") {
            init::usual(site)
        } else if site.is("bias") {
            Init::Constant(0.0)
        } else {
            Init::Normal(0.02)
        }
    }
}

/// Attention and two linear layers.
#[derive(Module, Debug)]
struct Encoder {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attention_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    output_norm: LayerNorm,
    head: usize,
}

impl Encoder {
    fn new(size: Size, device: &Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let width = size.width;
        Self {
            query: linear(width, width),
            key: linear(width, width),
            value: linear(width, width),
            attended: linear(width, width),
            attention_norm: norm(width, device),
            wide: linear(width, 4 * width),
            narrow: linear(4 * width, width),
            output_norm: norm(width, device),
            head: size.head,
        }
    }

    fn forward(&self, x: Tensor<3>, noise: &Noise) -> Tensor<3> {
        let attended = self.attended.forward(self.attend(x.clone(), noise));
        let x = self
            .attention_norm
            .forward(x + noise.drop(attended, DROPOUT));
        let output = self.narrow.forward(gelu(self.wide.forward(x.clone())));
        self.output_norm.forward(x + noise.drop(output, DROPOUT))
    }

    fn attend(&self, x: Tensor<3>, noise: &Noise) -> Tensor<3> {
        let [samples, length, width] = x.dims();
        let heads = |x: Tensor<3>| {
            x.reshape([samples, length, width / self.head, self.head])
                .swap_dims(1, 2)
        };
        // Scaled here and not as scores, which are longer.
        let query = heads(self.query.forward(x.clone()) / (self.head as f64).sqrt());
        let key = heads(self.key.forward(x.clone()));
        let value = heads(self.value.forward(x));
        let weights = noise.drop(softmax(query.matmul(key.transpose()), 3), DROPOUT);
        let mixed = weights.matmul(value).swap_dims(1, 2);
        mixed.reshape([samples, length, width])
    }
}

fn norm(width: usize, device: &Device) -> LayerNorm {
    LayerNormConfig::new(width).with_epsilon(1e-12).init(device)
}
