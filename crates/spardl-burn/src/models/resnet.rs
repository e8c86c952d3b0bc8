//! Residual networks for CIFAR.
//!
//! Paper: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2016, section 4.2.
//! Shape: a 3x3 convolution to 16 channels; three stages of 16, 32 and 64 channels with `n` blocks of two 3x3 convolutions
//! each; mean over all pixels; linear. 6n + 2 layers: n = 3 (ResNet-20, 269,722 parameters for 10 classes), 9 (ResNet-56,
//! 853,018) and 18 (ResNet-110, 1,727,962). Shortcuts have no parameters (option A): every second pixel, further channels zero.
//! Differs: nothing. The running variance is the biased one, as burn computes it.

use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, s};

use super::{conv, mean_pool};
use crate::dropout::Noise;
use crate::ops::conv::conv as apply;
use crate::ops::norm::{norm_add_relu, norm_relu};
use crate::replica::Network;
use spardl_nets::init::{self, Init, Site};

/// A residual network for small images.
#[derive(Module, Debug)]
pub(crate) struct CifarResNet {
    conv1: Conv2d,
    bn1: BatchNorm,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    fc: Linear,
}

impl CifarResNet {
    /// With this many blocks per stage.
    pub(crate) fn new(channels: usize, classes: usize, blocks: usize, device: &Device) -> Self {
        Self::sized(channels, classes, blocks, 16, device)
    }

    /// With any number of channels in the first stage.
    pub(crate) fn sized(
        channels: usize,
        classes: usize,
        blocks: usize,
        width: usize,
        device: &Device,
    ) -> Self {
        let stage = |inputs, outputs, stride| {
            (0..blocks)
                .map(|block| match block {
                    0 => Block::new(inputs, outputs, stride, device),
                    _ => Block::new(outputs, outputs, 1, device),
                })
                .collect()
        };
        Self {
            conv1: conv(channels, width, 3, 1, 1, device),
            bn1: BatchNormConfig::new(width).init(device),
            layer1: stage(width, width, 1),
            layer2: stage(width, 2 * width, 2),
            layer3: stage(2 * width, 4 * width, 2),
            fc: LinearConfig::new(4 * width, classes).init(device),
        }
    }
}

impl Network for CifarResNet {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        let mut x = norm_relu(&self.bn1, apply(&self.conv1, input));
        for block in self.layer1.iter().chain(&self.layer2).chain(&self.layer3) {
            x = block.forward(x);
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

/// Two convolutions and a way around them.
#[derive(Module, Debug)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    stride: usize,
}

impl Block {
    fn new(inputs: usize, outputs: usize, stride: usize, device: &Device) -> Self {
        Self {
            conv1: conv(inputs, outputs, 3, stride, 1, device),
            bn1: BatchNormConfig::new(outputs).init(device),
            conv2: conv(outputs, outputs, 3, 1, 1, device),
            bn2: BatchNormConfig::new(outputs).init(device),
            stride,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = norm_relu(&self.bn1, apply(&self.conv1, x.clone()));
        let y = apply(&self.conv2, y);
        let channels = y.dims()[1];
        norm_add_relu(&self.bn2, y, self.shortcut(x, channels))
    }

    fn shortcut(&self, x: Tensor<4>, channels: usize) -> Tensor<4> {
        let [samples, inputs, ..] = x.dims();
        let stride = self.stride as isize;
        let x = match stride {
            1 => x,
            _ => x.slice(s![.., .., ..;stride, ..;stride]),
        };
        if channels == inputs {
            return x;
        }
        let [_, _, rows, columns] = x.dims();
        let before = (channels - inputs) / 2;
        let zeros = |channels| Tensor::zeros([samples, channels, rows, columns], &x.device());
        Tensor::cat(
            vec![zeros(before), x.clone(), zeros(channels - inputs - before)],
            1,
        )
    }
}
