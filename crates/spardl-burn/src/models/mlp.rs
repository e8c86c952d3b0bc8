//! A multi-layer perceptron for quick runs.
//!
//! Paper: none; the smallest network that learns something.
//! Shape: pixels - 256 - 256 - classes, ReLU between; 269,322 parameters for 28 x 28 and 10 classes.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use crate::dropout::Noise;
use crate::replica::Network;

const HIDDEN: usize = 256;

/// Two hidden layers.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Mlp {
    /// For images of this shape.
    pub(crate) fn new(shape: [usize; 3], classes: usize, device: &Device) -> Self {
        Self::sized(shape.iter().product(), HIDDEN, classes, device)
    }

    /// With hidden layers of any size.
    pub(crate) fn sized(inputs: usize, hidden: usize, classes: usize, device: &Device) -> Self {
        Self {
            fc1: LinearConfig::new(inputs, hidden).init(device),
            fc2: LinearConfig::new(hidden, hidden).init(device),
            fc3: LinearConfig::new(hidden, classes).init(device),
        }
    }
}

impl Network for Mlp {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        let x = relu(self.fc1.forward(input.flatten::<2>(1, 3)));
        relu(self.fc2.forward(x))
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.fc3.forward(features)
    }
}
