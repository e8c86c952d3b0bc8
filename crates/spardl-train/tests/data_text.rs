//! Text sets: written small, read back; what language models are asked.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use spardl_train::data::{self, Level, Objective, Request, Task};
use spardl_train::{Batch, Data, IGNORE, Input};

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn request(dir: &Path) -> Request {
    Request {
        dir: Some(dir.to_owned()),
        ..Request::default()
    }
}

fn tokens(batch: &Batch) -> &[u32] {
    match &batch.input {
        Input::Tokens(tokens) => tokens,
        Input::Pixels(_) => panic!("texts are tokens"),
    }
}

fn language(data: &Data) -> (usize, usize) {
    match data.task {
        Task::Language { length, vocabulary } => (length, vocabulary),
        other => panic!("{other:?}"),
    }
}

fn imdb(dir: &Path) {
    for part in ["train", "test"] {
        write(
            &dir.join(part).join("pos/0_9.txt"),
            "Good, good film.<br /><br />GOOD!",
        );
        write(
            &dir.join(part).join("pos/1_10.txt"),
            b"a fine film \xff\xfe",
        );
        write(&dir.join(part).join("neg/0_1.txt"), "bad film, film bad");
        write(
            &dir.join(part).join("unsup/0_0.txt"),
            "bad bad bad bad bad bad",
        );
        write(&dir.join(part).join("urls_pos.txt"), "http://x");
    }
    write(&dir.join("test/neg/1_1.txt"), "unheard-of rubbish");
}

#[test]
fn imdb_is_read_from_every_usual_folder() {
    for inner in ["", "imdb", "aclImdb", "imdb/aclImdb"] {
        let dir = tempfile::tempdir().unwrap();
        imdb(&dir.path().join(inner));
        let data = data::open(
            "imdb",
            &Request {
                length: Some(6),
                ..request(dir.path())
            },
        )
        .unwrap();
        // film 4, good 3, bad 2, a 1, fine 1; the review that is not UTF-8 loses those bytes only.
        assert_eq!(
            data.task,
            Task::Sequences {
                length: 6,
                vocabulary: 7,
                classes: 2
            }
        );
        let batch = data.train.batch(&[0, 1, 2], Some(1)).unwrap();
        assert_eq!(batch.targets, [0, 1, 1]);
        assert_eq!(
            tokens(&batch),
            [4, 2, 2, 4, 0, 0, 3, 3, 2, 3, 0, 0, 5, 6, 2, 0, 0, 0]
        );
        let batch = data.test.batch(&[1], None).unwrap();
        assert_eq!(
            (tokens(&batch), &batch.targets[..]),
            (&[1, 1, 1, 0, 0, 0][..], &[0][..])
        );
    }
}

#[test]
fn imdb_keeps_the_last_words_and_the_most_frequent_ones() {
    let dir = tempfile::tempdir().unwrap();
    imdb(dir.path());
    let short = Request {
        length: Some(2),
        vocabulary: Some(4),
        ..request(dir.path())
    };
    let data = data::open("imdb", &short).unwrap();
    assert_eq!(
        data.task,
        Task::Sequences {
            length: 2,
            vocabulary: 4,
            classes: 2
        }
    );
    assert_eq!(
        tokens(&data.train.batch(&[0, 1, 2], None).unwrap()),
        [2, 1, 2, 3, 1, 2]
    );
}

#[test]
fn a_review_without_words_is_not_all_padding() {
    let dir = tempfile::tempdir().unwrap();
    imdb(dir.path());
    write(&dir.path().join("train/neg/0_1.txt"), "... <br /> !!!");
    let data = data::open(
        "imdb",
        &Request {
            length: Some(3),
            ..request(dir.path())
        },
    )
    .unwrap();
    assert_eq!(tokens(&data.train.batch(&[0], None).unwrap()), [1, 0, 0]);
}

#[test]
fn a_missing_part_of_imdb_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().display().to_string();
    let error = || {
        data::open("imdb", &request(dir.path()))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(),
        format!(
            "no IMDB in {place}: expected {place}/aclImdb/train/neg/*.txt; get aclImdb_v1.tar.gz from \
             https://ai.stanford.edu/~amaas/data/sentiment/ and unpack it there"
        )
    );
    imdb(&dir.path().join("aclImdb"));
    fs::remove_dir_all(dir.path().join("aclImdb/test/pos")).unwrap();
    assert!(
        error().contains("expected") && error().contains("/aclImdb/test/pos/*.txt"),
        "{}",
        error()
    );
}

