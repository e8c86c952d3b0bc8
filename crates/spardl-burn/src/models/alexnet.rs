//! AlexNet.
//!
//! Paper: Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks", 2012; the form on
//! one device of Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
//! Shape: for images of 63 x 63 and more five convolutions (11x11 with stride 4 to 64 channels, 5x5 to 192, 3x3 to 384, 256, 256),
//! three 3x3 max poolings with stride 2, the mean of 6 x 6 fields, and linear layers of 4096, 4096 and the classes with dropout:
//! 61,100,840 parameters for 1000 classes. For smaller images, such as CIFAR, the same channels with 3x3 kernels, the first one
//! with stride 2, 2x2 poolings with stride 2, and the linear layers on the fields that are left (2 x 2 for 32 x 32):
//! 23,272,266 parameters for 10 classes.
//! Differs: no local response normalisation, as everywhere today.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, module};

use super::max_pool;
use crate::dropout::Noise;
use crate::ops::conv::conv as apply;
use crate::replica::Network;

/// Images of this side or more get the published form.
const LARGE: usize = 63;
const HIDDEN: usize = 4096;

/// Five convolutions and three linear layers.
#[derive(Module, Debug)]
pub(crate) struct AlexNet {
    conv1: Conv2d,
    conv2: Conv2d,
    conv3: Conv2d,
    conv4: Conv2d,
    conv5: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
    pool: usize,
}

impl AlexNet {
    /// For images of this shape, at least 16 x 16.
    pub(crate) fn new(shape: [usize; 3], classes: usize, device: &Device) -> Self {
        let [channels, rows, columns] = shape;
        let large = rows.min(columns) >= LARGE;
        let conv = |inputs, outputs, side, stride, padding| {
            Conv2dConfig::new([inputs, outputs], [side, side])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(
                    padding, padding, padding, padding,
                ))
                .init(device)
        };
        let (conv1, conv2) = match large {
            true => (conv(channels, 64, 11, 4, 2), conv(64, 192, 5, 1, 2)),
            false => (conv(channels, 64, 3, 2, 1), conv(64, 192, 3, 1, 1)),
        };
        let left = |side: usize| side.div_ceil(2) / 8;
        let fields = if large {
            36
        } else {
            left(rows) * left(columns)
        };
        Self {
            conv1,
            conv2,
            conv3: conv(192, 384, 3, 1, 1),
            conv4: conv(384, 256, 3, 1, 1),
            conv5: conv(256, 256, 3, 1, 1),
            fc1: LinearConfig::new(256 * fields, HIDDEN).init(device),
            fc2: LinearConfig::new(HIDDEN, HIDDEN).init(device),
            fc3: LinearConfig::new(HIDDEN, classes).init(device),
            pool: if large { 3 } else { 2 },
        }
    }
}

impl Network for AlexNet {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, noise: &Noise) -> Tensor<2> {
        // Pooling before ReLU: the same values, a quarter of the work.
        let x = relu(max_pool(apply(&self.conv1, input), self.pool, 2));
        let x = relu(max_pool(apply(&self.conv2, x), self.pool, 2));
        let x = relu(apply(&self.conv3, x));
        let x = relu(apply(&self.conv4, x));
        let x = relu(max_pool(apply(&self.conv5, x), self.pool, 2));
        let x = match self.pool {
            3 => module::adaptive_avg_pool2d(x, [6, 6]),
            _ => x,
        };
        let x = noise.drop(x.flatten::<2>(1, 3), 0.5);
        let x = noise.drop(relu(self.fc1.forward(x)), 0.5);
        relu(self.fc2.forward(x))
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc3.forward(features)
    }
}
