//! Batch normalisation together with what follows it: another branch to add, and ReLU.
//!
//! As one operation it reads its input three times and writes once; as burn's operations it would be a dozen passes.

use burn::backend::flex::FlexTensor;
use burn::nn::BatchNorm;
use burn::tensor::activation::relu;
use burn::tensor::{Tensor, TensorData};

use super::{Pullback, inputs, operand, tensor, values};

/// `relu(layer.forward(x))`.
pub(crate) fn norm_relu(layer: &BatchNorm, x: Tensor<4>) -> Tensor<4> {
    let known = [
        operand(&x),
        operand(&layer.gamma.val()),
        operand(&layer.beta.val()),
    ];
    let Some(inputs) = inputs(known) else {
        return relu(layer.forward(x));
    };
    let values = inputs.values();
    let [x, gamma, beta] = &values;
    let statistics = Statistics::of(layer, x, inputs.training());
    let output = statistics.apply(x, gamma, beta, None);
    let memory = Memory::new(statistics, x, gamma, &output);
    inputs.finish(output, memory)
}

/// `relu(layer.forward(x) + other)`.
pub(crate) fn norm_add_relu(layer: &BatchNorm, x: Tensor<4>, other: Tensor<4>) -> Tensor<4> {
    let (gamma, beta) = (layer.gamma.val(), layer.beta.val());
    let known = [
        operand(&x),
        operand(&gamma),
        operand(&beta),
        operand(&other),
    ];
    let Some(inputs) = inputs(known) else {
        return relu(layer.forward(x) + other);
    };
    let values = inputs.values();
    let [x, gamma, beta, other] = &values;
    let statistics = Statistics::of(layer, x, inputs.training());
    let output = statistics.apply(x, gamma, beta, Some(other));
    let memory = Memory::new(statistics, x, gamma, &output);
    inputs.finish(output, memory)
}

/// The mean of every channel, and one over its standard deviation.
#[derive(Clone, Debug)]
struct Statistics {
    mean: Vec<f32>,
    scale: Vec<f32>,
}

impl Statistics {
    /// Those of the batch, which the running ones then follow; or the running ones.
    fn of(layer: &BatchNorm, x: &FlexTensor, training: bool) -> Self {
        let host = |tensor: Tensor<1>| -> Vec<f32> {
            tensor
                .into_data()
                .try_into_vec()
                .expect("all devices compute in f32")
        };
        let (mean, variance) = match training {
            true => {
                let (mean, variance) = of_batch(x);
                let keep = 1.0 - layer.momentum as f32;
                for (running, new) in [
                    (&layer.running_mean, &mean),
                    (&layer.running_var, &variance),
                ] {
                    let old = running.value_sync();
                    let device = old.device();
                    let values: Vec<f32> = host(old)
                        .iter()
                        .zip(new)
                        .map(|(old, new)| keep * old + (1.0 - keep) * new)
                        .collect();
                    let shape = [values.len()];
                    running.update(Tensor::from_data(TensorData::new(values, shape), &device));
                }
                (mean, variance)
            }
            false => (
                host(layer.running_mean.value()),
                host(layer.running_var.value()),
            ),
        };
        let scale = variance
            .iter()
            .map(|variance| 1.0 / (variance + layer.epsilon as f32).sqrt())
            .collect();
        Self { mean, scale }
    }

    fn apply(
        &self,
        x: &FlexTensor,
        gamma: &FlexTensor,
        beta: &FlexTensor,
        other: Option<&FlexTensor>,
    ) -> FlexTensor {
        let (pixels, channels) = (pixels(x), self.mean.len());
        let (gamma, beta) = (values(gamma), values(beta));
        let mut output = Vec::with_capacity(values(x).len());
        for (at, x) in values(x).chunks_exact(pixels).enumerate() {
            let channel = at % channels;
            let slope = gamma[channel] * self.scale[channel];
            let start = beta[channel] - self.mean[channel] * slope;
            match other {
                None => output.extend(x.iter().map(|x| (x * slope + start).max(0.0))),
                Some(other) => {
                    let other = &values(other)[at * pixels..][..pixels];
                    let sums = x.iter().zip(other);
                    output.extend(sums.map(|(x, other)| (x * slope + start + other).max(0.0)));
                }
            }
        }
        tensor(output, x.layout().shape().clone())
    }
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct Memory {
    statistics: Statistics,
    x: FlexTensor,
    gamma: FlexTensor,
    output: FlexTensor,
}

impl Memory {
    fn new(
        statistics: Statistics,
        x: &FlexTensor,
        gamma: &FlexTensor,
        output: &FlexTensor,
    ) -> Self {
        Self {
            statistics,
            x: x.clone(),
            gamma: gamma.clone(),
            output: output.clone(),
        }
    }

