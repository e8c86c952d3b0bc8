//! Image sets in their official formats: written small, read back, damaged.

use std::fs;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use spardl_train::data::{self, DataError, Request, Task};
use spardl_train::{Data, Input};
use tempfile::TempDir;

fn request(dir: &Path) -> Request {
    Request {
        dir: Some(dir.to_owned()),
        seed: 1,
        ..Request::default()
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn pixels(data: &Data, sample: u32, seed: Option<u64>) -> Vec<f32> {
    match data.train.batch(&[sample], seed).unwrap().input {
        Input::Pixels(pixels) => pixels,
        Input::Tokens(_) => panic!("images are pixels"),
    }
}

/// `count` digits: every pixel of sample i is i, its label i modulo 10.
fn mnist(dir: &Path, part: &str, count: u8, packed: bool) {
    let mut images: Vec<u8> = [0x803u32, u32::from(count), 28, 28]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    let mut labels: Vec<u8> = [0x801u32, u32::from(count)]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    for i in 0..count {
        images.extend([i; 784]);
        labels.push(i % 10);
    }
    for (name, bytes) in [("images-idx3", images), ("labels-idx1", labels)] {
        if packed {
            write(&dir.join(format!("{part}-{name}-ubyte.gz")), &gzip(&bytes));
        } else {
            write(&dir.join(format!("{part}-{name}-ubyte")), &bytes);
        }
    }
}

#[test]
fn mnist_is_read_packed_or_not_from_every_usual_folder() {
    for (inner, packed) in [
        ("", true),
        ("mnist", false),
        ("MNIST/raw", true),
        ("mnist/MNIST/raw", false),
    ] {
        let dir = folder();
        mnist(&dir.path().join(inner), "train", 25, packed);
        mnist(&dir.path().join(inner), "t10k", 5, packed);
        let data = data::open("mnist", &request(dir.path())).unwrap();
        assert_eq!(
            data.task,
            Task::Images {
                shape: [1, 28, 28],
                classes: 10
            }
        );
        assert_eq!((data.train.len(), data.test.len()), (25, 5));
        assert_eq!(data.train.batch(&[24, 3], Some(5)).unwrap().targets, [4, 3]);
        let expected = (24.0 / 255.0 - 0.1307) / 0.3081;
        assert!(
            pixels(&data, 24, Some(5))
                .iter()
                .all(|p| (p - expected).abs() < 1e-6)
        );
    }
}

#[test]
fn a_damaged_mnist_file_is_named() {
    let dir = folder();
    mnist(dir.path(), "train", 25, true);
    mnist(dir.path(), "t10k", 5, false);
    let packed = dir.path().join("train-images-idx3-ubyte.gz");
    let whole = fs::read(&packed).unwrap();
    write(&packed, &whole[..whole.len() / 2]);
    let error = data::open("mnist", &request(dir.path()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("train-images-idx3-ubyte.gz is damaged")
            && error.contains("expected a whole gzip file"),
        "{error}"
    );
    write(&packed, &whole);

    let plain = dir.path().join("t10k-labels-idx1-ubyte");
    let whole = fs::read(&plain).unwrap();
    write(&plain, &whole[..10]);
    let error = data::open("mnist", &request(dir.path()))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("t10k-labels-idx1-ubyte is damaged: it has 10 bytes; expected 13 by its header; get it again"), "{error}");
    fs::remove_file(&plain).unwrap();
    let error = data::open("mnist", &request(dir.path())).unwrap_err();
    assert!(
        matches!(error, DataError::Missing { title: "MNIST", .. }),
        "{error}"
    );
}

#[test]
fn a_gzip_bomb_is_unpacked_no_further_than_its_header_says() {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let dir = folder();
    mnist(dir.path(), "train", 25, true);
    mnist(dir.path(), "t10k", 5, true);
    // Cut at its end: who unpacks it all finds it damaged.
    let bomb = |header: &[u32]| {
        let whole = gzip(&[words(header), vec![0; 10_000_000]].concat());
        whole[..whole.len() - 100].to_vec()
    };
    for (name, header, expected) in [
        ("labels-idx1", &[0x801u32, 25][..], "more than 33 bytes"),
        ("images-idx3", &[0x803, 25, 28, 28], "more than 19616 bytes"),
        (
            "images-idx3",
            &[0x803, 400_000, 28, 28],
            "313600000 pixels by its header; expected at most 268435456",
        ),
    ] {
        let path = dir.path().join(format!("train-{name}-ubyte.gz"));
        write(&path, &bomb(header));
        let error = data::open("mnist", &request(dir.path()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A record whose pixels are 1, 2, 3 ... 250, 1, 2 ...
fn record(labels: &[u8]) -> Vec<u8> {
    labels
        .iter()
        .copied()
        .chain((0..3072).map(|i| (i % 250 + 1) as u8))
        .collect()
}

fn cifar10(dir: &Path) {
    for batch in 1..=5u8 {
        write(
            &dir.join(format!("data_batch_{batch}.bin")),
            &[record(&[batch]), record(&[batch + 4])].concat(),
        );
    }
    write(
        &dir.join("test_batch.bin"),
        &[record(&[0]), record(&[9]), record(&[7])].concat(),
    );
}

#[test]
fn cifar10_is_read_from_every_usual_folder() {
    for inner in [
        "",
        "cifar10",
        "cifar-10-batches-bin",
        "cifar10/cifar-10-batches-bin",
    ] {
        let dir = folder();
        cifar10(&dir.path().join(inner));
        let data = data::open("cifar10", &request(dir.path())).unwrap();
        assert_eq!(
            data.task,
            Task::Images {
                shape: [3, 32, 32],
                classes: 10
            }
        );
        assert_eq!(
            data.train.batch(&[0, 1, 2, 9], None).unwrap().targets,
            [1, 5, 2, 9]
        );
        assert_eq!(
            data.test.batch(&[0, 1, 2], None).unwrap().targets,
            [0, 9, 7]
        );
        let image = pixels(&data, 4, None);
        let (first, last) = (
            (1.0 / 255.0 - 0.4914) / 0.2470,
            (72.0 / 255.0 - 0.4465) / 0.2616,
        );
        assert!((image[0] - first).abs() < 1e-6 && (image[3071] - last).abs() < 1e-6);
    }
}

#[test]
fn cifar10_is_augmented_by_the_seed_and_the_sample_wherever_it_stands() {
    let dir = folder();
    cifar10(dir.path());
    let data = data::open("cifar10", &request(dir.path())).unwrap();
    let together = data.train.batch(&[3, 8], Some(77)).unwrap();
    let Input::Pixels(together) = together.input else {
        panic!("images are pixels")
    };
    assert_eq!(
        together,
        [pixels(&data, 3, Some(77)), pixels(&data, 8, Some(77))].concat()
    );
    let kinds: std::collections::BTreeSet<Vec<u32>> = (0..100)
        .map(|seed| {
            pixels(&data, 3, Some(seed))
                .iter()
                .map(|p| p.to_bits())
                .collect()
        })
        .collect();
    assert!(kinds.len() > 60, "{} of 162 crops", kinds.len());
    assert_eq!(
        data.test.batch(&[1], Some(3)).unwrap(),
        data.test.batch(&[1], None).unwrap()
    );
}

#[test]
fn cifar100_takes_the_fine_label() {
    let dir = folder();
    let inner = dir.path().join("cifar-100-binary");
    write(
        &inner.join("train.bin"),
        &[record(&[3, 42]), record(&[19, 99])].concat(),
    );
    write(&inner.join("test.bin"), &record(&[0, 7]));
    let data = data::open("cifar100", &request(dir.path())).unwrap();
    assert_eq!(
        data.task,
        Task::Images {
            shape: [3, 32, 32],
            classes: 100
        }
    );
    assert_eq!(data.train.batch(&[0, 1], None).unwrap().targets, [42, 99]);
    assert_eq!(data.test.len(), 1);
}

#[test]
fn a_missing_or_damaged_cifar_file_says_what_was_expected() {
    let dir = folder();
    let place = dir.path().display().to_string();
    assert_eq!(
        data::open("cifar10", &request(dir.path()))
            .unwrap_err()
            .to_string(),
        format!(
            "no CIFAR-10 in {place}: expected {place}/cifar-10-batches-bin/data_batch_1.bin; get cifar-10-binary.tar.gz \
             from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there"
        )
    );
    cifar10(dir.path());
    write(&dir.path().join("data_batch_3.bin"), &record(&[1])[..3000]);
    assert_eq!(
        data::open("cifar10", &request(dir.path()))
            .unwrap_err()
            .to_string(),
        format!(
            "{place}/data_batch_3.bin is damaged: it has 3000 bytes; expected whole records of 3073 bytes, and at least one; \
             get it again"
        )
    );
    write(&dir.path().join("data_batch_3.bin"), &record(&[10]));
    let error = data::open("cifar10", &request(dir.path()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("label 0 is 10; expected below 10"),
        "{error}"
    );
    fs::remove_file(dir.path().join("data_batch_3.bin")).unwrap();
    let error = data::open("cifar10", &request(dir.path()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("expected {place}/data_batch_3.bin")),
        "{error}"
    );
}

#[test]
fn a_set_on_disk_needs_a_directory_and_a_name_has_to_be_known() {
    let error = data::open("mnist", &Request::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("MNIST needs a directory; expected in it is "),
        "{error}"
    );
    let error = data::open("minst", &Request::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("unknown data set 'minst': did you mean 'mnist'? There are synthetic, "),
        "{error}"
    );
}

#[test]
fn a_part_of_the_samples_is_chosen_by_the_seed() {
    let dir = folder();
    mnist(dir.path(), "train", 200, false);
    mnist(dir.path(), "t10k", 30, false);
    let open = |seed, train, test| {
        let part = Request {
            seed,
            train_samples: Some(train),
            test_samples: Some(test),
            ..request(dir.path())
        };
        data::open("mnist", &part)
    };
    let all: Vec<u32> = (0..50).collect();
    let data = open(1, 50, 20).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (50, 20));
    let chosen = data.train.batch(&all, None).unwrap();
    assert_eq!(
        open(1, 50, 20).unwrap().train.batch(&all, None).unwrap(),
        chosen
    );
    assert_ne!(
        open(2, 50, 20).unwrap().train.batch(&all, None).unwrap(),
        chosen
    );
    assert_eq!(
        open(1, 60, 20).unwrap().train.batch(&all, None).unwrap(),
        chosen,
        "the first of more"
    );
    let error = open(1, 201, 20).unwrap_err().to_string();
    assert_eq!(
        error,
        "201 training samples were asked for: expected 1 to 200, what the set has"
    );
    assert!(open(1, 0, 20).is_err() && open(1, 1, 31).is_err());
}

#[test]
fn what_is_held_out_is_tested_on_and_not_trained_on() {
    let dir = folder();
    mnist(dir.path(), "train", 200, false);
    mnist(dir.path(), "t10k", 30, false);
    let data = data::open("mnist", &request(dir.path())).unwrap();
    let held = data.hold_out(0.2, 7).unwrap();
    assert_eq!((held.train.len(), held.test.len()), (160, 40));
    let rows = |set: &dyn data::Dataset| -> Vec<Vec<u32>> {
        let all: Vec<u32> = (0..set.len() as u32).collect();
        let Input::Pixels(pixels) = set.batch(&all, None).unwrap().input else {
            panic!("images");
        };
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect();
        let mut rows: Vec<Vec<u32>> = pixels.chunks(28 * 28).map(bits).collect();
        rows.sort_unstable();
        rows
    };
    let mut both = rows(&*held.train);
    both.extend(rows(&*held.test));
    both.sort_unstable();
    assert_eq!(both, rows(&*data.train), "every training sample once");
    let again = data.hold_out(0.2, 7).unwrap();
    assert_eq!(rows(&*again.test), rows(&*held.test));
    assert_ne!(
        rows(&*data.hold_out(0.2, 8).unwrap().test),
        rows(&*held.test)
    );
    for part in [0.0, 0.001, 1.0, 2.0, f64::NAN] {
        let error = data.hold_out(part, 7).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 199"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_in_a_packed_file_are_read_or_refused(
        at in 0usize..200, bytes in prop::collection::vec(any::<u8>(), 0..12), cut in 0usize..300,
    ) {
        let dir = folder();
        mnist(dir.path(), "train", 9, true);
        mnist(dir.path(), "t10k", 3, false);
        let path = dir.path().join("train-images-idx3-ubyte.gz");
        let mut file = fs::read(&path).unwrap();
        for (byte, new) in file.iter_mut().skip(at).zip(&bytes) {
            *byte = *new;
        }
        file.truncate(cut);
        write(&path, &file);
        match data::open("mnist", &request(dir.path())) {
            Ok(data) => prop_assert_eq!(data.train.len(), 9),
            Err(error) => prop_assert!(matches!(error, DataError::Damaged { .. }), "{}", error),
        }
    }
}
