//! Steps that can be followed by hand.

use super::*;

const PLAIN: Options = Options {
    rule: Rule::Sgd,
    momentum: 0.5,
    sparse_momentum: SparseMomentum::Auto,
    nesterov: false,
    weight_decay: 0.0,
    momentum_correction: false,
    factor_masking: false,
    clip: None,
    no_decay_below_dims: 0,
    adam: AdamOptions::USUAL,
};

/// An optimiser of one tensor.
fn optimiser(options: Options, len: usize) -> Optimiser {
    let layout = Layout::new([("w".to_owned(), vec![len])]).expect("a short tensor");
    Optimiser::new(options, &layout, 0)
}

fn dense(lr: f32) -> Pace {
    Pace { lr, density: 1.0 }
}

/// Where one parameter gets to from 1 with these gradients, one worker, everything delivered.
fn walk(options: Options, gradients: &[f32], lr: impl Fn(usize) -> f32) -> f32 {
    let (mut optimiser, mut parameter) = (optimiser(options, 1), [1.0]);
    for (step, gradient) in gradients.iter().enumerate() {
        let mut gradient = [*gradient];
        optimiser.prepare(&mut gradient, lr(step));
        optimiser.apply(&mut parameter, &gradient, dense(lr(step)));
    }
    parameter[0]
}

#[test]
fn momentum_and_decay_come_after_the_reduction() {
    // v = 2, w = 1 - 0.25 * 2; v = 1 + 4, w -= 0.25 * 5.
    assert_eq!(walk(PLAIN, &[2.0, 4.0], |_| 0.25), -0.75);
    let decay = Options {
        weight_decay: 0.5,
        ..PLAIN
    };
    // slope = 2 + 0.5, v = 2.5, w = 1 - 0.625.
    assert_eq!(walk(decay, &[2.0], |_| 0.25), 0.375);
    let nesterov = Options {
        nesterov: true,
        ..PLAIN
    };
    // v = 2, step = 2 + 0.5 * 2.
    assert_eq!(walk(nesterov, &[2.0], |_| 0.25), 0.25);
}

#[test]
fn with_everything_delivered_all_rules_walk_the_same_way() {
    let correction = Options {
        momentum_correction: true,
        ..PLAIN
    };
    let inside = Options {
        rule: Rule::OkTopk,
        ..correction
    };
    let gradients = [2.0, 4.0, -1.0, 0.5];
    let plain = walk(PLAIN, &gradients, |_| 0.25);
    assert_eq!(walk(correction, &gradients, |_| 0.25), plain);
    assert_eq!(walk(inside, &gradients, |_| 0.25), plain);
    // Weight decay has the same momentum under all of them: v = 0.5, w = 0.875; v = 0.25 + 0.4375, w -= 0.25 v.
    for options in [PLAIN, correction, inside] {
        let decay = Options {
            weight_decay: 0.5,
            ..options
        };
        assert_eq!(walk(decay, &[0.0, 0.0], |_| 0.25), 0.703_125);
    }
}

#[test]
fn a_step_that_holds_mass_back_hands_momentum_over_and_keeps_its_length() {
    let pace = |density| Pace { lr: 0.25, density };
    let none_left = Options {
        sparse_momentum: SparseMomentum::Fixed(0.0),
        ..PLAIN
    };
    let mut optimiser = optimiser(none_left, 1);
    let mut parameter = [1.0];
    optimiser.apply(&mut parameter, &[2.0], pace(1.0));
    assert_eq!((parameter, optimiser.velocity()), ([0.5], &[2.0][..]));
    // The velocity is dropped and the rate is doubled: w = 0.5 - 0.25 / (1 - 0.5) * 0.5.
    optimiser.apply(&mut parameter, &[0.5], pace(0.01));
    assert_eq!((parameter, optimiser.velocity()), ([0.25], &[0.0][..]));
    // Back in dense steps momentum starts from rest.
    optimiser.apply(&mut parameter, &[1.0], pace(1.0));
    assert_eq!((parameter, optimiser.velocity()), ([0.0], &[1.0][..]));
}

