//! What a person sees on a terminal of 80 columns.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Command;
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const COLUMNS: u16 = 80;

/// What a call writes to a terminal: stdout and stderr together.
fn seen(arguments: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("ours");
    unlockpt(&master).expect("open");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let name = name.into_string().expect("text");
    let slave = OpenOptions::new().read(true).write(true).open(name);
    let slave = slave.expect("the other end");
    let size = Winsize {
        ws_row: 24,
        ws_col: COLUMNS,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).expect("a terminal");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(arguments.split_whitespace());
    command.env_remove("SPARDL_DATA_DIR").env_remove("NO_COLOR");
    command.stdout(slave.try_clone().expect("the same end"));
    command.stderr(slave);
    let mut child = command.spawn().expect("the binary runs");
    // Ours of its end: what is read ends when the child does.
    drop(command);
    let reader = thread::spawn(move || {
        let (mut terminal, mut bytes) = (File::from(master), [0; 4096]);
        let mut all = Vec::new();
        // A terminal that nobody writes to any more is an error.
        while let Ok(length @ 1..) = terminal.read(&mut bytes) {
            all.extend_from_slice(&bytes[..length]);
        }
        all
    });
    let status = child.wait().expect("it ends");
    let text = String::from_utf8(reader.join().expect("no panic")).expect("text");
    let text = without_codes(&text);
    assert!(status.success(), "{arguments}: {text}");
    text
}

/// Without what colours; what moves the cursor ends a line.
fn without_codes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(char::is_alphabetic).unwrap_or(0);
        if !part[end..].starts_with('m') {
            plain.push('\n');
        }
        plain.extend(part.chars().skip(end + 1));
    }
    plain
}

/// Calls whose lines all fit, with a word that shows that something was printed.
fn fit(calls: &[(&str, &str)]) {
    for (call, word) in calls {
        let text = seen(call);
        assert!(text.contains(word), "{call}: no {word}:\n{text}");
        // A bar is drawn again and again in the same line.
        for line in text.split(['\n', '\r']) {
            let length = line.chars().count();
            assert!(length <= COLUMNS.into(), "{call}: {length}: {line}");
        }
    }
}

#[test]
fn every_list_explanation_and_advice_fits() {
    fit(&[
        ("list", "ok-topk"),
        ("explain spardl", "Example, 5 workers"),
        ("explain exdyna", "- the threshold starts"),
        ("explain auto", "It chooses from these"),
        ("ablation list", "ok-topk-accuracy"),
        ("doctor", "SIMD"),
        (
            "advise --model bert-base --workers 8 --bandwidth 25gbit",
            "Dense is exact",
        ),
        (
            "advise --model gpt2-xl --workers 1000 --bandwidth 1gbit --density 0.001",
            "message, 0 ns of",
        ),
    ]);
}

#[test]
fn every_table_of_the_bench_the_tuner_and_the_simulator_fits() {
    let mut calls = vec![
        (
            "bench --workers 2 --elements 5000 --methods dense,spardl-bf16,auto --iterations 2 --warmup 1 --no-cache",
            "auto: ",
        ),
        (
            "bench --local --workers 2 --elements 5000 --methods hard-threshold-bf16",
            "rescans",
        ),
        (
            "tune --workers 4 --elements 100000 --value-types f32,bf16,q4 --no-cache",
            "is used: ",
        ),
        (
            "tune --workers 2 --elements 3000 --no-cache --check 1",
            "regret",
        ),
        (
            "tune --workers 2 --elements 3000 --no-cache --exchange-budget 10s --steps 30 --method spardl",
            "looks are within",
        ),
        ("tune --local --elements 5000 --no-cache", "merge per byte"),
        (
            "simulate --workers 8 --elements 4096 --methods dense,spardl-bf16 --topology two-level --node-size 4",
            "longest chain",
        ),
        (
            "simulate --workers 8 --elements 4096 --methods dense,spardl --cost-only",
            "spardl",
        ),
    ];
    for name in [
        "accumulation",
        "residuals",
        "teams",
        "compression",
        "density-tracking",
        "exdyna-blocks",
        "exdyna-parts",
        "exdyna-memory",
        "exdyna-workers",
        "ok-topk-accuracy",
        "ok-topk-balance",
    ] {
        calls.push((format!("ablation {name} --quick").leak(), "\n"));
    }
    fit(&calls);
}

#[cfg(feature = "train")]
#[test]
fn everything_that_training_says_fits() {
    const SMALL: &str = "--dataset synthetic --train-samples 640 --test-samples 100 --workers 2 --batch-size 8 --max-epochs 2";
    fit(&[
        ("train --list", "in --data-dir"),
        (
            format!("train {SMALL} --method auto --lr 0.05 --clip 3 --weight-decay 0.0005").leak(),
            "unlike the",
        ),
        (
            format!("compare {SMALL} --methods dense-bf16,spardl-bf16@0.01,hard-threshold-bf16@0.05 --seeds 1,2").leak(),
            "beside dense and over",
        ),
        (
            format!("compare {SMALL} --methods dense").leak(),
            "bits",
        ),
        (
            format!("compare {SMALL} --methods dense,dense-bf16,auto --tune-lr 0.01,0.05").leak(),
            "bits",
        ),
    ]);
}
