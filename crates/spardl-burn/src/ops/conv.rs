//! Convolutions as matrix products.
//!
//! The samples are taken in groups of about a thousand output pixels. A group is unfolded: for every input channel and every
//! place in the kernel a row with the input that each output pixel sees there, small enough for the cache. The kernel times these
//! rows gives the output; the same rows and the gradient of the output give the gradient of the kernel; and rows of gradients,
//! folded back, that of the input. burn's backward pass turns whole activations around instead, which costs more than the
//! products.

use burn::backend::flex::{FlexTensor, ops::matmul::matmul};
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;

use super::{Pullback, add, inputs, operand, tensor, values};

/// Output pixels of a group, roughly.
const GROUP: usize = 1024;

/// What `layer.forward(x)` gives.
pub(crate) fn conv(layer: &Conv2d, x: Tensor<4>) -> Tensor<4> {
    let padding = match layer.padding {
        PaddingConfig2d::Valid => Some(0),
        PaddingConfig2d::Explicit(top, left, bottom, right)
            if [left, bottom, right] == [top; 3] =>
        {
            Some(top)
        }
        _ => None,
    };
    let plain = layer.groups == 1 && layer.dilation == [1, 1];
    let square = layer.stride[0] == layer.stride[1];
    let (Some(padding), true) = (padding, plain && square) else {
        return layer.forward(x);
    };
    let Some(inputs) = inputs([operand(&x), operand(&layer.weight.val())]) else {
        return layer.forward(x);
    };
    let [x, weight] = inputs.values();
    let convolution = Convolution::new(x, weight, layer.stride[0], padding);
    let output = convolution.forward();
    let output = inputs.finish(output, convolution);
    match &layer.bias {
        Some(bias) => output + bias.val().reshape([1, -1, 1, 1]),
        None => output,
    }
}

/// The sizes of a convolution, its input and its kernel.
#[derive(Clone, Debug)]
struct Convolution {
    x: FlexTensor,
    weight: FlexTensor,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    samples: usize,
    inputs: usize,
    outputs: usize,
    /// Rows and columns of an input, of the kernel and of an output.
    image: [usize; 2],
    kernel: [usize; 2],
    result: [usize; 2],
    stride: usize,
    padding: usize,
}

impl Convolution {
    fn new(x: FlexTensor, weight: FlexTensor, stride: usize, padding: usize) -> Self {
        let [samples, inputs, rows, columns] = x.layout().shape().dims();
        let [outputs, _, high, wide] = weight.layout().shape().dims();
        let after = |side: usize, kernel: usize| (side + 2 * padding - kernel) / stride + 1;
        let shape = Shape {
            samples,
            inputs,
            outputs,
            image: [rows, columns],
            kernel: [high, wide],
            result: [after(rows, high), after(columns, wide)],
            stride,
            padding,
        };
        Self { x, weight, shape }
    }

    fn forward(&self) -> FlexTensor {
        let shape = &self.shape;
        let (x, sample) = (values(&self.x), shape.outputs * shape.pixels());
        let weight = self.weight.reshape([shape.outputs, shape.places()].into());
        let mut output = vec![0.0; shape.samples * sample];
        let mut unfolder = Unfolder::new(shape);
        for (group, output) in shape
            .groups()
            .zip(output.chunks_mut(shape.group() * sample))
        {
            let rows = unfolder.unfold(x, group.clone());
            let product = matmul(weight.clone(), rows);
            shape.scatter(values(&product), group.len(), output);
        }
        let [rows, columns] = shape.result;
        tensor(output, [shape.samples, shape.outputs, rows, columns])
    }
}

