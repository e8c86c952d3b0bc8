//! Images that are made up from a seed: they can be learnt, and need no files.

use std::sync::Arc;

use super::images::{Images, normalise};
use super::random::{Stream, combine};
use super::{Data, DataError, Request, Task};

const CLASSES: usize = 10;
const TRAIN: usize = 8192;
const TEST: usize = 2048;
/// Waves that a pattern is the sum of.
const WAVES: usize = 4;
/// How strong a pattern is: its norm, where the noise of a pixel has deviation 1.
const STRENGTH: f32 = 10.0;
/// Steps of a byte for a deviation of the noise; black and white are five deviations away.
const CONTRAST: f32 = 25.0;

/// Images of 10 kinds. Each kind is a smooth pattern with mean 0, put at a random place in an image of noise.
///
/// As the pattern may be anywhere, the mean image of a kind is nearly grey: weights on single pixels tell little, and what
/// looks the same everywhere, a convolution, learns it quickly.
pub(crate) fn images(request: &Request) -> Result<Data, DataError> {
    let size = request.size.unwrap_or(16);
    if !(12..=256).contains(&size) {
        let problem = format!("synthetic images of size {size} were asked for: expected 12 to 256");
        return Err(DataError::Request(problem));
    }
    let patterns: Vec<Pattern> = (0..CLASSES as u64)
        .map(|class| Pattern::new(combine(combine(request.seed, 0), class), size))
        .collect();
    let part = |len, seed| Arc::new(draw(&patterns, size, len, combine(request.seed, seed)));
    Ok(Data {
        task: Task::Images {
            shape: [1, size, size],
            classes: CLASSES,
        },
        train: part(TRAIN, 1),
        test: part(TEST, 2),
        floor: None,
    })
}

/// What a kind of image shows: a square with mean 0 and norm 1.
struct Pattern {
    side: usize,
    values: Vec<f32>,
}

impl Pattern {
    /// A pattern for images of this size: a sum of plane waves that fades out in a circle.
    fn new(seed: u64, size: usize) -> Self {
        let mut stream = Stream::new(seed);
        let waves: [[f32; 3]; WAVES] = std::array::from_fn(|_| {
            [
                stream.between(-1.0, 1.0),
                stream.between(-1.0, 1.0),
                stream.unit(),
            ]
        });
        let radius = size * 5 / 16;
        let side = 2 * radius + 1;
        let along = |pixel: usize| (pixel as f32 - radius as f32) / (radius as f32 + 1.0);
        let mut values: Vec<f32> = (0..side * side)
            .map(|pixel| {
                let (y, x) = (along(pixel / side), along(pixel % side));
                let sum: f32 = waves
                    .iter()
                    .map(|[down, right, at]| wave(down * y + right * x + at))
                    .sum();
                (1.0 - y * y - x * x).max(0.0) * sum
            })
            .collect();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        values.iter_mut().for_each(|value| *value -= mean);
        let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        values.iter_mut().for_each(|value| *value /= norm);
        Self { side, values }
    }
}

/// Like a sine with period 1, but made of parabolas: the same bits on every platform.
fn wave(turns: f32) -> f32 {
    let turn = turns - turns.floor();
    if turn < 0.5 {
        16.0 * turn * (0.5 - turn)
    } else {
        -16.0 * (turn - 0.5) * (1.0 - turn)
    }
}

