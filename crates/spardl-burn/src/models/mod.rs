//! The networks.

pub(crate) mod alexnet;
pub(crate) mod bert;
pub(crate) mod lenet;
pub(crate) mod lstm;
pub(crate) mod mlp;
pub(crate) mod resnet;
pub(crate) mod resnet50;
pub(crate) mod vgg;

use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor, module};

/// A square convolution without bias, as it stands before a normalisation.
fn conv(
    inputs: usize,
    outputs: usize,
    side: usize,
    stride: usize,
    padding: usize,
    device: &Device,
) -> Conv2d {
    Conv2dConfig::new([inputs, outputs], [side, side])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(
            padding, padding, padding, padding,
        ))
        .with_bias(false)
        .init(device)
}

/// The largest of each square.
fn max_pool(x: Tensor<4>, side: usize, stride: usize) -> Tensor<4> {
    module::max_pool2d(
        x,
        MaxPoolOptions::new([side, side]).with_stride([stride, stride]),
    )
}

/// The mean over all pixels, for each channel.
fn mean_pool(x: Tensor<4>) -> Tensor<2> {
    x.flatten::<3>(2, 3).mean_dim(2).flatten::<2>(1, 2)
}
