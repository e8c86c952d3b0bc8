//! Checkpoints on disk: what comes back, what is refused, what stays.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;
use spardl::{MethodState, State};
use spardl_train::store::{
    About, Arrays, Checkpoint, Damage, MANIFEST, MODEL, Part, Problem, Store, StoreError, rank_file,
};

const WORKERS: usize = 3;

fn model(step: u64) -> Arrays<'static> {
    let mut arrays = Arrays::new(json!({ "dnn": "lenet", "lr": 0.1 }));
    let weights: Vec<f32> = (0..6).map(|i| (step + i) as f32 / 7.0).collect();
    arrays
        .insert_shaped("conv1.weight", &[2, 3], weights)
        .unwrap();
    arrays.insert("optimiser.step", vec![step]);
    arrays
}

fn of_rank(step: u64, rank: usize) -> Arrays<'static> {
    let mut arrays = Arrays::new(json!(null));
    arrays.insert("residual", vec![rank as f32, step as f32, -0.0]);
    arrays
}

fn write_all(store: &Store, step: u64) -> Vec<Part> {
    store.begin(step).unwrap();
    let mut parts = vec![store.write_part(step, MODEL, &model(step)).unwrap()];
    for rank in 0..WORKERS {
        let name = rank_file(rank, WORKERS);
        let part = store.write_part(step, &name, &of_rank(step, rank));
        parts.push(part.unwrap());
    }
    parts
}

fn about() -> About {
    About {
        workers: WORKERS,
        config: "density = 0.01\n".to_owned(),
        metadata: json!({ "epoch": 2, "third": 1.0 / 3.0 }),
    }
}

fn save(store: &Store, step: u64) -> Checkpoint {
    let parts = write_all(store, step);
    store.publish(step, parts, about()).unwrap()
}

/// A store with checkpoints 10 and 20.
fn two() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("checkpoints"), 3);
    save(&store, 10);
    save(&store, 20);
    (dir, store)
}

/// The names of all files.
fn all(checkpoint: &Checkpoint) -> Vec<String> {
    let parts = checkpoint.manifest().parts().iter();
    parts.map(|part| part.name.clone()).collect()
}

/// The step that a resume would take, and the words about those it would not.
fn chosen(store: &Store) -> (Option<u64>, Vec<Damage>) {
    let mut refused = Vec::new();
    for step in store.list().unwrap() {
        match store.check(step, all) {
            Ok(checkpoint) => return (Some(checkpoint.step()), refused),
            Err(damage) => refused.push(damage),
        }
    }
    (None, refused)
}

fn hidden(store: &Store) -> Vec<PathBuf> {
    let entries = fs::read_dir(store.dir()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with('.'))
        .collect()
}

