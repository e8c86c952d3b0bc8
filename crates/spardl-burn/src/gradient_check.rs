//! Tests: the gradient of every kind of network is the slope of its loss.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use spardl_core::Layout;
use spardl_nets::perceptron;
use spardl_train::data::Task;
use spardl_train::{Batch, IGNORE, Input, Model};

use crate::DeviceChoice;
use crate::dropout::Noise;
use crate::models::bert::{Bert, Size};
use crate::models::lstm::{Sentiment, WordModel};
use crate::models::{lenet::LeNet, mlp::Mlp, resnet::CifarResNet};
use crate::replica::{Network, Replica};

#[test]
fn the_gradient_of_an_mlp_is_the_slope_of_the_loss() {
    let device = device();
    let network = Mlp::sized(12, 8, 3, &device);
    check(network, &[1, 3, 4], &images([1, 3, 4], 3, 5));
}

#[test]
fn the_perceptron_without_an_engine_is_the_one_that_burn_computes() {
    let (shape, classes) = ([1, 28, 28], 10);
    let device = device();
    let network = Mlp::new(shape, classes, &device);
    let mut by_burn = Replica::new(network, 3, &device, &shape).unwrap();
    let mut plain = perceptron(&Task::Images { shape, classes }, 3).unwrap();
    assert_eq!(plain.layout(), by_burn.layout());
    let batch = images(shape, 10, 16);
    let results = [&mut plain as &mut dyn Model, &mut by_burn].map(|model| {
        let mut values = vec![0.0; model.layout().len() as usize];
        let mut gradient = values.clone();
        model.parameters(&mut values);
        let score = model.gradient(&batch, 0, &mut gradient);
        (values, gradient, score.mean_loss())
    });
    let [
        (values, gradient, loss),
        (burn_values, burn_gradient, burn_loss),
    ] = results;
    assert_eq!(values, burn_values);
    assert!((loss - burn_loss).abs() < 1e-6, "{loss} {burn_loss}");
    let largest = gradient
        .iter()
        .fold(0.0f32, |most, slope| most.max(slope.abs()));
    for (at, (one, other)) in gradient.iter().zip(&burn_gradient).enumerate() {
        assert!((one - other).abs() < 1e-5 * largest, "{at}: {one} {other}");
    }
}

#[test]
fn the_gradient_of_lenet_is_the_slope_of_the_loss() {
    let device = device();
    let network = LeNet::new([1, 12, 12], 3, &device);
    check(network, &[1, 12, 12], &images([1, 12, 12], 3, 4));
}

#[test]
fn the_gradient_through_batch_normalisation_is_the_slope_of_the_loss() {
    let device = device();
    let network = CifarResNet::sized(2, 3, 1, 2, &device);
    check(network, &[2, 8, 8], &images([2, 8, 8], 3, 6));
}

#[test]
fn the_gradient_of_a_word_model_is_the_slope_of_the_loss() {
    let network = WordModel::sized(11, 6, 2, &device());
    check(network, &[5], &tokens(5, 11, 3));
}

#[test]
fn the_gradient_of_a_classifier_of_sequences_is_the_slope_of_the_loss() {
    let network = Sentiment::sized(11, 2, 5, &device());
    let mut batch = tokens(7, 11, 4);
    batch.targets = vec![1, 0, 0, 1];
    check(network, &[7], &batch);
}

#[test]
fn the_gradient_of_bert_is_the_slope_of_the_loss_and_an_unused_row_has_none() {
    let size = Size {
        layers: 2,
        width: 8,
        head: 4,
    };
    let network = Bert::new(6, 13, size, &device());
    let mut batch = tokens(6, 13, 3);
    for target in batch.targets.iter_mut().step_by(3) {
        *target = IGNORE;
    }
    let (gradient, layout) = check(network, &[6], &batch);
    let part = layout
        .parts()
        .iter()
        .find(|part| part.name == "segments")
        .unwrap();
    let rows = &gradient[part.offset as usize..][..part.len()];
    assert!(rows[..8].iter().any(|&slope| slope != 0.0));
    assert!(rows[8..].iter().all(|&slope| slope == 0.0));
}

#[test]
fn a_parameter_that_is_not_used_gets_zeros() {
    let linear = || LinearConfig::new(4, 2).init(&device());
    let network = Half {
        used: linear(),
        idle: linear(),
    };
    let mut replica = Replica::new(network, 1, &device(), &[1, 2, 2]).unwrap();
    let mut gradient = vec![7.0; 20];
    replica.gradient(&images([1, 2, 2], 2, 3), 0, &mut gradient);
    assert_eq!(replica.layout().parts()[0].name, "idle.bias");
    assert!(gradient[..10].iter().all(|&slope| slope == 0.0));
    assert!(gradient[10..].iter().all(|&slope| slope != 0.0));
}

#[derive(Module, Debug)]
struct Half {
    used: Linear,
    idle: Linear,
}

impl Network for Half {
    type Input = Tensor<4>;

    fn features(&self, input: Tensor<4>, _noise: &Noise) -> Tensor<2> {
        input.flatten::<2>(1, 3)
    }

    fn head(&self, features: Tensor<2>) -> Tensor<2> {
        self.used.forward(features)
    }
}

/// Moves each tensor along its own gradient: the loss must change by the length of the gradient.
fn check<N: Network>(network: N, shape: &[usize], batch: &Batch) -> (Vec<f32>, Layout) {
    let mut replica = Replica::new(network, 3, &device(), shape).unwrap();
    let n = replica.layout().len() as usize;
    let (mut values, mut gradient, mut scratch) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    replica.parameters(&mut values);
    replica.gradient(batch, 9, &mut gradient);
    let mut moved = 0;
    for part in replica.layout().clone().parts() {
        let range = part.offset as usize..part.offset as usize + part.len();
        let length = norm(&gradient[range.clone()]);
        if length < 1e-6 {
            continue;
        }
        moved += 1;
        let mut loss_at = |step: f64| {
            let mut values = values.clone();
            for at in range.clone() {
                values[at] += (step * f64::from(gradient[at]) / length) as f32;
            }
            replica.set_parameters(&values);
            replica.gradient(batch, 9, &mut scratch).mean_loss()
        };
        let slope = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
        assert!(
            (slope - length).abs() < 0.03 * length + 2e-3,
            "{}: slope {slope}, gradient {length}",
            part.name
        );
    }
    assert!(
        2 * moved > replica.layout().parts().len(),
        "{moved} tensors have a gradient"
    );
    (gradient, replica.layout().clone())
}

/// Small, because a ReLU that changes sides on the way bends the line; not smaller, because of the rounding of f32.
const STEP: f64 = 1e-4;

fn norm(values: &[f32]) -> f64 {
    values
        .iter()
        .map(|&value| f64::from(value).powi(2))
        .sum::<f64>()
        .sqrt()
}

fn device() -> Device {
    DeviceChoice::Flex.open()
}

fn tokens(length: usize, vocabulary: usize, len: usize) -> Batch {
    let token = |at: usize| ((at * at + 3 * at) % vocabulary) as u32;
    Batch {
        len,
        input: Input::Tokens((0..len * length).map(token).collect()),
        targets: (1..=len * length).map(token).collect(),
    }
}

fn images(shape: [usize; 3], classes: u32, len: usize) -> Batch {
    let pixels = len * shape.iter().product::<usize>();
    Batch {
        len,
        input: Input::Pixels((0..pixels).map(|at| (at as f32 * 1.7).sin()).collect()),
        targets: (0..len as u32).map(|at| at % classes).collect(),
    }
}
