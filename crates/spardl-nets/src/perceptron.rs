//! A multi-layer perceptron, computed here.
//!
//! Paper: none; the smallest network that learns something.
//! Shape: pixels - 256 - 256 - classes, ReLU between; 269,322 parameters for 28 x 28 and 10 classes.
//! Its sums have one order at every SIMD level, so that a run gives the same numbers on every machine.

use std::ops::Range;

use spardl_core::{ConfigError, Layout};
use spardl_kernels::{Factor, Level, add_product};
use spardl_train::data::Task;
use spardl_train::{Batch, Input, Model, Score};

use crate::init::{self, Site};
use crate::{BuildError, Entry, find, loss};

/// The name of the network that is computed here.
pub const PERCEPTRON: &str = "mlp";

const HIDDEN: usize = 256;

/// The network `mlp` for `task`, its parameters drawn from `seed`.
///
/// # Errors
/// When it does not fit the task.
pub fn perceptron(task: &Task, seed: u64) -> Result<Perceptron, BuildError> {
    let (entry, widths) = widths(task)?;
    Perceptron::new(&widths, seed).map_err(too_large(entry))
}

/// Names and shapes of the parameters that [`perceptron`] would make, without making them.
///
/// # Errors
/// As [`perceptron`].
pub fn perceptron_layout(task: &Task) -> Result<Layout, BuildError> {
    let (entry, widths) = widths(task)?;
    layout(&sites(&widths)).map_err(too_large(entry))
}

fn widths(task: &Task) -> Result<(&'static Entry, [usize; 4]), BuildError> {
    let entry = find(PERCEPTRON)?;
    entry.check(task)?;
    let Task::Images { shape, classes } = *task else {
        unreachable!("checked: it is for images")
    };
    Ok((entry, [shape.iter().product(), HIDDEN, HIDDEN, classes]))
}

fn too_large(entry: &'static Entry) -> impl Fn(ConfigError) -> BuildError {
    |source| BuildError::TooLarge {
        name: entry.name,
        source,
    }
}

/// Linear layers with ReLU between them.
#[derive(Debug)]
pub struct Perceptron {
    layout: Layout,
    layers: Vec<Linear>,
    values: Vec<f32>,
}

/// A linear layer, and where its parameters are.
#[derive(Debug)]
struct Linear {
    inputs: usize,
    outputs: usize,
    /// A row for each input.
    weight: Range<usize>,
    bias: Range<usize>,
}

impl Perceptron {
    /// Layers between these widths, the pixels first and the classes last.
    fn new(widths: &[usize], seed: u64) -> Result<Self, ConfigError> {
        let sites = sites(widths);
        // Before any memory is taken for the values.
        let layout = layout(&sites)?;
        let values = sites.iter().rev();
        let values = values.flat_map(|site| init::draw(init::usual(site), seed, site));
        let values: Vec<f32> = values.collect();
        let mut end = values.len();
        let layers = widths.windows(2).map(|pair| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let weight = end - inputs * outputs..end;
            let bias = weight.start - outputs..weight.start;
            end = bias.start;
            Linear {
                inputs,
                outputs,
                weight,
                bias,
            }
        });
        Ok(Self {
            layers: layers.collect(),
            layout,
            values,
        })
    }

    /// What every layer reads, and the logits.
    fn forward(&self, batch: &Batch) -> Vec<Vec<f32>> {
        let Input::Pixels(pixels) = &batch.input else {
            panic!("a network for images was given tokens");
        };
        let mut outputs = vec![pixels.clone()];
        for (at, layer) in self.layers.iter().enumerate() {
            let mut output = layer.forward(&self.values, &outputs[at]);
            if at + 1 < self.layers.len() {
                relu(&mut output);
            }
            outputs.push(output);
        }
        outputs
    }
}

impl Model for Perceptron {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn parameters(&self, values: &mut [f32]) {
        values.copy_from_slice(&self.values);
    }

    fn set_parameters(&mut self, values: &[f32]) {
        self.values.copy_from_slice(values);
    }

    fn buffers(&self) -> Vec<f32> {
        Vec::new()
    }

    fn set_buffers(&mut self, values: &[f32]) {
        assert!(values.is_empty(), "a perceptron has no buffers");
    }

    fn gradient(&mut self, batch: &Batch, _seed: u64, gradient: &mut [f32]) -> Score {
        let mut outputs = self.forward(batch);
        let mut slope = outputs.pop().expect("the logits");
        let score = loss::score(&mut slope, &batch.targets, true);
        for (layer, input) in self.layers.iter().zip(&outputs).rev() {
            layer.backward(input, &slope, gradient);
            // Nothing learns from the pixels.
            if layer.weight.end < self.values.len() {
                slope = layer.input_slope(&self.values, &slope);
                pass_where_positive(&mut slope, input);
            }
        }
        score
    }

    fn evaluate(&mut self, batch: &Batch) -> Score {
        let mut logits = self.forward(batch).pop().expect("the logits");
        loss::score(&mut logits, &batch.targets, false)
    }
}

impl Linear {
    fn forward(&self, values: &[f32], input: &[f32]) -> Vec<f32> {
        let samples = input.len() / self.inputs;
        let mut output = values[self.bias.clone()].repeat(samples);
        let weight = &values[self.weight.clone()];
        add_product(
            Level::best(),
            Factor::new(input, self.inputs),
            weight,
            &mut output,
            self.outputs,
        );
        output
    }