fn flip(path: &Path, at: usize, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
fn everything_comes_back_bit_for_bit() {
    let (_dir, store) = two();
    assert_eq!(store.list().unwrap(), [20, 10]);
    let checkpoint = store.open(20).unwrap();
    let manifest = checkpoint.manifest();
    assert_eq!((manifest.step(), manifest.workers()), (20, WORKERS));
    assert_eq!(manifest.config(), about().config);
    assert_eq!(manifest.metadata(), &about().metadata);
    let hash = blake3::hash(manifest.config().as_bytes()).to_hex();
    assert_eq!(manifest.config_blake3(), hash.as_str());
    assert_eq!(checkpoint.read(MODEL).unwrap(), model(20));
    assert_eq!(
        checkpoint.read(MODEL).unwrap().shape("conv1.weight"),
        Some(&[2, 3][..])
    );
    for rank in 0..WORKERS {
        let arrays = checkpoint.read(&rank_file(rank, WORKERS)).unwrap();
        assert_eq!(arrays, of_rank(20, rank));
        let zero = arrays.f32("residual").unwrap()[2];
        assert_eq!(zero.to_bits(), (-0.0_f32).to_bits());
    }
    assert!(hidden(&store).is_empty());
}

#[test]
fn other_tools_can_read_the_model() {
    let (_dir, store) = two();
    let bytes = fs::read(store.open(20).unwrap().dir().join(MODEL)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor("conv1.weight").unwrap();
    assert_eq!(tensor.shape(), [2, 3]);
    assert_eq!(tensor.dtype(), safetensors::Dtype::F32);
    assert_eq!(tensor.data()[..4], (20.0_f32 / 7.0).to_le_bytes());
}

#[test]
fn the_state_of_a_collective_comes_back() {
    let states = [1.0_f32, 2.0].map(|value| State {
        residual: vec![value, f32::MIN_POSITIVE / 2.0],
        method: MethodState::default()
            .with_f32("threshold", vec![value * 0.1])
            .with_u64("calls", vec![u64::MAX, 0]),
    });
    let mut arrays = Arrays::default();
    arrays.insert_state("bucket.0", &states[0]);
    arrays.insert_state("bucket.1", &states[1]);
    let mut bytes = Vec::new();
    arrays.write_to(&mut bytes).unwrap();
    let len = bytes.len() as u64;
    let mut back = Arrays::read_from(&mut bytes.as_slice(), len).unwrap();
    assert_eq!(back.take_state("bucket.0").unwrap(), states[0]);
    assert_eq!(back.take_state("bucket.1").unwrap(), states[1]);
    assert_eq!(back.names().count(), 0);
    let error = back.take_state("bucket.1").unwrap_err().to_string();
    assert_eq!(
        error,
        "array `bucket.1.residual` is missing: expected a list of f32"
    );
}

#[test]
fn a_shape_must_hold_the_values() {
    let mut arrays = Arrays::default();
    for shape in [&[2, 2][..], &[usize::MAX, 2], &[]] {
        let error = arrays.insert_shaped("w", shape, vec![1.0_f32; 3]);
        assert!(error.is_err(), "{shape:?}");
    }
    assert_eq!(arrays.names().count(), 0);
}

#[test]
fn a_stop_before_publishing_leaves_the_older_one_in_use() {
    let (_dir, store) = two();
    store.begin(30).unwrap();
    assert_eq!(chosen(&store), (Some(20), vec![]));
    store.write_part(30, MODEL, &model(30)).unwrap();
    assert_eq!(chosen(&store), (Some(20), vec![]));
    let parts = write_all(&store, 30);
    assert_eq!(chosen(&store), (Some(20), vec![]));
    // All but the last rename.
    let manifest = store.dir().join("step-000000020").join(MANIFEST);
    let partial = store.dir().join(".step-000000030.partial");
    fs::copy(manifest, partial.join(MANIFEST)).unwrap();
    assert_eq!(chosen(&store), (Some(20), vec![]));
    store.publish(30, parts, about()).unwrap();
    assert_eq!(chosen(&store), (Some(30), vec![]));
    assert!(hidden(&store).is_empty());
}

#[test]
fn what_a_stop_left_behind_goes_with_the_next_one() {
    let (_dir, store) = two();
    store.begin(30).unwrap();
    store.write_part(30, MODEL, &model(30)).unwrap();
    fs::create_dir(store.dir().join(".step-000000007.deleted")).unwrap();
    fs::create_dir(store.dir().join("notes")).unwrap();
    save(&store, 40);
    assert!(hidden(&store).is_empty());
    assert!(store.dir().join("notes").exists());
    assert_eq!(store.list().unwrap(), [40, 20, 10]);
}

#[test]
fn a_stop_between_the_renames_of_a_replacement_loses_nothing() {
    let (_dir, store) = two();
    write_all(&store, 20);
    let public = store.dir().join("step-000000020");
    fs::rename(&public, store.dir().join(".step-000000020.replaced")).unwrap();
    assert_eq!(store.list().unwrap(), [20, 10]);
    assert_eq!(chosen(&store), (Some(20), vec![]));
    // Another step is saved meanwhile, then the same one again.
    save(&store, 30);
    assert_eq!(chosen(&store), (Some(30), vec![]));
    assert_eq!(store.list().unwrap(), [30, 20, 10]);
    save(&store, 20);
    assert!(public.exists());
    assert!(hidden(&store).is_empty());
}

#[test]
fn a_checkpoint_of_the_same_step_is_replaced() {
    let (_dir, store) = two();
    let mut parts = write_all(&store, 20);
    let mut other = model(20);
    other.insert("optimiser.step", vec![99_u64]);
    parts[0] = store.write_part(20, MODEL, &other).unwrap();
    store.publish(20, parts, about()).unwrap();
    assert_eq!(store.open(20).unwrap().read(MODEL).unwrap(), other);
    assert_eq!(chosen(&store), (Some(20), vec![]));
    assert!(hidden(&store).is_empty());
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_the_older_one_used() {
    let (_dir, store) = two();
    let dir = store.open(20).unwrap().dir().to_owned();
    let names = all(&store.open(20).unwrap()).into_iter();
    for name in names.chain([MANIFEST.to_owned()]) {
        let path = dir.join(&name);
        let size = fs::metadata(&path).unwrap().len() as usize;
        for at in (0..size).step_by(5) {
            let bit = (at % 8) as u8;
            flip(&path, at, bit);
            let (step, refused) = chosen(&store);
            assert_eq!(step, Some(10), "{name} byte {at}");
            assert_eq!((refused[0].step, &refused[0].file), (20, &name));
            flip(&path, at, bit);
        }
        assert_eq!(chosen(&store), (Some(20), vec![]));
    }
}

#[test]
fn a_file_cut_short_or_missing_is_found_and_the_older_one_used() {
    let (_dir, store) = two();
    let dir = store.open(20).unwrap().dir().to_owned();
    let names = all(&store.open(20).unwrap()).into_iter();
    for name in names.chain([MANIFEST.to_owned()]) {
        let path = dir.join(&name);
        let bytes = fs::read(&path).unwrap();
        for len in [0, 1, 8, bytes.len() / 2, bytes.len() - 1] {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(len as u64).unwrap();
            let (step, refused) = chosen(&store);
            assert_eq!(step, Some(10), "{name} cut to {len}");
            assert_eq!(refused[0].file, name);
            fs::write(&path, &bytes).unwrap();
        }
        fs::remove_file(&path).unwrap();
        let (step, refused) = chosen(&store);
        assert_eq!(step, Some(10), "{name} removed");
        assert_eq!(refused[0].problem, Problem::Missing);
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(chosen(&store), (Some(20), vec![]));
}

#[test]
fn damage_is_one_line_that_names_step_and_file() {
    let (_dir, store) = two();
    let checkpoint = store.open(20).unwrap();
    let name = rank_file(1, WORKERS);
    let path = checkpoint.dir().join(&name);
    let size = fs::metadata(&path).unwrap().len();
    fs::write(&path, b"short").unwrap();
    let damage = checkpoint.read(&name).unwrap_err();
    assert_eq!(
        damage.to_string(),
        format!("checkpoint of step 20 refused: {name} is 5 bytes long, expected {size}")
    );
    let damage = checkpoint.read("other.safetensors").unwrap_err();
    assert_eq!(damage.problem, Problem::NotListed);
    assert_eq!(store.open(11).unwrap_err().problem, Problem::Missing);
}

#[test]
fn a_rank_is_only_held_up_by_files_it_needs() {
    let (_dir, store) = two();
    let checkpoint = store.open(20).unwrap();
    fs::remove_file(checkpoint.dir().join(rank_file(2, WORKERS))).unwrap();
    let fit = |rank, workers| {
        let needs = |checkpoint: &Checkpoint| checkpoint.needed_by(rank, workers);
        store.check(20, needs).is_ok()
    };
    assert_eq!([0, 1, 2].map(|rank| fit(rank, 3)), [true, true, false]);
    assert_eq!([0, 1].map(|rank| fit(rank, 2)), [false, true]);
    let of_five = [0, 1, 2, 3, 4].map(|rank| fit(rank, 5));
    assert_eq!(of_five, [true, true, false, true, true]);
}

#[test]
fn the_last_n_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path(), 2);
    for step in [1, 5, 30, 1_000_000_000] {
        save(&store, step);
    }
    assert_eq!(store.list().unwrap(), [1_000_000_000, 30]);
    let least = Store::new(dir.path(), 0);
    save(&least, 2_000_000_000);
    assert_eq!(least.list().unwrap(), [2_000_000_000]);
}

#[test]
fn a_run_that_goes_back_keeps_what_it_publishes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path(), 1);
    save(&store, 50);
    save(&store, 20);
    assert_eq!(store.list().unwrap(), [50, 20]);
    let aside = store.set_aside_after(20).unwrap();
    assert_eq!(aside, [dir.path().join("step-000000050.damaged")]);
    assert!(aside[0].join(MODEL).exists(), "not deleted");
    assert_eq!(store.list().unwrap(), [20]);
}