impl Pullback<2> for Convolution {
    fn pull(
        self,
        slope: FlexTensor,
        [wants_x, wants_weight]: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let shape = &self.shape;
        let (x, slope) = (values(&self.x), values(&slope));
        let weight = self.weight.reshape([shape.outputs, shape.places()].into());
        let weight = weight.transpose(0, 1);
        let mut turned = vec![0.0; shape.outputs * shape.places()];
        let mut x_slope = vec![0.0; if wants_x { x.len() } else { 0 }];
        let mut unfolder = Unfolder::new(shape);
        for group in shape.groups() {
            let gathered = shape.gather(slope, group.clone());
            if wants_weight {
                // Turned around, so that the product packs the gradient and not the rows, which are longer.
                let rows = unfolder.unfold(x, group.clone());
                let product = matmul(rows, gathered.transpose(0, 1));
                add(&mut turned, values(&product));
            }
            if wants_x {
                let rows = matmul(weight.clone(), gathered);
                unfolder.fold(values(&rows), group, &mut x_slope);
            }
        }
        let [high, wide] = shape.kernel;
        let [rows, columns] = shape.image;
        [
            wants_x.then(|| tensor(x_slope, [shape.samples, shape.inputs, rows, columns])),
            wants_weight.then(|| {
                let turned = tensor(turned, [shape.places(), shape.outputs]);
                let slope = turned.transpose(0, 1).to_contiguous();
                slope.reshape([shape.outputs, shape.inputs, high, wide].into())
            }),
        ]
    }
}

impl Shape {
    /// Output pixels of a sample.
    fn pixels(&self) -> usize {
        self.result[0] * self.result[1]
    }

    /// Rows of an unfolded group.
    fn places(&self) -> usize {
        self.inputs * self.kernel[0] * self.kernel[1]
    }

    /// Samples of a group.
    fn group(&self) -> usize {
        (GROUP / self.pixels()).clamp(1, self.samples)
    }

    fn groups(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (samples, group) = (self.samples, self.group());
        (0..samples)
            .step_by(group)
            .map(move |start| start..samples.min(start + group))
    }

    /// From a matrix with a row per channel to samples one after the other.
    fn scatter(&self, matrix: &[f32], samples: usize, output: &mut [f32]) {
        let pixels = self.pixels();
        for (channel, row) in matrix.chunks_exact(samples * pixels).enumerate() {
            for (sample, row) in row.chunks_exact(pixels).enumerate() {
                output[(sample * self.outputs + channel) * pixels..][..pixels].copy_from_slice(row);
            }
        }
    }

    /// The way back.
    fn gather(&self, slope: &[f32], group: std::ops::Range<usize>) -> FlexTensor {
        let pixels = self.pixels();
        let mut matrix = Vec::with_capacity(self.outputs * group.len() * pixels);
        for channel in 0..self.outputs {
            for sample in group.clone() {
                matrix.extend_from_slice(
                    &slope[(sample * self.outputs + channel) * pixels..][..pixels],
                );
            }
        }
        tensor(matrix, [self.outputs, group.len() * pixels])
    }
}

/// Moves between samples and unfolded rows, by way of an image with its border of zeros.
struct Unfolder {
    shape: Shape,
    /// Columns of an image with its border.
    width: usize,
    bordered: Vec<f32>,
    /// The last group's rows; the next ones take their place.
    rows: FlexTensor,
}

impl Unfolder {
    fn new(shape: &Shape) -> Self {
        let [rows, columns] = shape.image.map(|side| side + 2 * shape.padding);
        Self {
            shape: *shape,
            width: columns,
            bordered: vec![0.0; rows * columns],
            rows: tensor(Vec::new(), [shape.places(), 0]),
        }
    }

    fn unfold(&mut self, x: &[f32], group: std::ops::Range<usize>) -> FlexTensor {
        let Shape {
            inputs,
            image,
            kernel,
            result,
            stride,
            padding,
            ..
        } = self.shape;
        let (size, pixels) = (image[0] * image[1], self.shape.pixels());
        let columns = group.len() * pixels;
        let places = self.shape.places();
        if values(&self.rows).len() != places * columns {
            self.rows = tensor(vec![0.0; places * columns], [places, columns]);
        }
        let matrix = self.rows.storage_mut::<f32>();
        for channel in 0..inputs {
            for (index, sample) in group.clone().enumerate() {
                let image = x[(sample * inputs + channel) * size..]
                    .chunks_exact(image[1])
                    .take(image[0]);
                let border = self.bordered.chunks_exact_mut(self.width).skip(padding);
                for (inner, row) in border.zip(image) {
                    inner[padding..][..row.len()].copy_from_slice(row);
                }
                for place in 0..kernel[0] * kernel[1] {
                    let (down, right) = (place / kernel[1], place % kernel[1]);
                    let row = (channel * kernel[0] * kernel[1] + place) * columns + index * pixels;
                    let row = &mut matrix[row..][..pixels];
                    for (line, row) in row.chunks_exact_mut(result[1]).enumerate() {
                        let seen = &self.bordered[(line * stride + down) * self.width + right..];
                        match stride {
                            1 => row.copy_from_slice(&seen[..row.len()]),
                            _ => {
                                for (to, &from) in row.iter_mut().zip(seen.iter().step_by(stride)) {
                                    *to = from;
                                }
                            }
                        }
                    }
                }
            }
        }
        self.rows.clone()
    }