    /// The gradients of weight and bias.
    fn backward(&self, input: &[f32], slope: &[f32], gradient: &mut [f32]) {
        let bias = &mut gradient[self.bias.clone()];
        bias.fill(0.0);
        for row in slope.chunks_exact(self.outputs) {
            for (sum, &slope) in bias.iter_mut().zip(row) {
                *sum += slope;
            }
        }
        let weight = &mut gradient[self.weight.clone()];
        weight.fill(0.0);
        let turned = Factor::new(input, self.inputs).transposed();
        add_product(Level::best(), turned, slope, weight, self.outputs);
    }

    /// The gradient of what the layer read.
    fn input_slope(&self, values: &[f32], slope: &[f32]) -> Vec<f32> {
        let weight = &values[self.weight.clone()];
        let mut turned = vec![0.0; weight.len()];
        for (input, row) in weight.chunks_exact(self.outputs).enumerate() {
            for (output, &value) in row.iter().enumerate() {
                turned[output * self.inputs + input] = value;
            }
        }
        let mut into = vec![0.0; slope.len() / self.outputs * self.inputs];
        let slope = Factor::new(slope, self.outputs);
        add_product(Level::best(), slope, &turned, &mut into, self.inputs);
        into
    }
}

/// The parameters, the first layer first.
fn sites(widths: &[usize]) -> Vec<Site> {
    let layers = (1..).zip(widths.windows(2));
    let sites = layers.flat_map(|(number, pair)| {
        let site = |name, shape| Site {
            name: format!("fc{number}.{name}"),
            shape,
            fan_in: pair[0],
        };
        [site("weight", pair.to_vec()), site("bias", vec![pair[1]])]
    });
    sites.collect()
}

fn layout(sites: &[Site]) -> Result<Layout, ConfigError> {
    let last_first = sites.iter().rev();
    Layout::new(last_first.map(|site| (site.name.clone(), site.shape.clone())))
}

fn relu(values: &mut [f32]) {
    for value in values {
        // Not `max`, which would turn NaN into 0: a step that is not finite must be seen.
        if *value <= 0.0 {
            *value = 0.0;
        }
    }
}

fn pass_where_positive(slope: &mut [f32], values: &[f32]) {
    for (slope, &value) in slope.iter_mut().zip(values) {
        if value <= 0.0 {
            *slope = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use spardl_train::IGNORE;

    use super::*;

    fn batch(len: usize, pixels: usize) -> Batch {
        let pixels = (0..len * pixels).map(|at| (at as f32 * 1.7).sin());
        Batch {
            len,
            input: Input::Pixels(pixels.collect()),
            targets: (0..len as u32).map(|at| at % 3).collect(),
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut model = Perceptron::new(&[12, 8, 7, 3], 4).expect("small");
        let mut batch = batch(5, 12);
        batch.targets[2] = IGNORE;
        let mut gradient = vec![9.0; model.layout().len() as usize];
        let score = model.gradient(&batch, 0, &mut gradient);
        assert_eq!(score.count, 4);
        assert_eq!(score, model.evaluate(&batch));
        let start = model.values.clone();
        for at in 0..start.len() {
            let mut moved = |by: f32| {
                let mut values = start.clone();
                values[at] += by;
                model.set_parameters(&values);
                model.evaluate(&batch).mean_loss()
            };
            // At a corner of a ReLU the slopes to both sides differ, and the gradient is between them.
            let [left, here, right] = [-1e-3, 0.0, 1e-3].map(&mut moved);
            let sides = [(here - left) / 1e-3, (right - here) / 1e-3];
            let (low, high) = (sides[0].min(sides[1]), sides[0].max(sides[1]));
            let slope = f64::from(gradient[at]);
            let fits = (low - 1e-3..=high + 1e-3).contains(&slope);
            assert!(fits, "{at}: {slope} is not between {low} and {high}");
        }
    }

    #[test]
    fn the_parameters_are_where_the_layout_says() {
        let task = Task::Images {
            shape: [1, 28, 28],
            classes: 10,
        };
        let model = perceptron(&task, 1).expect("fits");
        assert_eq!(model.layout(), &perceptron_layout(&task).expect("fits"));
        assert_eq!(model.layout().len(), 269_322);
        let names = model.layout().parts().iter().map(|part| &part.name[..]);
        let names: Vec<_> = names.collect();
        assert_eq!(names[..2], ["fc3.bias", "fc3.weight"]);
        assert_eq!(names[4..], ["fc1.bias", "fc1.weight"]);
        for (layer, parts) in model
            .layers
            .iter()
            .rev()
            .zip(model.layout().parts().chunks(2))
        {
            assert_eq!(layer.bias.start as u32, parts[0].offset);
            assert_eq!(layer.weight.start as u32, parts[1].offset);
            assert_eq!(layer.weight.len(), parts[1].len());
        }
    }

    #[test]
    fn what_is_not_a_number_reaches_the_loss() {
        let mut model = Perceptron::new(&[12, 8, 3], 4).expect("small");
        let mut batch = batch(2, 12);
        batch.input = Input::Pixels(vec![f32::NAN; 24]);
        let mut gradient = vec![0.0; model.layout().len() as usize];
        assert!(model.gradient(&batch, 0, &mut gradient).loss.is_nan());
    }
}
