//! CIFAR-10 and CIFAR-100 in their binary versions: records of labels and 3 x 32 x 32 bytes.

use std::path::Path;
use std::sync::Arc;

use super::disk::{self, Place};
use super::images::{Images, normalise};
use super::{Data, DataError, Request, Task};

const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
/// The most records of a file that are read: twice the 50,000 of the longest one published.
const MOST_RECORDS: usize = 100_000;

/// What differs between the two sets.
struct Kind {
    name: &'static str,
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    /// Bytes before the pixels; the last of them is the label.
    labels: usize,
    classes: usize,
    mean: [f32; 3],
    deviation: [f32; 3],
}

const CIFAR10: Kind = Kind {
    name: "cifar10",
    folder: "cifar-10-batches-bin",
    train: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
    ],
    test: "test_batch.bin",
    labels: 1,
    classes: 10,
    mean: [0.4914, 0.4822, 0.4465],
    deviation: [0.2470, 0.2435, 0.2616],
};

/// A record has the coarse label before the fine one, which is the one that counts.
const CIFAR100: Kind = Kind {
    name: "cifar100",
    folder: "cifar-100-binary",
    train: &["train.bin"],
    test: "test.bin",
    labels: 2,
    classes: 100,
    mean: [0.5071, 0.4865, 0.4409],
    deviation: [0.2673, 0.2564, 0.2762],
};

/// Reads CIFAR-10.
pub(crate) fn open10(request: &Request) -> Result<Data, DataError> {
    CIFAR10.open(request)
}

/// Reads CIFAR-100, fine labels.
pub(crate) fn open100(request: &Request) -> Result<Data, DataError> {
    CIFAR100.open(request)
}

impl Kind {
    fn open(&self, request: &Request) -> Result<Data, DataError> {
        let place = Place::find(
            self.name,
            request,
            &[self.folder],
            &[self.train[0], self.test],
        )?;
        let train = self.images(&place, self.train)?.augmented();
        let test = self.images(&place, &[self.test])?;
        let task = Task::Images {
            shape: SHAPE,
            classes: self.classes,
        };
        Ok(Data {
            task,
            train: Arc::new(train),
            test: Arc::new(test),
            floor: None,
        })
    }

    fn images(&self, place: &Place, files: &[&str]) -> Result<Images, DataError> {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for name in files {
            self.append(&place.file(&[name])?, &mut pixels, &mut labels)?;
        }
        let tables = self
            .mean
            .iter()
            .zip(self.deviation)
            .map(|(&mean, dev)| normalise(mean, dev));
        Ok(Images::new(SHAPE, pixels, labels, tables.collect()))
    }

    fn append(
        &self,
        path: &Path,
        pixels: &mut Vec<u8>,
        labels: &mut Vec<u8>,
    ) -> Result<(), DataError> {
        let longest = MOST_RECORDS * (self.labels + PIXELS);
        let bytes = disk::read(path, longest as u64)?;
        self.records(&bytes, pixels, labels)
            .map_err(|problem| DataError::damaged(path, problem))
    }

    /// Takes a file apart.
    fn records(
        &self,
        bytes: &[u8],
        pixels: &mut Vec<u8>,
        labels: &mut Vec<u8>,
    ) -> Result<(), String> {
        let size = self.labels + PIXELS;
        if bytes.is_empty() || !bytes.len().is_multiple_of(size) {
            return Err(format!(
                "it has {} bytes; expected whole records of {size} bytes, and at least one",
                bytes.len(),
            ));
        }
        for (at, record) in bytes.chunks_exact(size).enumerate() {
            let label = record[self.labels - 1];
            if usize::from(label) >= self.classes {
                return Err(format!(
                    "label {at} is {label}; expected below {}",
                    self.classes
                ));
            }
            labels.push(label);
            pixels.extend_from_slice(&record[self.labels..]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            labels in prop::collection::vec(any::<u8>(), 0..4),
            size in prop_oneof![Just(3073usize), Just(3074usize), 0usize..7000],
        ) {
            let bytes: Vec<u8> = labels.iter().flat_map(|&label| {
                let mut record = vec![label; size.min(2)];
                record.resize(size, 200);
                record
            }).collect();
            for kind in [CIFAR10, CIFAR100] {
                let (mut pixels, mut found) = (Vec::new(), Vec::new());
                if kind.records(&bytes, &mut pixels, &mut found).is_ok() {
                    prop_assert_eq!(pixels.len(), found.len() * PIXELS);
                    prop_assert_eq!(bytes.len(), found.len() * (PIXELS + kind.labels));
                    prop_assert!(found.iter().all(|&label| usize::from(label) < kind.classes));
                }
            }
        }
    }
}
