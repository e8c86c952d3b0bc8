//! VGG-16 and VGG-19 for CIFAR.
//!
//! Paper: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015.
//! Shape: five stages of 3x3 convolutions to 64, 128, 256, 512 and 512 channels, each convolution with batch normalisation and
//! ReLU, each stage closed by 2x2 max pooling; one linear layer. For 10 classes 14,728,266 parameters (VGG-16, configuration D)
//! and 20,040,522 (VGG-19, configuration E).
//! Differs: the form that is usual for CIFAR, and in the papers on sparse all-reduce: batch normalisation, and one linear layer
//! instead of three. Convolutions keep their bias, as in the counts above. Pixels that are left after the last stage are
//! averaged, so that larger images fit.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};

use super::{max_pool, mean_pool};
use crate::dropout::Noise;
use crate::ops::conv::conv;
use crate::ops::norm::norm_relu;
use crate::replica::Network;
use spardl_nets::init::{self, Init, Site};

/// A deep stack of convolutions.
#[derive(Module, Debug)]
pub(crate) struct Vgg {
    stages: Vec<Vec<Layer>>,
    fc: Linear,
}

impl Vgg {
    /// Configuration D with 16 layers.
    pub(crate) fn vgg16(channels: usize, classes: usize, device: &Device) -> Self {
        Self::new(channels, classes, [2, 2, 3, 3, 3], device)
    }

    /// Configuration E with 19 layers.
    pub(crate) fn vgg19(channels: usize, classes: usize, device: &Device) -> Self {
        Self::new(channels, classes, [2, 2, 4, 4, 4], device)
    }

    fn new(channels: usize, classes: usize, depths: [usize; 5], device: &Device) -> Self {
        let mut inputs = channels;
        let stage = |(depth, outputs): (usize, usize)| {
            (0..depth)
                .map(|_| Layer::new(std::mem::replace(&mut inputs, outputs), outputs, device))
                .collect()
        };
        Self {
            stages: depths
                .into_iter()
                .zip([64, 128, 256, 512, 512])
                .map(stage)
                .collect(),
            fc: LinearConfig::new(512, classes).init(device),
        }
    }
}

impl Network for Vgg {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        let mut x = input;
        for stage in &self.stages {
            for layer in stage {
                x = layer.forward(x);
            }
            x = max_pool(x, 2, 2);
        }
        mean_pool(x)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc.forward(features)
    }

    fn first(site: &Site) -> Init {
        if site.is("conv.bias") {
            Init::Constant(0.0)
        } else {
            init::kaiming(site)
        }
    }
}

/// A convolution with its normalisation.
#[derive(Module, Debug)]
struct Layer {
    conv: Conv2d,
    bn: BatchNorm,
}

impl Layer {
    fn new(inputs: usize, outputs: usize, device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([inputs, outputs], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device),
            bn: BatchNormConfig::new(outputs).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        norm_relu(&self.bn, conv(&self.conv, x))
    }
}