#[test]
fn by_default_an_element_has_the_momentum_that_its_wait_leaves() {
    let pace = |density| Pace { lr: 0.25, density };
    let mut optimiser = optimiser(PLAIN, 2);
    let mut parameters = [1.0, 1.0];
    optimiser.apply(&mut parameters, &[2.0, 2.0], pace(1.0));
    assert_eq!(parameters, [0.5, 0.5]);
    // The first is delivered at once, the second waits: both go on with their velocity of 2.
    optimiser.apply(&mut parameters, &[4.0, 0.0], pace(0.01));
    assert_eq!(parameters, [-0.75, 0.25]);
    assert_eq!(
        (optimiser.velocity(), optimiser.waits()),
        (&[5.0, 1.0][..], &[0.0, 1.0][..])
    );
    // After two steps 5/4 of 4 is due, and 3/4 goes into the velocity.
    optimiser.apply(&mut parameters, &[0.0, 4.0], pace(0.01));
    assert_eq!(parameters, [-1.375, -1.125]);
    assert_eq!(
        (optimiser.velocity(), optimiser.waits()),
        (&[2.5, 3.5][..], &[1.0, 0.0][..])
    );
    // A dense step delivers all: what the first waited for counts as two steps, and the second as one.
    optimiser.apply(&mut parameters, &[4.0, 4.0], pace(1.0));
    assert_eq!(parameters, [-1.375 - 1.25 - 0.3125, -1.125 - 1.0 - 0.4375]);
    assert_eq!(optimiser.waits(), [0.0, 0.0]);
    optimiser.apply(&mut parameters, &[0.0, 0.0], pace(1.0));
    assert_eq!(optimiser.waits(), [0.0, 0.0]);
}

/// Momentum on gradients of which each element's sum is delivered now and then, in f64 and straight from the definition: a
/// delivery after t steps is t equal gradients, whose velocities are followed one by one.
fn walk_by_wait(deliveries: &[Option<f64>], lr: impl Fn(usize) -> f64, m: f64, decay: f64) -> f64 {
    let (mut parameter, mut velocity, mut wait) = (1.0, 0.0, 0);
    for (step, delivery) in deliveries.iter().enumerate() {
        wait += 1;
        let slope = decay * parameter;
        let (mut moved, mut left) = (m * velocity + slope, m * velocity + slope);
        if let Some(sum) = delivery {
            for age in 0..wait {
                let mut own = sum / f64::from(wait);
                moved += own;
                for _ in 0..age {
                    own *= m;
                    moved += own;
                }
                left += own;
            }
            wait = 0;
        }
        parameter -= lr(step) * moved;
        velocity = left;
    }
    parameter
}

#[test]
fn momentum_by_wait_is_that_of_gradients_followed_one_by_one() {
    let options = Options {
        momentum: 0.9,
        weight_decay: 0.01,
        no_decay_below_dims: 2,
        ..PLAIN
    };
    let tensors = [("w", vec![2, 3]), ("b", vec![2]), ("x", vec![1, 2])];
    let tensors = tensors.map(|(name, shape)| (name.to_owned(), shape));
    let layout = Layout::new(tensors).expect("short tensors");
    let mut optimiser = Optimiser::new(options, &layout, 0);
    // Element i is delivered in every (i + 1)-th step, and all are at the end, by a dense step; the rate drops on the way.
    let steps = 47;
    let lr = |step| if step < 20 { 0.1 } else { 0.01 };
    let is_whole = |step: usize| step >= steps - 2;
    let delivery = |step: usize, i: usize| {
        let due = (step + 1).is_multiple_of(i + 1) || is_whole(step);
        due.then(|| (step * 7 + i * 5) as f64 % 11.0 - 5.5)
    };
    let mut parameters = [1.0; 10];
    for step in 0..steps {
        let update: Vec<f32> = (0..10)
            .map(|i| delivery(step, i).unwrap_or(0.0) as f32)
            .collect();
        let density = if is_whole(step) { 1.0 } else { 0.3 };
        let lr = lr(step) as f32;
        optimiser.apply(&mut parameters, &update, Pace { lr, density });
    }
    for (i, parameter) in parameters.into_iter().enumerate() {
        let deliveries: Vec<_> = (0..steps).map(|step| delivery(step, i)).collect();
        let decay = if (6..8).contains(&i) { 0.0 } else { 0.01 };
        let expected = walk_by_wait(&deliveries, lr, f64::from(0.9f32), decay);
        let error = (f64::from(parameter) - expected).abs();
        assert!(error < 1e-4, "element {i}: {parameter}, {expected}");
    }
}

