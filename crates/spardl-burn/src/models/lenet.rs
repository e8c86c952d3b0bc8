//! LeNet-5.
//!
//! Paper: LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
//! Shape: 5x5 convolutions to 6 and 16 channels, each followed by 2x2 pooling; 120 - 84 - classes. Images of 28 x 28 are
//! padded by 2 as in the paper, larger ones are not; 61,706 parameters for one channel and 10 classes.
//! Differs: ReLU and max pooling instead of scaled tanh and trained averages, all channels of the second convolution connected,
//! a plain linear last layer.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::max_pool;
use crate::dropout::Noise;
use crate::ops::conv::conv as apply;
use crate::replica::Network;

/// Two convolutions and three linear layers.
#[derive(Module, Debug)]
pub(crate) struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl LeNet {
    /// For images of this shape, at least 12 x 12.
    pub(crate) fn new(shape: [usize; 3], classes: usize, device: &Device) -> Self {
        let [channels, rows, columns] = shape;
        let padding = if rows.min(columns) < 32 { 2 } else { 0 };
        let after = |side: usize| ((side + 2 * padding - 4) / 2 - 4) / 2;
        let pixels = after(rows) * after(columns);
        Self {
            conv1: Conv2dConfig::new([channels, 6], [5, 5])
                .with_padding(PaddingConfig2d::Explicit(
                    padding, padding, padding, padding,
                ))
                .init(device),
            conv2: Conv2dConfig::new([6, 16], [5, 5]).init(device),
            fc1: LinearConfig::new(16 * pixels, 120).init(device),
            fc2: LinearConfig::new(120, 84).init(device),
            fc3: LinearConfig::new(84, classes).init(device),
        }
    }
}

impl Network for LeNet {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        // Pooling before ReLU: the same values, a quarter of the work.
        let x = relu(max_pool(apply(&self.conv1, input), 2, 2));
        let x = relu(max_pool(apply(&self.conv2, x), 2, 2));
        let x = relu(self.fc1.forward(x.flatten::<2>(1, 3)));
        relu(self.fc2.forward(x))
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc3.forward(features)
    }
}
