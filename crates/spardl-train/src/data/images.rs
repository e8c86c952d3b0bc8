//! Small images that are kept in memory as bytes.

use super::random::{Stream, combine};
use super::{DataError, Dataset};
use crate::{Batch, Input};

/// Pixels that are put around an image before it is cropped.
const PADDING: usize = 4;

/// Images in memory: bytes, made into normalised numbers when a batch is asked for.
pub(crate) struct Images {
    shape: [usize; 3],
    pixels: Vec<u8>,
    labels: Vec<u8>,
    /// For each channel, the number that stands for each byte.
    tables: Vec<[f32; 256]>,
    augment: bool,
}

impl Images {
    /// Images whose pixels lie one after the other: channels, then rows, then columns.
    pub(crate) fn new(
        shape: [usize; 3],
        pixels: Vec<u8>,
        labels: Vec<u8>,
        tables: Vec<[f32; 256]>,
    ) -> Self {
        assert_eq!(pixels.len(), labels.len() * shape.iter().product::<usize>());
        assert_eq!(tables.len(), shape[0]);
        Self {
            shape,
            pixels,
            labels,
            tables,
            augment: false,
        }
    }

    /// The same, cropped and flipped at random when a batch comes with a seed.
    pub(crate) fn augmented(mut self) -> Self {
        self.augment = true;
        self
    }

    /// Appends an image: pad, crop at `crop`, mirror.
    fn push(&self, sample: usize, crop: [usize; 2], flip: bool, out: &mut Vec<f32>) {
        let [channels, rows, columns] = self.shape;
        let size = channels * rows * columns;
        let image = &self.pixels[sample * size..][..size];
        for (plane, table) in image.chunks_exact(rows * columns).zip(&self.tables) {
            for row in 0..rows {
                let start = out.len();
                let from = (row + crop[0])
                    .checked_sub(PADDING)
                    .filter(|&from| from < rows);
                // Black, as bytes are padded before they are normalised.
                out.resize(start + columns, table[0]);
                let Some(from) = from else { continue };
                let line = &plane[from * columns..][..columns];
                let skip = crop[1].saturating_sub(PADDING).min(columns);
                let pad = PADDING.saturating_sub(crop[1]).min(columns);
                let target = &mut out[start..];
                for (value, &pixel) in target[pad..].iter_mut().zip(&line[skip..]) {
                    *value = table[pixel as usize];
                }
                if flip {
                    target.reverse();
                }
            }
        }
    }
}

impl Dataset for Images {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError> {
        let size: usize = self.shape.iter().product();
        let mut pixels = Vec::with_capacity(samples.len() * size);
        for &sample in samples {
            let (crop, flip) = match seed.filter(|_| self.augment) {
                Some(seed) => draw(combine(seed, u64::from(sample))),
                None => ([PADDING; 2], false),
            };
            self.push(sample as usize, crop, flip, &mut pixels);
        }
        let targets = samples
            .iter()
            .map(|&sample| u32::from(self.labels[sample as usize]));
        Ok(Batch {
            len: samples.len(),
            targets: targets.collect(),
            input: Input::Pixels(pixels),
        })
    }
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            shape,
            labels,
            augment,
            ..
        } = self;
        write!(
            f,
            "Images {{ shape: {shape:?}, len: {}, augment: {augment} }}",
            labels.len()
        )
    }
}

/// Where to crop and whether to mirror.
fn draw(seed: u64) -> ([usize; 2], bool) {
    let mut stream = Stream::new(seed);
    let crop = [stream.below(2 * PADDING + 1), stream.below(2 * PADDING + 1)];
    (crop, stream.chance(0.5))
}

/// A table that maps bytes to numbers of this mean and deviation, both given for values from 0 to 1.
pub(crate) fn normalise(mean: f32, deviation: f32) -> [f32; 256] {
    std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One image of 1 x 6 x 6 whose pixels are 1, 2, 3 ...; a byte stands for itself.
    fn counting() -> Images {
        let table = std::array::from_fn(|byte| byte as f32);
        Images::new([1, 6, 6], (1..=36).collect(), vec![3], vec![table])
    }

    fn pushed(crop: [usize; 2], flip: bool) -> Vec<f32> {
        let mut out = Vec::new();
        counting().push(0, crop, flip, &mut out);
        out
    }

    #[test]
    fn a_crop_in_the_middle_is_the_image_itself() {
        let expected: Vec<f32> = (1..=36).map(|byte| byte as f32).collect();
        assert_eq!(pushed([PADDING; 2], false), expected);
    }

    #[test]
    fn every_crop_is_a_window_of_the_padded_image() {
        for (top, left, flip) in
            (0..9).flat_map(|t| (0..9).flat_map(move |l| [(t, l, false), (t, l, true)]))
        {
            let out = pushed([top, left], flip);
            for (row, column) in (0..6).flat_map(|r| (0..6).map(move |c| (r, c))) {
                let (y, x) = (row + top, left + if flip { 5 - column } else { column });
                let inside = (4..10).contains(&y) && (4..10).contains(&x);
                let expected = if inside {
                    ((y - 4) * 6 + x - 4 + 1) as f32
                } else {
                    0.0
                };
                assert_eq!(
                    out[row * 6 + column],
                    expected,
                    "{top} {left} {flip} {row} {column}"
                );
            }
        }
    }

    #[test]
    fn only_an_augmented_set_looks_at_the_seed() {
        let plain = counting();
        assert_eq!(
            plain.batch(&[0], Some(1)).unwrap(),
            plain.batch(&[0], None).unwrap()
        );
        let augmented = counting().augmented();
        let first = augmented.batch(&[0], Some(1)).unwrap();
        assert_eq!(augmented.batch(&[0], Some(1)).unwrap(), first);
        assert!((2..20).any(|seed| augmented.batch(&[0], Some(seed)).unwrap() != first));
    }

    #[test]
    fn normalised_bytes_have_the_published_values() {
        let table = normalise(0.5, 0.25);
        assert_eq!([table[0], table[255]], [-2.0, 2.0]);
    }
}