#[test]
fn vectors_may_go_without_decay_and_whole_ones_keep_their_momentum() {
    let tensors = [("w", vec![1, 1]), ("b", vec![1])];
    let tensors = tensors.map(|(name, shape)| (name.to_owned(), shape));
    let layout = Layout::new(tensors).expect("short tensors");
    let options = Options {
        weight_decay: 0.5,
        no_decay_below_dims: 2,
        sparse_momentum: SparseMomentum::Fixed(0.0),
        ..PLAIN
    };
    let mut optimiser = Optimiser::new(options, &layout, 2);
    let mut parameters = [1.0, 1.0];
    let pace = |density| Pace { lr: 0.25, density };
    optimiser.apply(&mut parameters, &[0.0, 2.0], pace(1.0));
    assert_eq!(parameters, [0.875, 0.5]);
    // w = 0.875 - 0.5 * 0.4375 without a velocity, and the bias goes on with one of 1.
    optimiser.apply(&mut parameters, &[0.0, 0.0], pace(0.01));
    assert_eq!(parameters, [0.656_25, 0.25]);
}

#[test]
fn a_sparse_momentum_of_the_same_size_hands_nothing_over() {
    let same = Options {
        sparse_momentum: SparseMomentum::Fixed(0.5),
        ..PLAIN
    };
    let mut optimiser = optimiser(same, 1);
    let mut parameter = [1.0];
    for (gradient, density) in [(2.0, 1.0), (4.0, 0.01)] {
        optimiser.apply(&mut parameter, &[gradient], Pace { lr: 0.25, density });
    }
    assert_eq!(parameter[0], walk(PLAIN, &[2.0, 4.0], |_| 0.25));
}

#[test]
fn a_long_gradient_is_scaled_to_the_limit_and_a_short_one_left() {
    let mut long = [3.0, 4.0];
    clip(&mut long, 1.0);
    assert_eq!(long, [0.6, 0.8]);
    let mut short = [0.3, 0.4];
    clip(&mut short, 1.0);
    assert_eq!(short, [0.3, 0.4]);
    let mut broken = [f32::NAN, 1.0];
    clip(&mut broken, 1.0);
    assert!(broken[0].is_nan() && broken[1] == 1.0);
}

#[test]
fn masking_stops_the_momentum_of_delivered_elements_only() {
    let options = Options {
        momentum_correction: true,
        factor_masking: true,
        ..PLAIN
    };
    let mut optimiser = optimiser(options, 3);
    optimiser.prepare(&mut [1.0, 2.0, 3.0], 0.1);
    optimiser.mask(1, [1].into_iter());
    optimiser.apply(&mut [0.0; 3], &[0.0; 3], dense(0.1));
    assert_eq!(optimiser.velocity(), [1.0, 2.0, 0.0]);
}

#[test]
fn a_step_that_is_dropped_leaves_the_velocity_as_it_was() {
    let options = Options {
        momentum_correction: true,
        ..PLAIN
    };
    let mut optimiser = optimiser(options, 1);
    optimiser.prepare(&mut [2.0], 0.1);
    optimiser.apply(&mut [0.0], &[2.0], dense(0.1));
    optimiser.prepare(&mut [f32::NAN], 0.1);
    assert_eq!(optimiser.velocity(), [2.0]);
    let mut gradient = [1.0];
    optimiser.prepare(&mut gradient, 0.1);
    assert_eq!(gradient, [2.0]);
}
