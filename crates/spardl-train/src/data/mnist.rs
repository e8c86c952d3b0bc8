//! MNIST, and whatever else comes in its format: four idx files, packed with gzip or not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{self, Place};
use super::images::{Images, normalise};
use super::{Data, DataError, Request, Task};

const CLASSES: usize = 10;
/// First words of an idx file: unsigned bytes in three or in one dimension.
const IMAGES: u32 = 0x0803;
const LABELS: u32 = 0x0801;
/// Bytes before the pixels and before the labels.
const IMAGES_HEADER: usize = 16;
const LABELS_HEADER: usize = 8;
/// The most pixels of a file that are read: sets of ten digits have at most 240,000 images of 28 x 28.
const MOST_PIXELS: u128 = 1 << 28;

/// Reads the training and the test set.
pub(crate) fn open(request: &Request) -> Result<Data, DataError> {
    let markers = spellings("train-images", 3);
    let markers: Vec<&str> = markers.iter().map(String::as_str).collect();
    let place = Place::find("mnist", request, &["MNIST/raw", "raw", "MNIST"], &markers)?;
    let (train, shape) = part(&place, "train")?;
    let (test, other) = part(&place, "t10k")?;
    if shape != other {
        let problem = format!("its images are {other:?}, those of the training set {shape:?}");
        return Err(DataError::damaged(
            &file(&place, "t10k-images", 3)?,
            problem,
        ));
    }
    let task = Task::Images {
        shape,
        classes: CLASSES,
    };
    Ok(Data {
        task,
        train: Arc::new(train),
        test: Arc::new(test),
        floor: None,
    })
}

/// The images and labels of the training or the test set, and their shape.
fn part(place: &Place, name: &str) -> Result<(Images, [usize; 3]), DataError> {
    let path = file(place, &format!("{name}-images"), 3)?;
    let bytes = read(&path, IMAGES_HEADER, |front| {
        sizes(front).map(|[count, rows, columns]| count * rows * columns)
    })?;
    let (shape, pixels) = images(&bytes).map_err(|problem| DataError::damaged(&path, problem))?;
    let count = pixels.len() / (shape[1] * shape[2]);

    let path = file(place, &format!("{name}-labels"), 1)?;
    let bytes = read(&path, LABELS_HEADER, |_| Ok(count))?;
    let labels = labels(&bytes, count).map_err(|problem| DataError::damaged(&path, problem))?;
    let table = normalise(0.1307, 0.3081);
    Ok((
        Images::new(shape, pixels.to_vec(), labels.to_vec(), vec![table]),
        shape,
    ))
}

/// A whole file whose header says how much follows it: what is packed is unpacked no further than that.
fn read(
    path: &Path,
    header: usize,
    follows: impl Fn(&[u8]) -> Result<usize, String>,
) -> Result<Vec<u8>, DataError> {
    let front = disk::front(path, header as u64)?;
    let follows = follows(&front).map_err(|problem| DataError::damaged(path, problem))?;
    disk::read(path, (header + follows) as u64)
}

