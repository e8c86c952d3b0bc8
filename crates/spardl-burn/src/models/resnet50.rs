//! ResNet-50 for ImageNet.
//!
//! Paper: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2016, table 1.
//! Shape: a 7x7 convolution with stride 2 and 3x3 max pooling with stride 2; stages of 3, 4, 6 and 3 bottlenecks (1x1, 3x3, 1x1)
//! with 256, 512, 1024 and 2048 channels; mean over all pixels; linear. 25,557,032 parameters for 1000 classes.
//! Differs: the stride of a stage is in its first 3x3 convolution (as in all current implementations), not in the 1x1 before it.

use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor, module};

use super::{conv, mean_pool};
use crate::dropout::Noise;
use crate::ops::conv::conv as apply;
use crate::ops::norm::{norm_add_relu, norm_relu};
use crate::replica::Network;
use spardl_nets::init::{self, Init, Site};

/// A residual network for large images.
#[derive(Module, Debug)]
pub(crate) struct ResNet50 {
    conv1: Conv2d,
    bn1: BatchNorm,
    layer1: Vec<Bottleneck>,
    layer2: Vec<Bottleneck>,
    layer3: Vec<Bottleneck>,
    layer4: Vec<Bottleneck>,
    fc: Linear,
}

impl ResNet50 {
    /// For images of any size from 32 x 32.
    pub(crate) fn new(channels: usize, classes: usize, device: &Device) -> Self {
        let stage = |blocks, inputs, width, stride| {
            (0..blocks)
                .map(|block| match block {
                    0 => Bottleneck::new(inputs, width, stride, device),
                    _ => Bottleneck::new(4 * width, width, 1, device),
                })
                .collect()
        };
        Self {
            conv1: conv(channels, 64, 7, 2, 3, device),
            bn1: BatchNormConfig::new(64).init(device),
            layer1: stage(3, 64, 64, 1),
            layer2: stage(4, 256, 128, 2),
            layer3: stage(6, 512, 256, 2),
            layer4: stage(3, 1024, 512, 2),
            fc: LinearConfig::new(2048, classes).init(device),
        }
    }
}

impl Network for ResNet50 {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        let x = norm_relu(&self.bn1, apply(&self.conv1, input));
        let pool = MaxPoolOptions::new([3, 3])
            .with_stride([2, 2])
            .with_padding([1, 1]);
        let mut x = module::max_pool2d(x, pool);
        for stage in [&self.layer1, &self.layer2, &self.layer3, &self.layer4] {
            for block in stage {
                x = block.forward(x);
            }
        }
        mean_pool(x)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc.forward(features)
    }

    fn first(site: &Site) -> Init {
        init::kaiming(site)
    }
}

/// Three convolutions and a way around them.
#[derive(Module, Debug)]
struct Bottleneck {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Conv2d,
    bn3: BatchNorm,
    shortcut: Option<Shortcut>,
}

impl Bottleneck {
    fn new(inputs: usize, width: usize, stride: usize, device: &Device) -> Self {
        let norm = |channels| BatchNormConfig::new(channels).init(device);
        Self {
            conv1: conv(inputs, width, 1, 1, 0, device),
            bn1: norm(width),
            conv2: conv(width, width, 3, stride, 1, device),
            bn2: norm(width),
            conv3: conv(width, 4 * width, 1, 1, 0, device),
            bn3: norm(4 * width),
            shortcut: (inputs != 4 * width).then(|| Shortcut {
                conv: conv(inputs, 4 * width, 1, stride, 0, device),
                bn: norm(4 * width),
            }),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = norm_relu(&self.bn1, apply(&self.conv1, x.clone()));
        let y = norm_relu(&self.bn2, apply(&self.conv2, y));
        let y = apply(&self.conv3, y);
        let around = match &self.shortcut {
            Some(shortcut) => shortcut.bn.forward(apply(&shortcut.conv, x)),
            None => x,
        };
        norm_add_relu(&self.bn3, y, around)
    }
}

/// A projection where the number of channels changes.
#[derive(Module, Debug)]
struct Shortcut {
    conv: Conv2d,
    bn: BatchNorm,
}