/// So many images of a seed.
fn draw(patterns: &[Pattern], size: usize, len: usize, seed: u64) -> Images {
    let mut pixels = Vec::with_capacity(len * size * size);
    let mut labels = Vec::with_capacity(len);
    let mut stream = Stream::new(seed);
    for _ in 0..len {
        let label = stream.below(patterns.len());
        let Pattern { side, values } = &patterns[label];
        let mut image: Vec<f32> = (0..size * size).map(|_| stream.noise()).collect();
        let (top, left) = (stream.below(size - side + 1), stream.below(size - side + 1));
        let strength = STRENGTH * stream.between(0.75, 1.25);
        for (row, line) in values.chunks_exact(*side).enumerate() {
            let target = &mut image[(top + row) * size + left..][..*side];
            target
                .iter_mut()
                .zip(line)
                .for_each(|(pixel, value)| *pixel += strength * value);
        }
        pixels.extend(
            image
                .iter()
                .map(|value| (128.0 + CONTRAST * value).clamp(0.0, 255.0) as u8),
        );
        labels.push(label as u8);
    }
    Images::new(
        [1, size, size],
        pixels,
        labels,
        vec![normalise(128.0 / 255.0, CONTRAST / 255.0)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Dataset, Input};

    const SIZE: usize = 16;

    fn opened(seed: u64) -> Data {
        images(&Request {
            seed,
            ..Request::default()
        })
        .unwrap()
    }

    fn all(set: &dyn Dataset) -> Batch {
        set.batch(&(0..set.len() as u32).collect::<Vec<_>>(), None)
            .unwrap()
    }

    /// The part of a batch that a rule of images gets right.
    fn accuracy(batch: &Batch, rule: impl Fn(&[f32]) -> usize) -> f64 {
        let Input::Pixels(pixels) = &batch.input else {
            panic!("images are pixels")
        };
        let images = pixels.chunks_exact(SIZE * SIZE).zip(&batch.targets);
        let right = images
            .filter(|(image, label)| rule(image) == **label as usize)
            .count();
        right as f64 / batch.len as f64
    }

    fn best(scores: impl Iterator<Item = f32>) -> usize {
        scores
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap()
            .0
    }

    /// How well a pattern fits an image at its best place.
    fn fit(pattern: &Pattern, image: &[f32]) -> f32 {
        let places = SIZE - pattern.side + 1;
        let at = |place: usize| -> f32 {
            let lines = pattern.values.chunks_exact(pattern.side).enumerate();
            let from = |row| (place / places + row) * SIZE + place % places;
            lines
                .map(|(row, line)| dot(line, &image[from(row)..]))
                .sum()
        };
        (0..places * places).map(at).fold(f32::MIN, f32::max)
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// Weights on pixels, learnt as an averaged perceptron.
    fn perceptron(batch: &Batch) -> Vec<Vec<f32>> {
        let Input::Pixels(pixels) = &batch.input else {
            panic!("images are pixels")
        };
        let mut weights = vec![vec![0.0; SIZE * SIZE]; CLASSES];
        let mut sums = weights.clone();
        for (image, &label) in pixels.chunks_exact(SIZE * SIZE).zip(&batch.targets) {
            let said = best(weights.iter().map(|w| dot(w, image)));
            for (class, change) in [(label as usize, 1.0), (said, -1.0)] {
                weights[class]
                    .iter_mut()
                    .zip(image)
                    .for_each(|(w, x)| *w += change * x);
            }
            for (sum, weight) in sums.iter_mut().flatten().zip(weights.iter().flatten()) {
                *sum += weight;
            }
        }
        sums
    }

    #[test]
    fn patterns_tell_the_images_and_weights_on_pixels_do_not() {
        let data = opened(1);
        let test = all(&*data.test);
        let patterns: Vec<Pattern> = (0..CLASSES as u64)
            .map(|class| Pattern::new(combine(combine(1, 0), class), SIZE))
            .collect();
        let known = accuracy(&test, |image| best(patterns.iter().map(|p| fit(p, image))));
        assert!(known > 0.98, "{known}");
        let weights = perceptron(&all(&*data.train));
        let linear = accuracy(&test, |image| best(weights.iter().map(|w| dot(w, image))));
        assert!((0.2..0.75).contains(&linear), "{linear}");
    }

    #[test]
    fn a_seed_makes_the_same_images_everywhere() {
        let first = |seed| opened(seed).train.batch(&[0, 1, 2, 3], None).unwrap();
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(4));
        let Input::Pixels(pixels) = first(3).input else {
            panic!("images are pixels")
        };
        // The bytes that the first pixels were made of; another platform must make the same.
        let bytes: Vec<i32> = pixels[..6]
            .iter()
            .map(|p| (128.0 + p * CONTRAST).round() as i32)
            .collect();
        assert_eq!(
            (first(3).targets, bytes),
            (vec![4, 9, 3, 6], vec![113, 123, 115, 73, 133, 139])
        );
    }

    #[test]
    fn the_size_can_be_chosen() {
        let data = images(&Request {
            size: Some(28),
            ..Request::default()
        })
        .unwrap();
        assert_eq!(
            data.task,
            Task::Images {
                shape: [1, 28, 28],
                classes: 10
            }
        );
        assert!(
            images(&Request {
                size: Some(11),
                ..Request::default()
            })
            .is_err()
        );
    }
}
