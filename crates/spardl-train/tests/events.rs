//! Event files: what is written can be read by others, and a resumed run has one clean log.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use spardl_train::events::{JsonLines, TensorBoard};

#[derive(Serialize)]
struct Step {
    kind: &'static str,
    step: u64,
    loss: f32,
}

fn step(step: u64) -> Step {
    let loss = 1.0 / (step + 1) as f32;
    Step {
        kind: "step",
        step,
        loss,
    }
}

fn steps(path: &Path) -> Vec<Option<u64>> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records
        .map(|record: Value| record["step"].as_u64())
        .collect()
}

#[test]
fn every_record_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/steps.jsonl");
    let mut lines = JsonLines::create(&path).unwrap();
    lines.append(&step(0)).unwrap();
    lines
        .append(&serde_json::json!({ "step": 1, "text": "a\nb" }))
        .unwrap();
    lines.append(&step(2)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(
        text.lines().next().unwrap(),
        r#"{"kind":"step","step":0,"loss":1.0}"#
    );
    assert_eq!(steps(&path), [Some(0), Some(1), Some(2)]);
}

#[test]
fn a_resumed_log_has_every_step_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.jsonl");
    let mut lines = JsonLines::create(&path).unwrap();
    lines
        .append(&serde_json::json!({ "config": "lr = 0.1" }))
        .unwrap();
    for s in 1..=5 {
        lines.append(&step(s)).unwrap();
    }
    lines.append(&serde_json::json!({ "epoch": 1 })).unwrap();
    drop(lines);
    let (mut lines, kept) = JsonLines::resume::<Value>(&path, 3).unwrap();
    assert_eq!(kept.len(), 4);
    assert_eq!(kept[2]["step"], 2);
    assert_eq!(steps(&path), [None, Some(1), Some(2), Some(3)]);
    lines.append(&step(4)).unwrap();
    assert_eq!(steps(&path), [None, Some(1), Some(2), Some(3), Some(4)]);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn a_line_cut_short_by_a_stop_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.jsonl");
    for tail in [
        &b"{\"step\":2,\"lo"[..],
        b"{\"step\":2}",
        b"\xff\xfe\n",
        b"\n[1]\n",
    ] {
        fs::write(&path, [b"{\"step\":1}\n", tail].concat()).unwrap();
        let (mut lines, kept) = JsonLines::resume::<Value>(&path, 9).unwrap();
        assert_eq!(kept.len(), 1);
        lines.append(&step(2)).unwrap();
        assert_eq!(steps(&path), [Some(1), Some(2)], "{tail:?}");
    }
}

#[test]
fn a_run_without_a_log_starts_one_on_resume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out/steps.jsonl");
    let (mut lines, kept) = JsonLines::resume::<Value>(&path, 3).unwrap();
    assert!(kept.is_empty());
    lines.append(&step(4)).unwrap();
    assert_eq!(steps(&path), [Some(4)]);
}

#[test]
fn a_log_that_cannot_be_written_names_the_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let path = dir.path().join("file/steps.jsonl");
    let error = JsonLines::create(path).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot create ") && error.contains("file"),
        "{error}"
    );
}

/// One decoded event: step, and what it says.
#[derive(Debug, PartialEq)]
enum Event {
    Version(String),
    Start(u64),
    Scalar(String, u64, f32),
}

/// A field of a message: its number, and the number or bytes in it.
enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(len);
    *bytes = rest;
    head
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = key >> 3;
        fields.push(match key & 7 {
            0 => Field::Number(field, varint(&mut bytes)),
            1 => {
                let bits = take(&mut bytes, 8).try_into().unwrap();
                Field::Number(field, u64::from_le_bytes(bits))
            }
            5 => {
                let bits = take(&mut bytes, 4).try_into().unwrap();
                Field::Number(field, u32::from_le_bytes(bits).into())
            }
            wire => {
                assert_eq!(wire, 2);
                let len = varint(&mut bytes) as usize;
                Field::Bytes(field, take(&mut bytes, len))
            }
        });
    }
    fields
}

fn number(fields: &[Field<'_>], wanted: u64) -> u64 {
    let of = |field: &Field<'_>| match *field {
        Field::Number(field, value) if field == wanted => Some(value),
        _ => None,
    };
    fields.iter().find_map(of).unwrap()
}

fn bytes<'a>(fields: &[Field<'a>], wanted: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|field| match *field {
        Field::Bytes(field, value) if field == wanted => Some(value),
        _ => None,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn decode(payload: &[u8]) -> Event {
    let event = fields(payload);
    let time = f64::from_bits(number(&event, 1));
    assert!(time > 1.7e9, "{time} is a wall time of long ago");
    let step = number(&event, 2);
    if let Some(version) = bytes(&event, 3) {
        return Event::Version(text(version));
    }
    if let Some(session) = bytes(&event, 7) {
        assert_eq!(number(&fields(session), 1), 1);
        return Event::Start(step);
    }
    let summary = fields(bytes(&event, 5).unwrap());
    let value = fields(bytes(&summary, 1).unwrap());
    let tag = text(bytes(&value, 1).unwrap());
    let bits = u32::try_from(number(&value, 2)).unwrap();
    Event::Scalar(tag, step, f32::from_bits(bits))
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn read(path: &Path) -> Vec<Event> {
    let file = fs::read(path).unwrap();
    let mut rest = file.as_slice();
    let mut events = Vec::new();
    while !rest.is_empty() {
        let length = take(&mut rest, 8);
        assert_eq!(take(&mut rest, 4), masked(length));
        let length = u64::from_le_bytes(length.try_into().unwrap());
        let payload = take(&mut rest, length as usize);
        assert_eq!(take(&mut rest, 4), masked(payload));
        events.push(decode(payload));
    }
    events
}

#[test]
fn scalars_come_back_with_right_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(300);
    let scalars = [
        ("loss/train", 0, 2.5),
        ("loss/train", 127, f32::INFINITY),
        ("accuracy", 128, -0.0),
        ("größe", 1 << 40, 1e-30),
        (&long, 1, 1.0),
    ];
    let mut board = TensorBoard::create(dir.path()).unwrap();
    for (tag, step, value) in scalars {
        board.scalar(tag, step, value).unwrap();
    }
    board.flush().unwrap();
    let events = read(board.path());
    let version = Event::Version("brain.Event:2".to_owned());
    // The start of a session at step 0 hides what an earlier run left in the directory.
    assert_eq!(events[..2], [version, Event::Start(0)]);
    let scalars = scalars.map(|(tag, step, value)| Event::Scalar(tag.to_owned(), step, value));
    assert_eq!(events[2..], scalars);
}

#[test]
fn a_second_run_has_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let first = TensorBoard::create(dir.path()).unwrap();
    let second = TensorBoard::create(dir.path()).unwrap();
    assert_ne!(first.path(), second.path());
}

#[test]
fn tensorboard_finds_the_file_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let board = TensorBoard::create(&dir.path().join("a/b")).unwrap();
    let name = board.path().file_name().unwrap().to_str().unwrap();
    let rest = name.strip_prefix("events.out.tfevents.").unwrap();
    let seconds: u64 = rest.split('.').next().unwrap().parse().unwrap();
    assert!(seconds > 1_700_000_000, "{name}");
}
