//! Folders of photographs: made small, read back, damaged.

use std::fs;
use std::path::Path;

use image::{ImageFormat, Rgb, RgbImage};
use proptest::prelude::*;
use spardl_train::data::{self, DataError, Request, Task};
use spardl_train::{Batch, Input};

fn request(dir: &Path) -> Request {
    Request {
        dir: Some(dir.to_owned()),
        size: Some(16),
        ..Request::default()
    }
}

fn photograph(path: &Path, (width, height): (u32, u32), colour: impl Fn(u32, u32) -> [u8; 3]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let image = RgbImage::from_fn(width, height, |x, y| Rgb(colour(x, y)));
    let png = path.extension().is_some_and(|extension| extension == "png");
    image
        .save_with_format(
            path,
            if png {
                ImageFormat::Png
            } else {
                ImageFormat::Jpeg
            },
        )
        .unwrap();
}

/// Two classes: red ones and such that are dark on the left and bright on the right.
fn imagenet(dir: &Path) {
    for (part, count) in [("train", 3), ("val", 2)] {
        for i in 0..count {
            photograph(
                &dir.join(part).join(format!("n01/{i}.JPEG")),
                (40 + i, 30),
                |_, _| [255, 0, 0],
            );
        }
        photograph(&dir.join(part).join("n02/x.png"), (20, 50), |x, _| {
            [(x * 12) as u8; 3]
        });
        fs::write(dir.join(part).join("n02/readme.txt"), "not an image").unwrap();
    }
}

fn pixels(batch: &Batch) -> &[f32] {
    match &batch.input {
        Input::Pixels(pixels) => pixels,
        Input::Tokens(_) => panic!("images are pixels"),
    }
}

#[test]
fn a_folder_per_class_is_read_and_cut_to_size() {
    for inner in ["", "imagenet", "ILSVRC2012"] {
        let dir = tempfile::tempdir().unwrap();
        imagenet(&dir.path().join(inner));
        let data = data::open("imagenet", &request(dir.path())).unwrap();
        assert_eq!(
            data.task,
            Task::Images {
                shape: [3, 16, 16],
                classes: 2
            }
        );
        assert_eq!((data.train.len(), data.test.len()), (4, 3));
        let batch = data.test.batch(&[2, 0], None).unwrap();
        assert_eq!(batch.targets, [1, 0]);
        let (ramp, red) = pixels(&batch).split_at(3 * 256);
        assert!(
            ramp[..256]
                .chunks(16)
                .all(|row| row.windows(2).all(|pair| pair[0] < pair[1]))
        );
        // JPEG is off by a few steps of 1/255.
        assert!(
            red[..256]
                .iter()
                .all(|p| (p - (1.0 - 0.485) / 0.229).abs() < 0.1)
        );
        assert!(
            red[256..512]
                .iter()
                .all(|p| (p + 0.456 / 0.224).abs() < 0.1)
        );
    }
}

#[test]
fn training_images_are_cut_by_the_seed_and_test_images_are_not() {
    let dir = tempfile::tempdir().unwrap();
    imagenet(dir.path());
    let data = data::open("imagenet", &request(dir.path())).unwrap();
    let train = |samples: &[u32], seed| data.train.batch(samples, seed).unwrap();
    assert_eq!(train(&[3, 1], Some(5)), train(&[3, 1], Some(5)));
    assert_ne!(train(&[3], Some(5)), train(&[3], Some(6)));
    assert_eq!(
        pixels(&train(&[1, 3], Some(5)))[768..],
        *pixels(&train(&[3], Some(5)))
    );
    assert_eq!(train(&[3], None), data.test.batch(&[2], Some(5)).unwrap());
}

#[test]
fn what_is_missing_or_strange_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = || {
        data::open("imagenet", &request(dir.path()))
            .unwrap_err()
            .to_string()
    };
    assert!(
        error().starts_with("no ImageNet in ") && error().contains("train/<class>/*.JPEG"),
        "{}",
        error()
    );
    imagenet(dir.path());
    fs::create_dir_all(dir.path().join("val/n03")).unwrap();
    assert!(
        error().contains("val/n03 is damaged: no folder of that name"),
        "{}",
        error()
    );
    fs::remove_dir_all(dir.path().join("val")).unwrap();
    assert!(
        error().contains("expected") && error().contains("val/n01/*.JPEG"),
        "{}",
        error()
    );
}

#[test]
fn a_damaged_image_is_an_error_when_its_batch_is_made() {
    let dir = tempfile::tempdir().unwrap();
    imagenet(dir.path());
    let path = dir.path().join("train/n02/x.png");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let data = data::open("imagenet", &request(dir.path())).unwrap();
    let error = data.train.batch(&[3], Some(1)).unwrap_err();
    assert!(matches!(error, DataError::Damaged { .. }), "{error}");
    assert!(!error.to_string().contains('\n'));
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        data.train.batch(&[3], None),
        Err(DataError::Read { .. })
    ));
    assert!(data.train.batch(&[0, 1, 2], None).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_make_an_image_or_an_error(
        at in 0usize..400, bytes in prop::collection::vec(any::<u8>(), 0..8), cut in 0usize..2000, png: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        imagenet(dir.path());
        let path = dir.path().join(if png { "train/n02/x.png" } else { "train/n01/0.JPEG" });
        let mut file = fs::read(&path).unwrap();
        for (byte, new) in file.iter_mut().skip(at).zip(&bytes) {
            *byte = *new;
        }
        file.truncate(cut);
        fs::write(&path, file).unwrap();
        let data = data::open("imagenet", &request(dir.path())).unwrap();
        if let Ok(batch) = data.train.batch(&[if png { 3 } else { 0 }], Some(1)) {
            prop_assert_eq!(pixels(&batch).len(), 768);
        }
    }
}