/// Ninety and ten lines of six tokens.
fn lines() -> String {
    (0..100)
        .map(|i| format!("The word is w{},\n", i % 7))
        .collect()
}

#[test]
fn the_next_token_is_the_target_and_windows_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("text/a.txt"), lines());
    let data = data::open(
        "text",
        &Request {
            length: Some(8),
            ..request(dir.path())
        },
    )
    .unwrap();
    // Padding, unknown, mask, end of line; comma, is, the, word; w0 to w6.
    assert_eq!(language(&data), (8, 4 + 4 + 7));
    assert_eq!(
        (data.train.len(), data.test.len()),
        ((90 * 6 - 1) / 8, (10 * 6 - 1) / 8)
    );
    let all: Vec<u32> = (0..data.train.len() as u32).collect();
    let batch = data.train.batch(&all, Some(3)).unwrap();
    let tokens = tokens(&batch);
    assert_eq!(tokens[1..], batch.targets[..tokens.len() - 1]);
    assert_eq!(tokens[..6], [6, 7, 5, 8, 4, 3]);
}

#[test]
fn a_text_may_be_a_file_or_a_folder_and_its_tokens_characters() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text/book/one.txt");
    write(&file, "ab".repeat(300));
    let small = |dir: &Path| Request {
        length: Some(5),
        level: Level::Characters,
        ..request(dir)
    };
    for place in [&file, &dir.path().join("text/book"), dir.path()] {
        let data = data::open("text", &small(place)).unwrap();
        assert_eq!(language(&data), (5, 6));
        let batch = data.train.batch(&[0], None).unwrap();
        assert_eq!(
            (tokens(&batch), &batch.targets[..]),
            (&[4, 5, 4, 5, 4][..], &[5, 4, 5, 4, 5][..])
        );
    }
    let error = data::open("text", &request(&dir.path().join("nowhere")))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("no text in ") && error.contains("/nowhere/*.txt"),
        "{error}"
    );
    let error = data::open("text", &request(&file)).unwrap_err().to_string();
    assert!(
        error.contains("expected at least one sequence of 35"),
        "{error}"
    );
}

