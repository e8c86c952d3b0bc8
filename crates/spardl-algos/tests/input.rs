//! What a gradient may look like: cut into slices, narrow, scaled, or known to be bad.

use half::{bf16, f16};
use spardl_core::{Algorithm, Gradient, Input, Outcome, SkipReason, Source};
use spardl_testkit::generate::Numbers;
use spardl_testkit::{Trial, check, configurations, generate};

const LEN: usize = 90;
const K: usize = 14;
const STEPS: u64 = 4;

/// Runs the same steps twice, on f32 slices and on what `gradients` makes of them, and compares every bit.
fn same_bits(
    algorithm: &dyn Algorithm,
    workers: u32,
    expected: &[Vec<Vec<f32>>],
    gradients: &[Vec<Vec<Source<'_>>>],
    scale: f32,
) {
    let mut plain = Trial::new(algorithm, workers, LEN);
    let mut trial = Trial::new(algorithm, workers, LEN);
    for (step, (expected, sources)) in (0..).zip(expected.iter().zip(gradients)) {
        let inputs: Vec<_> = sources
            .iter()
            .map(|slices| Input::new(Gradient::of_slices(slices).scaled(scale), K, step))
            .collect();
        let update = trial.step_inputs(&inputs);
        let expected = plain.step(expected, K, step);
        let context = format!("{} scale {scale} step {step}", plain.context);
        assert!(check::bits(&update) == check::bits(&expected), "{context}");
        assert!(trial.kept() == plain.kept(), "{context}: residuals");
    }
}

fn steps(workers: u32) -> Vec<Vec<Vec<f32>>> {
    (0..STEPS)
        .map(|step| generate::fractions(step, workers, LEN))
        .collect()
}

/// The values of all workers in all steps, each mapped.
fn mapped<T, U>(steps: &[Vec<Vec<T>>], map: impl Fn(&T) -> U + Copy) -> Vec<Vec<Vec<U>>> {
    let gradient = |gradient: &Vec<T>| gradient.iter().map(map).collect();
    let step = |gradients: &Vec<Vec<T>>| gradients.iter().map(gradient).collect();
    steps.iter().map(step).collect()
}

/// Each gradient cut in three, anywhere: the first and the last piece may be empty.
fn cut<'a, T>(
    steps: &'a [Vec<Vec<T>>],
    source: impl Fn(&'a [T]) -> Source<'a>,
) -> Vec<Vec<Vec<Source<'a>>>> {
    let mut numbers = Numbers::new(7);
    let mut pieces = |gradient: &'a Vec<T>| {
        let (a, b) = (numbers.below(91) as usize, numbers.below(91) as usize);
        let (first, rest) = gradient.split_at(a.min(b));
        let (second, third) = rest.split_at(a.max(b) - a.min(b));
        [first, second, third].map(&source).to_vec()
    };
    steps
        .iter()
        .map(|gradients| gradients.iter().map(&mut pieces).collect())
        .collect()
}

#[test]
fn slices_cut_anywhere_give_the_bits_of_one_slice() {
    for workers in [1, 2, 3, 6] {
        let expected = steps(workers);
        let gradients = cut(&expected, Source::F32);
        for algorithm in configurations::every(workers) {
            same_bits(&*algorithm, workers, &expected, &gradients, 1.0);
        }
    }
}

#[test]
fn narrow_and_scaled_gradients_give_the_bits_of_their_values_in_f32() {
    let workers = 4;
    for scale in [1.0, 0.3, -1024.0] {
        let halves = mapped(&steps(workers), |&value| f16::from_f32(value));
        let brains = mapped(&steps(workers), |&value| bf16::from_f32(value));
        let of_halves = mapped(&halves, |value| value.to_f32() * scale);
        let of_brains = mapped(&brains, |value| value.to_f32() * scale);
        for algorithm in configurations::every(workers) {
            let gradients = cut(&halves, Source::F16);
            same_bits(&*algorithm, workers, &of_halves, &gradients, scale);
            let gradients = cut(&brains, Source::Bf16);
            same_bits(&*algorithm, workers, &of_brains, &gradients, scale);
        }
    }
}

#[test]
fn a_gradient_known_to_be_bad_skips_the_step_on_all_workers_and_leaves_no_trace() {
    for workers in [1, 2, 3, 4, 6, 7, 8] {
        for algorithm in configurations::every(workers) {
            let mut trial = Trial::new(&*algorithm, workers, LEN);
            trial.step(&generate::fractions(1, workers, LEN), K, 0);
            let before = trial.kept();
            let gradients = generate::fractions(2, workers, LEN);
            for bad in 0..workers as usize {
                let input = |(rank, gradient)| Input::new(gradient, K, 1).finite(rank != bad);
                let inputs: Vec<_> = gradients.iter().enumerate().map(input).collect();
                let report = trial.run_inputs(&inputs);
                let context = format!("{} rank {bad}", trial.context);
                let expected = Outcome::Skipped(SkipReason::NonFinite);
                let all = report.outcomes.iter().all(|o| *o == expected);
                assert!(all, "{context}: {:?}", report.outcomes);
                trial.cluster.abort();
                assert!(before == trial.kept(), "{context}: left a trace");
            }
        }
    }
}

#[test]
fn slices_of_another_total_length_are_refused() {
    for algorithm in configurations::all(1) {
        let mut trial = Trial::new(&*algorithm, 1, LEN);
        let (long, short) = (vec![1.0; LEN], vec![1.0; 1]);
        let slices = [Source::F32(&long), Source::F32(&short)];
        let input = Input::new(Gradient::of_slices(&slices), K, 0);
        let error = trial.cluster.workers_mut()[0].begin(input).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the gradient has 91 elements, but this collective was made for 90"
        );
        trial.step(&[long], K, 0);
    }
}