fn file(place: &Place, stem: &str, dimensions: usize) -> Result<PathBuf, DataError> {
    let names = spellings(stem, dimensions);
    place.file(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The names under which a file is passed around.
fn spellings(stem: &str, dimensions: usize) -> [String; 4] {
    [
        "-idx{}-ubyte.gz",
        "-idx{}-ubyte",
        ".idx{}-ubyte.gz",
        ".idx{}-ubyte",
    ]
    .map(|end| format!("{stem}{}", end.replace("{}", &dimensions.to_string())))
}

/// The shape and the pixels of an idx file of images.
fn images(bytes: &[u8]) -> Result<([usize; 3], &[u8]), String> {
    let [count, rows, columns] = sizes(bytes)?;
    let pixels = body(bytes, IMAGES_HEADER, count * rows * columns)?;
    Ok(([1, rows, columns], pixels))
}

/// The number of images, their rows and columns, by the header of their file.
fn sizes(bytes: &[u8]) -> Result<[usize; 3], String> {
    let [count, rows, columns] = header(bytes, IMAGES)?;
    if rows == 0 || columns == 0 || rows.max(columns) > 4096 {
        return Err(format!(
            "its images are {rows} x {columns}; expected 28 x 28"
        ));
    }
    let pixels = count as u128 * (rows * columns) as u128;
    if pixels > MOST_PIXELS {
        return Err(format!(
            "it has {pixels} pixels by its header; expected at most {MOST_PIXELS}"
        ));
    }
    Ok([count, rows, columns])
}

/// The labels of an idx file, which are to be as many as there are images.
fn labels(bytes: &[u8], images: usize) -> Result<&[u8], String> {
    let [count] = header(bytes, LABELS)?;
    if count != images {
        return Err(format!(
            "it has {count} labels; expected {images}, one for each image"
        ));
    }
    let labels = body(bytes, LABELS_HEADER, count)?;
    match labels
        .iter()
        .position(|&label| usize::from(label) >= CLASSES)
    {
        Some(at) => Err(format!("label {at} is {}; expected 0 to 9", labels[at])),
        None => Ok(labels),
    }
}

/// The sizes in the header of an idx file, whose first word is `magic`.
fn header<const N: usize>(bytes: &[u8], magic: u32) -> Result<[usize; N], String> {
    let word = |at: usize| {
        let word = bytes
            .get(4 * at..4 * at + 4)
            .and_then(|word| word.try_into().ok());
        let short = || {
            format!(
                "it has {} bytes; expected a header of {}",
                bytes.len(),
                4 * N + 4
            )
        };
        word.map(u32::from_be_bytes).ok_or_else(short)
    };
    let found = word(0)?;
    if found != magic {
        return Err(format!(
            "it starts with {found:#010x}; expected {magic:#010x}"
        ));
    }
    let mut sizes = [0; N];
    for (at, size) in sizes.iter_mut().enumerate() {
        *size = word(at + 1)? as usize;
    }
    if sizes[0] == 0 {
        return Err("its header says that it holds nothing".to_owned());
    }
    Ok(sizes)
}

/// What follows the header and has to have this size.
fn body(bytes: &[u8], header: usize, size: usize) -> Result<&[u8], String> {
    if bytes.len() != header + size {
        return Err(format!(
            "it has {} bytes; expected {} by its header",
            bytes.len(),
            header + size
        ));
    }
    Ok(&bytes[header..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn idx(magic: u32, sizes: &[u32], body: &[u8]) -> Vec<u8> {
        let words = std::iter::once(&magic)
            .chain(sizes)
            .flat_map(|word| word.to_be_bytes());
        words.chain(body.iter().copied()).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = idx(IMAGES, &[2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(images(&bytes), Ok(([1, 1, 3], &[1u8, 2, 3, 4, 5, 6][..])));
        assert_eq!(labels(&idx(LABELS, &[2], &[9, 0]), 2), Ok(&[9u8, 0][..]));
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let bytes = idx(IMAGES, &[u32::MAX, 4096, 4096], &[0; 9]);
        assert!(images(&bytes).unwrap_err().contains("72057594021150720"));
        assert!(images(&idx(IMAGES, &[1, u32::MAX, u32::MAX], &[])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            magic in prop_oneof![Just(IMAGES), Just(LABELS), any::<u32>()],
            sizes in prop::collection::vec(prop_oneof![0u32..4, any::<u32>()], 0..4),
            body in prop::collection::vec(any::<u8>(), 0..40),
            cut in 0usize..60,
        ) {
            let bytes = idx(magic, &sizes, &body);
            let bytes = &bytes[..cut.min(bytes.len())];
            if let Ok((shape, pixels)) = images(bytes) {
                prop_assert_eq!(pixels.len() % (shape[1] * shape[2]), 0);
            }
            if let Ok(labels) = labels(bytes, sizes.first().map_or(0, |&n| n as usize)) {
                prop_assert!(labels.iter().all(|&label| label < 10));
            }
        }

        #[test]
        fn a_file_that_was_cut_is_refused(cut in 0usize..22) {
            prop_assert!(images(&idx(IMAGES, &[2, 1, 3], &[7; 6])[..cut]).is_err());
        }
    }
}