    /// Adds every element of the rows where it was taken from.
    fn fold(&mut self, matrix: &[f32], group: std::ops::Range<usize>, x: &mut [f32]) {
        let Shape {
            inputs,
            image,
            kernel,
            result,
            stride,
            padding,
            ..
        } = self.shape;
        let (size, pixels) = (image[0] * image[1], self.shape.pixels());
        let columns = group.len() * pixels;
        for channel in 0..inputs {
            for (index, sample) in group.clone().enumerate() {
                self.bordered.fill(0.0);
                for place in 0..kernel[0] * kernel[1] {
                    let (down, right) = (place / kernel[1], place % kernel[1]);
                    let row = (channel * kernel[0] * kernel[1] + place) * columns + index * pixels;
                    let row = &matrix[row..][..pixels];
                    for (line, row) in row.chunks_exact(result[1]).enumerate() {
                        let seen =
                            &mut self.bordered[(line * stride + down) * self.width + right..];
                        match stride {
                            1 => add(&mut seen[..row.len()], row),
                            _ => {
                                for (to, &from) in seen.iter_mut().step_by(stride).zip(row) {
                                    *to += from;
                                }
                            }
                        }
                    }
                }
                let border = self.bordered.chunks_exact(self.width).skip(padding);
                let image = x[(sample * inputs + channel) * size..]
                    .chunks_exact_mut(image[1])
                    .take(image[0]);
                for (row, inner) in image.zip(border) {
                    row.copy_from_slice(&inner[padding..][..row.len()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::conv::Conv2dConfig;
    use burn::tensor::{Device, TensorData};

    use super::*;

    #[test]
    fn it_agrees_with_burns_convolution() {
        let device = Device::flex().autodiff();
        for (samples, channels, kernel, stride, padding) in [
            (3, [2, 3], 3, 1, 1),
            (2, [3, 2], 3, 2, 1),
            (2, [1, 4], 5, 1, 0),
            (2, [2, 2], 1, 2, 0),
            (1, [2, 3], 7, 2, 3),
        ] {
            let layer = Conv2dConfig::new(channels, [kernel, kernel])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(
                    padding, padding, padding, padding,
                ))
                .init(&device);
            let run = |forward: fn(&Conv2d, Tensor<4>) -> Tensor<4>| {
                let len = samples * channels[0] * 9 * 8;
                let pixels: Vec<f32> = (0..len).map(|at| (at as f32 * 1.3).sin()).collect();
                let x = TensorData::new(pixels, [samples, channels[0], 9, 8]);
                let x = Tensor::<4>::from_data(x, &device).require_grad();
                let output = forward(&layer, x.clone());
                let gradients = (output.clone() * output.clone()).sum().backward();
                [
                    output.into_data(),
                    x.grad(&gradients).unwrap().into_data(),
                    layer.weight.val().grad(&gradients).unwrap().into_data(),
                ]
                .map(|data| data.try_to_vec::<f32>().unwrap())
            };
            for (ours, theirs) in run(conv).iter().zip(&run(Conv2d::forward)) {
                assert_eq!(ours.len(), theirs.len());
                for (one, other) in ours.iter().zip(theirs) {
                    assert!(
                        (one - other).abs() < 1e-4 * (1.0 + other.abs()),
                        "{one} {other}"
                    );
                }
            }
        }
    }
}
