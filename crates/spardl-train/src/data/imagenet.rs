//! ImageNet, and whatever else is a folder of images for each class. Images are decoded when a batch asks for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::imageops::{self, FilterType};
use image::{ImageReader, RgbImage};

use super::disk::{self, Place};
use super::images::normalise;
use super::random::{Stream, combine};
use super::{Data, DataError, Dataset, Request, Task};
use crate::{Batch, Input};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
/// A training image shows at least this part of the photograph.
const LEAST_AREA: f32 = 0.08;
/// A test image shows this part of the shorter side: 224 of 256.
const TEST_SIDE: f32 = 0.875;

/// Lists the files. The classes are the folders of `train`, in the order of their names.
pub(crate) fn open(request: &Request) -> Result<Data, DataError> {
    let size = request.size.unwrap_or(224);
    if !(8..=1024).contains(&size) {
        let problem = format!("images of size {size} were asked for: expected 8 to 1024");
        return Err(DataError::Request(problem));
    }
    let place = Place::find(
        "imagenet",
        request,
        &["ILSVRC2012", "ILSVRC/Data/CLS-LOC"],
        &["train"],
    )?;
    let classes = disk::folders(&place.folder().join("train"))?;
    let part = |name, random| Photographs::list(&place, name, &classes, size, random).map(Arc::new);
    let (train, test) = (part("train", true)?, part("val", false)?);
    let task = Task::Images {
        shape: [3, size, size],
        classes: classes.len(),
    };
    Ok(Data {
        task,
        train,
        test,
        floor: None,
    })
}

/// Image files, by class.
struct Photographs {
    /// A folder for each class.
    folders: Vec<PathBuf>,
    /// The class and the file name of each image.
    files: Vec<(u32, Box<str>)>,
    size: usize,
    /// Crop and mirror at random when there is a seed?
    random: bool,
    tables: [[f32; 256]; 3],
}

impl Photographs {
    fn list(
        place: &Place,
        part: &str,
        classes: &[String],
        size: usize,
        random: bool,
    ) -> Result<Self, DataError> {
        let root = place.folder().join(part);
        let folders: Vec<PathBuf> = classes.iter().map(|class| root.join(class)).collect();
        let strange = disk::folders(&root)?
            .into_iter()
            .find(|name| classes.binary_search(name).is_err());
        if let Some(name) = strange {
            let problem = "no folder of that name is among the classes in train/";
            return Err(DataError::damaged(&root.join(name), problem));
        }
        let mut files = Vec::new();
        for (class, folder) in (0..).zip(&folders).filter(|(_, folder)| folder.is_dir()) {
            let names = disk::names(folder)?
                .into_iter()
                .filter(|name| is_image(name));
            files.extend(names.map(|name| (class, name.into_boxed_str())));
        }
        if files.is_empty() {
            let class = classes.first().map_or("<class>", String::as_str);
            return Err(place.missing(&format!("{part}/{class}/*.JPEG")));
        }
        let tables = std::array::from_fn(|channel| normalise(MEAN[channel], DEVIATION[channel]));
        Ok(Self {
            folders,
            files,
            size,
            random,
            tables,
        })
    }

    /// Appends an image, cut and scaled, channel by channel.
    fn push(&self, path: &Path, seed: Option<u64>, out: &mut Vec<f32>) -> Result<(), DataError> {
        let image = decode(path)?;
        let (window, flip) = match seed {
            Some(seed) => draw(image.dimensions(), &mut Stream::new(seed)),
            None => (centre(image.dimensions()), false),
        };
        let [left, top, width, height] = window;
        let size = self.size as u32;
        let cut = imageops::crop_imm(&image, left, top, width, height);
        let mut scaled = imageops::resize(&*cut, size, size, FilterType::Triangle);
        if flip {
            imageops::flip_horizontal_in_place(&mut scaled);
        }
        for (channel, table) in self.tables.iter().enumerate() {
            out.extend(
                scaled
                    .pixels()
                    .map(|pixel| table[usize::from(pixel.0[channel])]),
            );
        }
        Ok(())
    }
}

impl Dataset for Photographs {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError> {
        let mut pixels = Vec::with_capacity(samples.len() * 3 * self.size * self.size);
        let mut targets = Vec::with_capacity(samples.len());
        for &sample in samples {
            let (class, name) = &self.files[sample as usize];
            let path = self.folders[*class as usize].join(&**name);
            let seed = seed
                .filter(|_| self.random)
                .map(|seed| combine(seed, u64::from(sample)));
            self.push(&path, seed, &mut pixels)?;
            targets.push(*class);
        }
        Ok(Batch {
            len: samples.len(),
            input: Input::Pixels(pixels),
            targets,
        })
    }
}

impl std::fmt::Debug for Photographs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            folders,
            files,
            size,
            random,
            ..
        } = self;
        write!(
            f,
            "Photographs {{ classes: {}, len: {}, size: {size}, random: {random} }}",
            folders.len(),
            files.len()
        )
    }
}

fn is_image(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["jpeg", "jpg", "png"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

fn decode(path: &Path) -> Result<RgbImage, DataError> {
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let reader = reader.map_err(|cause| DataError::read(path, cause))?;
    match reader.decode() {
        Ok(image) if image.width() > 0 && image.height() > 0 => Ok(image.into_rgb8()),
        Ok(_) => Err(DataError::damaged(path, "it has no pixels")),
        Err(cause) => {
            let cause = cause.to_string().replace('\n', " ");
            Err(DataError::damaged(
                path,
                format!("{cause}; expected a JPEG or PNG image"),
            ))
        }
    }
}

/// The middle of an image: left, top, width, height.
fn centre((width, height): (u32, u32)) -> [u32; 4] {
    let side = (width.min(height) as f32 * TEST_SIDE).round().max(1.0) as u32;
    [(width - side) / 2, (height - side) / 2, side, side]
}

/// A random part of an image of random area and shape (as in "Going deeper with convolutions", 2015), and whether to mirror it.
/// A shape that does not fit in ten draws is given up for the middle.
fn draw((width, height): (u32, u32), stream: &mut Stream) -> ([u32; 4], bool) {
    let flip = stream.chance(0.5);
    let area = width as f32 * height as f32;
    for _ in 0..10 {
        let part = area * stream.between(LEAST_AREA, 1.0);
        // From 3:4 to 4:3, each as likely as its inverse.
        let ratio = stream.between(0.75, 1.0);
        let ratio = if stream.chance(0.5) {
            ratio
        } else {
            ratio.recip()
        };
        let across = (part * ratio).sqrt().round() as u32;
        let down = (part / ratio).sqrt().round() as u32;
        if (1..=width).contains(&across) && (1..=height).contains(&down) {
            let left = stream.below((width - across) as usize + 1) as u32;
            let top = stream.below((height - down) as usize + 1) as u32;
            return ([left, top, across, down], flip);
        }
    }
    (centre((width, height)), flip)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_cut_lies_inside_the_image(width in 1u32..3000, height in 1u32..3000, seed: u64) {
            let (drawn, _) = draw((width, height), &mut Stream::new(seed));
            for [left, top, across, down] in [drawn, centre((width, height))] {
                prop_assert!(across >= 1 && left + across <= width);
                prop_assert!(down >= 1 && top + down <= height);
            }
        }
    }
}