#[test]
fn nothing_is_published_that_is_not_all_there() {
    let (_dir, store) = two();
    let refuse = |parts: Vec<Part>, words: &str| {
        let error = store.publish(30, parts, about()).unwrap_err();
        assert!(matches!(error, StoreError::Parts { step: 30, .. }));
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(chosen(&store), (Some(20), vec![]));
    };
    let parts = write_all(&store, 30);
    refuse(parts[1..].to_vec(), "model.safetensors is not listed");
    refuse(
        parts[..3].to_vec(),
        "rank-00002-of-00003.safetensors is not listed",
    );
    refuse([&parts[..], &parts[..1]].concat(), "listed twice");
    let mut longer = parts.clone();
    longer[0].size += 1;
    refuse(longer, "bytes long, expected");
    fs::remove_file(store.dir().join(".step-000000030.partial").join(MODEL)).unwrap();
    refuse(parts, "model.safetensors: ");
}

#[test]
fn a_part_stays_in_its_directory() {
    let (_dir, store) = two();
    store.begin(30).unwrap();
    for name in ["../x", "a/b", "", ".hidden", "..", MANIFEST] {
        let refused = store.write_part(30, name, &model(30));
        assert!(matches!(refused, Err(StoreError::Parts { .. })), "{name}");
    }
}

