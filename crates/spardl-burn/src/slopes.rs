//! Tests: the gradient of every kind of network is the slope of its loss.

use burn::tensor::Device;
use spardl_train::{Batch, Input, Model};

use crate::DeviceChoice;
use crate::models::{lenet::LeNet, mlp::Mlp, resnet::CifarResNet};
use crate::replica::{Network, Replica};

#[test]
fn the_gradient_of_an_mlp_is_the_slope_of_the_loss() {
    let device = device();
    let network = Mlp::sized(12, 8, 3, &device);
    check(network, &[1, 3, 4], &images([1, 3, 4], 3, 5));
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

/// Moves each tensor along its own gradient: the loss must change by the length of the gradient.
fn check<N: Network>(network: N, shape: &[usize], batch: &Batch) {
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

fn images(shape: [usize; 3], classes: u32, len: usize) -> Batch {
    let pixels = len * shape.iter().product::<usize>();
    Batch {
        len,
        input: Input::Pixels((0..pixels).map(|at| (at as f32 * 1.7).sin()).collect()),
        targets: (0..len as u32).map(|at| at % classes).collect(),
    }
}
