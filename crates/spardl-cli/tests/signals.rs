//! Signals to `spardl train`, as shells and clusters send them.
#![cfg(all(unix, feature = "train"))]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn train(saved: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.env_remove("SPARDL_DATA_DIR");
    let small = "train --dnn mlp --dataset synthetic --train-samples 640 --test-samples 100 --workers 3 \
                 --batch-size 8 --method ok-topk --lr 0.05 --checkpoint-every 3";
    command.args(small.split_whitespace());
    command.arg("--checkpoint-dir").arg(saved).args(more);
    command
}

/// Starts a run and waits for its first checkpoint, which is none that an earlier run left: only then it listens to signals for
/// sure.
fn running(command: &mut Command, saved: &Path) -> Child {
    let began = Instant::now();
    let checkpoints = || -> Vec<OsString> {
        let files = fs::read_dir(saved).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("step-"))
            .collect()
    };
    let before = checkpoints();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    while checkpoints().iter().all(|name| before.contains(name)) {
        assert!(began.elapsed() < PATIENCE, "no checkpoint");
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Sends these signals, one right after the other.
fn send(child: &Child, signals: &[&str]) {
    let pid = child.id();
    let kills: Vec<String> = signals
        .iter()
        .map(|name| format!("kill -{name} {pid}"))
        .collect();
    let sent = Command::new("sh").arg("-c").arg(kills.join("; ")).status();
    assert!(sent.expect("a shell").success());
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn hash(out: &Path) -> String {
    let text = fs::read_to_string(out.join("summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    summary["hash"].as_str().expect("a hash").to_owned()
}

#[test]
fn a_signal_ends_a_run_after_the_step_and_it_goes_on_to_the_same_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, half) = (dir.path().join("whole"), dir.path().join("half"));
    let epochs = ["--max-epochs", "12", "--out"];
    let left_alone = train(&dir.path().join("alone"), &epochs)
        .arg(&whole)
        .output();
    assert!(left_alone.expect("started").status.success());
    let saved = dir.path().join("saved");
    let mut interrupted = false;
    for signal in ["INT", "TERM"] {
        let mut command = train(&saved, &epochs);
        command.arg(&half);
        if saved.exists() {
            command.arg("--resume");
        }
        let child = running(&mut command, &saved);
        send(&child, &[signal]);
        let output = child.wait_with_output().expect("it ends");
        let text = words(&output);
        if output.status.success() {
            // On a slow machine it may have come to its end before the signal came.
            continue;
        }
        interrupted = true;
        assert_eq!(output.status.code(), Some(130), "{signal}: {text}");
        let line = text.lines().find(|line| line.contains("stopped after"));
        let line = line.unwrap_or_else(|| panic!("{signal}: {text}"));
        assert!(line.contains("go on with: spardl train"), "{line}");
        assert!(line.ends_with("--resume"), "{line}");
        assert!(half.join("report.html").exists(), "{signal}: no report");
        assert!(!saved.join(".lock").exists(), "{signal}: still locked");
    }
    assert!(interrupted, "no signal came in time");
    let last = train(&saved, &epochs).arg(&half).arg("--resume").output();
    let last = last.expect("started");
    assert!(last.status.success(), "{}", words(&last));
    assert_eq!(hash(&half), hash(&whole));
}

#[test]
fn a_second_signal_ends_a_run_at_once_and_its_directory_is_taken_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let saved = dir.path().join("saved");
    let endless = ["--max-epochs", "1000000"];
    let child = running(&mut train(&saved, &endless), &saved);
    // Two kinds: of one kind that waits to be delivered there is never more than one.
    send(&child, &["INT", "TERM"]);
    let output = child.wait_with_output().expect("it ends");
    let text = words(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(!text.contains("stopped after"), "not at once: {text}");
    assert!(saved.join(".lock").exists(), "there was no time for it");
    let go_on = ["--max-steps", "500", "--resume"];
    let again = train(&saved, &go_on).output().expect("started");
    let text = words(&again);
    assert!(again.status.success(), "{text}");
    assert!(text.contains("taken over"), "{text}");
}

#[test]
fn a_run_that_was_killed_is_taken_over_while_nobody_has_asked_how_it_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let saved = dir.path().join("saved");
    let endless = ["--max-epochs", "1000000"];
    let child = running(&mut train(&saved, &endless), &saved);
    send(&child, &["KILL"]);
    let go_on = ["--max-epochs", "1000000", "--max-steps", "500", "--resume"];
    let again = train(&saved, &go_on).output().expect("started");
    let text = words(&again);
    assert!(again.status.success(), "{text}");
    assert!(text.contains("taken over"), "{text}");
    drop(child.wait_with_output());
}

#[test]
fn a_run_is_refused_where_another_one_is_before_it_says_or_touches_anything() {
    let dir = tempfile::tempdir().expect("a directory");
    let (saved, out) = (dir.path().join("saved"), dir.path().join("out"));
    let mut first = train(&saved, &["--max-epochs", "1000000", "--out"]);
    let child = running(first.arg(&out), &saved);
    for more in [&[][..], &["--resume", "--clip", "2"]] {
        let mut second = train(&saved, more);
        let output = second.arg("--out").arg(&out).output().expect("started");
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let lines = text.lines().count();
        assert!(
            text.contains("is in use by process") && lines == 1,
            "{text}"
        );
        assert!(output.stdout.is_empty(), "{text}");
    }
    assert!(out.join("steps.jsonl").exists(), "the first run's");
    send(&child, &["INT"]);
    let first = child.wait_with_output().expect("it ends");
    assert_eq!(first.status.code(), Some(130), "{}", words(&first));
}

#[test]
fn a_comparison_that_is_stopped_shows_the_runs_that_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let small = "compare --methods dense,gtopk --dnn mlp --dataset synthetic --train-samples 640 --test-samples 100 \
                 --workers 2 --batch-size 8 --max-epochs 12";
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command
        .args(small.split_whitespace())
        .arg("--out")
        .arg(&out);
    let began = Instant::now();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = output.spawn().expect("the binary was built for this test");
    // The second run has its directory once the first has ended.
    while !out.join("gtopk/steps.jsonl").exists() {
        assert!(began.elapsed() < PATIENCE, "no second run");
        thread::sleep(Duration::from_millis(2));
    }
    send(&child, &["INT"]);
    let output = child.wait_with_output().expect("it ends");
    let text = words(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("compare keeps no checkpoints"), "{text}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = table.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(names, ["method", "dense"], "{table}");
    for file in ["compare.json", "report.html", "gtopk/summary.json"] {
        assert!(out.join(file).exists(), "no {file}");
    }
}