#[test]
fn an_empty_or_absent_directory_holds_no_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("not/there"), 3);
    assert_eq!(store.list().unwrap(), Vec::<u64>::new());
    assert_eq!(chosen(&store), (None, vec![]));
    assert_eq!(store.set_aside_after(0).unwrap(), Vec::<PathBuf>::new());
    store.create().unwrap();
    store.create().unwrap();
    assert!(store.dir().is_dir());
}

fn values() -> impl Strategy<Value = (Vec<u32>, Vec<u64>)> {
    (
        prop::collection::vec(any::<u32>(), 0..40),
        prop::collection::vec(any::<u64>(), 0..40),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bits_come_back((bits, integers) in values(), note in ".{0,40}", number: f64) {
        let floats: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
        let mut arrays = Arrays::new(json!({ "note": note, "number": number }));
        arrays.insert("a", floats.as_slice());
        arrays.insert("b", integers.as_slice());
        arrays.insert("c", Vec::<f32>::new());
        let mut bytes = Vec::new();
        arrays.write_to(&mut bytes).unwrap();
        let len = bytes.len() as u64;
        let back = Arrays::read_from(&mut bytes.as_slice(), len).unwrap();
        let back_bits: Vec<u32> = back.f32("a").unwrap().iter().map(|v| v.to_bits()).collect();
        prop_assert_eq!(back_bits, bits);
        prop_assert_eq!(back.u64("b").unwrap(), integers.as_slice());
        prop_assert_eq!(&back.metadata, &arrays.metadata);
        let mut again = Vec::new();
        back.write_to(&mut again).unwrap();
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn random_bytes_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Arrays::read_from(&mut bytes.as_slice(), bytes.len() as u64).is_err());
    }

    #[test]
    fn a_changed_header_never_panics(at in 0_usize..300, to: u8, cut in 0_usize..300) {
        let mut bytes = Vec::new();
        model(3).write_to(&mut bytes).unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        let len = bytes.len() as u64;
        let _ = Arrays::read_from(&mut bytes.as_slice(), len);
        bytes.truncate(cut % bytes.len());
        prop_assert!(Arrays::read_from(&mut bytes.as_slice(), len).is_err());
    }

    #[test]
    fn a_random_manifest_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), 1);
        let step = dir.path().join("step-000000004");
        fs::create_dir(&step).unwrap();
        fs::write(step.join(MANIFEST), bytes).unwrap();
        let content = matches!(store.open(4).unwrap_err().problem, Problem::Content(_));
        prop_assert!(content);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_with_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::new(dir.path(), 1);
    store.begin(7).expect("a directory");
    let name = rank_file(0, 1);
    let path = dir.path().join(".step-000000007.partial").join(&name);
    std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
    let values = vec![1.0f32; 1 << 20];
    let mut arrays = Arrays::new(serde_json::json!({}));
    arrays.insert("residual", values.as_slice());
    let error = store.write_part(7, &name, &arrays).expect_err("full");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("No space left"), "{text}");
}