#[test]
fn wikitext_keeps_the_tokens_of_its_makers() {
    let dir = tempfile::tempdir().unwrap();
    for (inner, end) in [
        ("wikitext-2", "tokens"),
        ("wikitext-103-raw", "raw"),
        ("wikitext/wikitext-2-raw", "raw"),
    ] {
        let place = dir.path().join(end).join(inner);
        write(
            &place.join(format!("wiki.train.{end}")),
            " \n = A title = \n The <unk> @-@ The \n",
        );
        write(
            &place.join(format!("wiki.test.{end}")),
            "The new <unk> = \n",
        );
        let open = Request {
            length: Some(4),
            ..request(&dir.path().join(end))
        };
        let data = data::open("wikitext", &open).unwrap();
        assert_eq!(language(&data), (4, 9));
        assert_eq!(
            tokens(&data.train.batch(&[0, 1], None).unwrap()),
            [3, 4, 7, 8, 4, 3, 5, 1]
        );
        assert_eq!(data.test.batch(&[0], None).unwrap().targets, [1, 1, 4, 3]);
        fs::remove_dir_all(place).unwrap();
    }
    let error = data::open("wikitext", &request(dir.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/wikitext-2/wiki.train.tokens"), "{error}");
}

fn synthetic(objective: Objective, length: usize, vocabulary: usize) -> Data {
    let request = Request {
        seed: 5,
        objective,
        length: Some(length),
        vocabulary: Some(vocabulary),
        ..Request::default()
    };
    data::open("synthetic-text", &request).unwrap()
}

#[test]
fn masks_follow_the_published_rule() {
    let (masked, plain) = (
        synthetic(Objective::Masked, 100, 1000),
        synthetic(Objective::Next, 100, 1000),
    );
    let samples: Vec<u32> = (0..1000).collect();
    let batch = masked.train.batch(&samples, Some(4)).unwrap();
    let text = plain.train.batch(&samples, None).unwrap();
    let (mut hidden, mut mask, mut kept) = (0, 0, 0);
    for ((&token, &target), &original) in
        tokens(&batch).iter().zip(&batch.targets).zip(tokens(&text))
    {
        if target == IGNORE {
            assert_eq!(token, original);
            continue;
        }
        assert_eq!(target, original);
        hidden += 1;
        mask += usize::from(token == 2);
        kept += usize::from(token == original);
        assert!(token == 2 || (4..1000).contains(&token));
    }
    // Of 100,000 tokens: 15 % with a deviation of 113; of those 80 % with one of 49, 10 % with one of 37.
    assert!((14_400..15_600).contains(&hidden), "{hidden}");
    assert!(
        (0.78..0.82).contains(&(f64::from(mask as u32) / f64::from(hidden))),
        "{mask} of {hidden}"
    );
    assert!(
        (0.08..0.12).contains(&(f64::from(kept as u32) / f64::from(hidden))),
        "{kept} of {hidden}"
    );
}

#[test]
fn masks_are_drawn_from_the_seed_and_those_of_a_test_stay() {
    let data = synthetic(Objective::Masked, 64, 64);
    let batch = |samples: &[u32], seed| data.test.batch(samples, seed).unwrap();
    assert_eq!(batch(&[1, 2], Some(8)), batch(&[1, 2], Some(8)));
    assert_ne!(batch(&[1, 2], Some(8)), batch(&[1, 2], Some(9)));
    assert_eq!(
        batch(&[1, 2], None).targets[64..],
        batch(&[2], None).targets
    );
}

#[test]
fn the_synthetic_text_has_the_entropy_it_claims() {
    let data = synthetic(Objective::Next, 50, 24);
    let floor = data.floor.unwrap();
    assert!((floor - 1.75 * 2f64.ln()).abs() < 1e-12);
    assert_eq!(synthetic(Objective::Masked, 50, 24).floor, None);
    let all: Vec<u32> = (0..data.train.len() as u32).collect();
    let batch = data.train.batch(&all, None).unwrap();
    let mut pairs = [[0u32; 24]; 24];
    for (&token, &next) in tokens(&batch).iter().zip(&batch.targets) {
        pairs[token as usize][next as usize] += 1;
    }
    let mut loss = 0.0;
    for row in pairs {
        let sum: u32 = row.iter().sum();
        assert!(row.iter().filter(|&&count| count > 0).count() <= 4);
        loss -= row
            .iter()
            .filter(|&&c| c > 0)
            .map(|&c| f64::from(c) * f64::from(c).ln())
            .sum::<f64>();
        loss += f64::from(sum) * f64::from(sum.max(1)).ln();
    }
    // What a table of all pairs would lose: the claim, up to the chance in 200,000 draws.
    let loss = loss / batch.targets.len() as f64;
    assert!((loss - floor).abs() < 0.01, "{loss}");
}

#[test]
fn synthetic_reviews_can_be_told_by_counting_words() {
    let data = data::open("synthetic-reviews", &Request::default()).unwrap();
    assert_eq!(
        data.task,
        Task::Sequences {
            length: 40,
            vocabulary: 200,
            classes: 2
        }
    );
    let all: Vec<u32> = (0..data.test.len() as u32).collect();
    let batch = data.test.batch(&all, None).unwrap();
    let right = tokens(&batch)
        .chunks(40)
        .zip(&batch.targets)
        .filter(|(review, label)| {
            let count = |side: u32| {
                review
                    .iter()
                    .filter(|&&t| t >= 2 && (t - 2) / 49 == side)
                    .count()
            };
            (**label == 1) == (count(1) > count(0))
        });
    let accuracy = right.count() as f64 / all.len() as f64;
    assert!((0.9..1.0).contains(&accuracy), "{accuracy}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (name, length, vocabulary) in [
        ("synthetic-text", Some(0), None),
        ("synthetic-text", Some(30_000), None),
        ("synthetic-text", None, Some(7)),
        ("synthetic-reviews", Some(0), None),
        ("synthetic-reviews", None, Some(5)),
        ("synthetic-reviews", None, Some(usize::MAX)),
        ("imdb", None, Some(2)),
    ] {
        let request = Request {
            length,
            vocabulary,
            dir: Some("/".into()),
            ..Request::default()
        };
        let error = data::open(name, &request).unwrap_err().to_string();
        assert!(error.contains("asked for: expected"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_make_a_text_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), masked: bool, characters: bool) {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("x.txt"), &bytes);
        let request = Request {
            length: Some(3),
            objective: if masked { Objective::Masked } else { Objective::Next },
            level: if characters { Level::Characters } else { Level::Words },
            ..request(dir.path())
        };
        if let Ok(data) = data::open("text", &request) {
            let (_, vocabulary) = language(&data);
            for set in [data.train, data.test] {
                let all: Vec<u32> = (0..set.len() as u32).collect();
                let batch = set.batch(&all, Some(1)).unwrap();
                prop_assert!(tokens(&batch).iter().all(|&token| (token as usize) < vocabulary));
                prop_assert!(batch.targets.iter().any(|&target| target != IGNORE));
            }
        }
    }
}