    /// The gradients of the input, gamma, beta, and of what ReLU was given.
    fn gradients(self, slope: FlexTensor) -> [FlexTensor; 4] {
        let (pixels, channels) = (pixels(&self.x), self.statistics.mean.len());
        let (x, output, gamma) = (values(&self.x), values(&self.output), values(&self.gamma));
        // ReLU first: nothing flows where the output is zero.
        let open: Vec<f32> = values(&slope)
            .iter()
            .zip(output)
            .map(|(&slope, &output)| if output > 0.0 { slope } else { 0.0 })
            .collect();
        drop(slope);
        let Statistics { mean, scale } = self.statistics;
        let (mut beta_slope, mut gamma_slope) = (vec![0.0f64; channels], vec![0.0f64; channels]);
        for (at, (open, x)) in open
            .chunks_exact(pixels)
            .zip(x.chunks_exact(pixels))
            .enumerate()
        {
            let channel = at % channels;
            let (sum, product) = sums(open, x, mean[channel]);
            beta_slope[channel] += f64::from(sum);
            gamma_slope[channel] += f64::from(product) * f64::from(scale[channel]);
        }
        let count = (x.len() / channels) as f64;
        let mut x_slope = Vec::with_capacity(x.len());
        for (at, (open, x)) in open
            .chunks_exact(pixels)
            .zip(x.chunks_exact(pixels))
            .enumerate()
        {
            let channel = at % channels;
            let factor = gamma[channel] * scale[channel];
            let turn = factor * scale[channel] * (gamma_slope[channel] / count) as f32;
            let start = mean[channel] * turn - factor * (beta_slope[channel] / count) as f32;
            x_slope.extend(
                open.iter()
                    .zip(x)
                    .map(|(open, x)| open * factor - x * turn + start),
            );
        }
        let shape = self.x.layout().shape().clone();
        let narrow = |sums: Vec<f64>| {
            let len = sums.len();
            tensor(sums.into_iter().map(|sum| sum as f32).collect(), [len])
        };
        [
            tensor(x_slope, shape.clone()),
            narrow(gamma_slope),
            narrow(beta_slope),
            tensor(open, shape),
        ]
    }
}

impl Pullback<3> for Memory {
    fn pull(self, slope: FlexTensor, _wanted: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [x, gamma, beta, _] = self.gradients(slope);
        [x, gamma, beta].map(Some)
    }
}

impl Pullback<4> for Memory {
    fn pull(self, slope: FlexTensor, _wanted: [bool; 4]) -> [Option<FlexTensor>; 4] {
        self.gradients(slope).map(Some)
    }
}

fn pixels(x: &FlexTensor) -> usize {
    let [_, _, rows, columns] = x.layout().shape().dims();
    rows * columns
}

/// The mean and the variance of every channel.
fn of_batch(x: &FlexTensor) -> (Vec<f32>, Vec<f32>) {
    let [_, channels, ..]: [usize; 4] = x.layout().shape().dims();
    let (pixels, x) = (pixels(x), values(x));
    let count = (x.len() / channels) as f64;
    let mut mean = vec![0.0f64; channels];
    for (at, x) in x.chunks_exact(pixels).enumerate() {
        mean[at % channels] += f64::from(sums(x, x, 0.0).0);
    }
    let mean: Vec<f32> = mean.iter().map(|sum| (sum / count) as f32).collect();
    let mut variance = vec![0.0f64; channels];
    for (at, x) in x.chunks_exact(pixels).enumerate() {
        variance[at % channels] += f64::from(squares(x, mean[at % channels]));
    }
    let variance = variance.iter().map(|sum| (sum / count) as f32).collect();
    (mean, variance)
}

/// Independent sums, so that the loops can use vector instructions.
const LANES: usize = 16;

/// The sums of `a` and of `a * (b - mean)`.
fn sums(a: &[f32], b: &[f32], mean: f32) -> (f32, f32) {
    let (mut sum, mut product) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (a_parts, b_parts) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_parts.remainder().iter().zip(b_parts.remainder());
    for (lane, (&a, &b)) in rest.enumerate() {
        sum[lane] = a;
        product[lane] = a * (b - mean);
    }
    for (a, b) in a_parts.zip(b_parts) {
        for lane in 0..LANES {
            sum[lane] += a[lane];
            product[lane] += a[lane] * (b[lane] - mean);
        }
    }
    (sum.iter().sum(), product.iter().sum())
}

/// The sum of the squared distances from `mean`.
fn squares(a: &[f32], mean: f32) -> f32 {
    let mut sum = [0.0f32; LANES];
    let parts = a.chunks_exact(LANES);
    for (lane, &a) in parts.remainder().iter().enumerate() {
        sum[lane] = (a - mean) * (a - mean);
    }
    for a in parts {
        for lane in 0..LANES {
            sum[lane] += (a[lane] - mean) * (a[lane] - mean);
        }
    }
    sum.iter().sum()
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::BatchNormConfig;
    use burn::tensor::Device;

    use super::*;

    type Forward = fn(&BatchNorm, Tensor<4>, Tensor<4>) -> Tensor<4>;

    #[test]
    fn it_agrees_with_burns_operations_in_training_and_in_use() {
        let ours: Forward = |layer, x, other| norm_add_relu(layer, norm_relu(layer, x), other);
        let theirs: Forward = |layer, x, other| {
            let x = relu(layer.forward(x));
            relu(layer.forward(x) + other)
        };
        for (ours, theirs) in run(ours).iter().zip(&run(theirs)) {
            assert_eq!(ours.len(), theirs.len());
            for (one, other) in ours.iter().zip(theirs) {
                assert!(
                    (one - other).abs() < 1e-4 * (1.0 + other.abs()),
                    "{one} {other}"
                );
            }
        }
    }

    fn run(forward: Forward) -> Vec<Vec<f32>> {
        let device = Device::flex().autodiff();
        let mut layer = BatchNormConfig::new(3).init(&device);
        layer.gamma = layer
            .gamma
            .map(|_| Tensor::from_data([0.5, 1.5, -1.0], &device).require_grad());
        let image = |step: f32, device: &Device| {
            let pixels: Vec<f32> = (0..4 * 3 * 25)
                .map(|at| (at as f32 * step).sin() + step)
                .collect();
            Tensor::<4>::from_data(TensorData::new(pixels, [4, 3, 5, 5]), device)
        };
        let (x, other) = (
            image(1.3, &device).require_grad(),
            image(0.7, &device).require_grad(),
        );
        let output = forward(&layer, x.clone(), other.clone());
        let gradients = (output.clone() * image(0.3, &device)).sum().backward();
        let plain = device.clone().without_autodiff();
        let used = forward(&layer.valid(), image(1.3, &plain), image(0.7, &plain));
        let one = [layer.gamma.val(), layer.beta.val()]
            .map(|tensor| tensor.grad(&gradients).unwrap().into_data());
        let four = [x, other].map(|tensor| tensor.grad(&gradients).unwrap().into_data());
        let running = [
            layer.running_mean.value_sync(),
            layer.running_var.value_sync(),
        ]
        .map(Tensor::into_data);
        let outputs = [output.into_data(), used.into_data()];
        let all = outputs.into_iter().chain(one).chain(four).chain(running);
        all.map(|data| data.try_to_vec().unwrap()).collect()
    }
}
