//! `spardl train` and `spardl compare`, as a user runs them.
#![cfg(feature = "train")]

mod compare;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(args).env_remove("SPARDL_DATA_DIR");
    command
}

fn spardl(args: &[&str]) -> Output {
    command(args)
        .output()
        .expect("the binary was built for this test")
}

fn ends_well(args: &[&str]) -> Output {
    let output = spardl(args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    output
}

/// A run of a few seconds at most.
const SMALL: &[&str] = &[
    "train",
    "--dnn",
    "mlp",
    "--dataset",
    "synthetic",
    "--train-samples",
    "640",
    "--test-samples",
    "100",
    "--nworkers",
    "3",
    "--batch-size",
    "8",
    "--max-epochs",
    "2",
    "--lr",
    "0.05",
];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn summary(dir: &Path) -> Value {
    let text = fs::read_to_string(dir.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_run_ends_with_a_table_and_leaves_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let output = ends_well(&small(&["--compression", "--out", out]));
    let table = String::from_utf8(output.stdout).expect("text");
    let (head, row) = table.split_once('\n').expect("two lines");
    assert!(
        head.starts_with("method") && head.ends_with("same bits"),
        "{table}"
    );
    assert!(
        row.starts_with("spardl") && row.trim_end().ends_with("yes"),
        "{table}"
    );
    let steps = lines(&dir.path().join("steps.jsonl"));
    assert_eq!(steps.len(), 2 * (640 / 24));
    let density = steps[5]["density"].as_f64().expect("a number");
    assert!((0.005..=0.0101).contains(&density), "{density}");
    assert_eq!(lines(&dir.path().join("epochs.jsonl")).len(), 2);
    let page = fs::read_to_string(dir.path().join("report.html")).expect("a page");
    assert!(page.contains("Loss against time") && page.contains("<svg"));
    let files = fs::read_dir(dir.path()).expect("the directory");
    let names: Vec<String> = files
        .map(|f| f.expect("a file").file_name().into_string().expect("text"))
        .collect();
    assert!(
        names.iter().any(|name| name.contains("tfevents")),
        "{names:?}"
    );

    // The saved configuration gives the same run again.
    let again = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("config.toml");
    let (config, out) = (
        config.to_str().expect("text"),
        again.path().to_str().expect("text"),
    );
    ends_well(&["train", "--config", config, "--out", out]);
    assert_eq!(summary(dir.path())["hash"], summary(again.path())["hash"]);
}

#[test]
fn a_second_run_finds_nothing_of_the_first_in_its_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let mut args = small(&["--methods", "dense,gtopk", "--out", out]);
    args[0] = "compare";
    ends_well(&args);
    fs::write(dir.path().join("notes.txt"), "my own").expect("written");
    ends_well(&small(&["--epochs", "1", "--out", out]));
    let files = fs::read_dir(dir.path()).expect("the directory");
    let names = files.map(|f| f.expect("a file").file_name().into_string().expect("text"));
    let mut names: Vec<String> = names.filter(|name| !name.contains("tfevents")).collect();
    names.sort();
    let expected = [
        "config.toml",
        "epochs.jsonl",
        "notes.txt",
        "report.html",
        "steps.jsonl",
        "summary.json",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_summary_says_what_was_asked_for_and_adds_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let output = ends_well(&small(&[
        "--compression",
        "--link-gbits",
        "2",
        "--out",
        out,
    ]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let saved = summary(dir.path());
    assert_eq!(saved["config"]["method"], "spardl");
    assert_eq!(saved["config"]["batch-size"], 8);
    for name in ["command", "version", "machine", "date"] {
        assert!(
            saved[name].as_str().is_some_and(|text| !text.is_empty()),
            "{name}"
        );
    }
    let steps = lines(&dir.path().join("steps.jsonl"));
    let epochs = lines(&dir.path().join("epochs.jsonl"));
    let sum = |rows: &[Value], name: &str| -> f64 {
        rows.iter().filter_map(|row| row[name].as_f64()).sum()
    };
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    let totals: Vec<Value> = epochs.iter().map(|epoch| epoch["totals"].clone()).collect();
    for (step, total, unit) in [
        ("bytes_sent", "bytes_sent", 1.0),
        ("samples", "samples", 1.0),
        ("density", "density_sum", 1.0),
        ("compute_ms", "compute_s", 1e3),
        ("select_ms", "select_s", 1e3),
        ("wait_ms", "wait_s", 1e3),
    ] {
        let whole = saved["totals"][total].as_f64().expect("a number");
        assert!(near(sum(&steps, step), unit * whole), "{step}");
        assert!(near(sum(&totals, total), whole), "{total}");
    }
    assert_eq!(saved["elapsed_s"], epochs[1]["elapsed_s"]);
    assert_eq!(saved["test_accuracy"], epochs[1]["test_accuracy"]);
    // What was asked for is said, what was not is not; and the two numbers that matter come last.
    assert!(
        said.contains("method = \"spardl\"") && !said.contains("seed ="),
        "{said}"
    );
    let last: Vec<&str> = said.lines().rev().take(2).collect();
    let last = [last[1], last[0]].join(" ");
    assert!(
        last.contains("per worker and step") && last.contains("at 2 Gbit/s"),
        "{said}"
    );
}

#[cfg(feature = "networks")]
#[test]
fn a_language_model_has_a_perplexity() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("text");
    let flags = [
        "--dnn",
        "bert-tiny",
        "--workers",
        "2",
        "--train-samples",
        "32",
        "--test-samples",
        "8",
    ];
    let flags = [&["train"][..], &flags, &["--max-steps", "1", "--out", out]].concat();
    let output = ends_well(&flags);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("perplexity "), "{said}");
    let epochs = lines(&dir.path().join("epochs.jsonl"));
    let number = |name: &str| epochs[0][name].as_f64().expect("a number");
    let ratio = number("test_perplexity") / number("test_loss").exp();
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    let page = fs::read_to_string(dir.path().join("report.html")).expect("a page");
    assert!(page.contains("Perplexity against bytes"));
}

#[test]
fn the_warm_up_is_the_same_however_the_method_s_values_travel() {
    let dir = tempfile::tempdir().expect("a directory");
    let hash = |name: &str, method: &[&str]| {
        let out = dir.path().join(name);
        let more = ["--warmup-epochs", "1", "--out", out.to_str().expect("text")];
        let output = ends_well(&small(&[method, &more[..]].concat()));
        let table = String::from_utf8(output.stdout).expect("text");
        let row = table.lines().last().unwrap_or_default();
        assert!(row.starts_with("spardl-bf16 "), "{table}");
        summary(&out)["hash"].clone()
    };
    let by_option = hash("option", &["--method", "spardl", "--value-type", "bf16"]);
    assert_eq!(by_option, hash("name", &["--method", "spardl-bf16"]));
}

#[test]
fn a_killed_run_goes_on_and_ends_as_if_it_had_not_been() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (whole, half, saved) = (path("whole"), path("half"), path("saved"));
    let long = ["--max-epochs", "6", "--method", "spardl"];
    ends_well(&small(&[&long[..], &["--out", &whole]].concat()));
    let saving = [
        "--checkpoint-dir",
        &saved,
        "--checkpoint-every",
        "7",
        "--out",
        &half,
    ];
    let run = small(&[&long[..], &saving[..]].concat());
    let mut child = command(&run)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    // Killed whenever the third checkpoint appears: at no special moment of a step.
    let began = Instant::now();
    let third = Path::new(&saved).join("step-000000021");
    while !third.exists() && child.try_wait().expect("a child").is_none() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no third checkpoint"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    ends_well(&[&run[..], &["--resume"]].concat());
    assert_eq!(
        summary(Path::new(&whole))["hash"],
        summary(Path::new(&half))["hash"]
    );
    let losses = |out: &str| -> Vec<Value> {
        let steps = lines(&Path::new(out).join("steps.jsonl"));
        steps.iter().map(|step| step["loss"].clone()).collect()
    };
    assert_eq!(losses(&whole), losses(&half), "one clean log");
    let epochs = lines(&Path::new(&half).join("epochs.jsonl"));
    let numbers: Vec<_> = epochs.iter().map(|epoch| epoch["epoch"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6].map(Some), "every epoch once");
    let kept = fs::read_dir(&saved).expect("the directory").count();
    assert_eq!(kept, 2, "the last two and no half-written one");
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_with_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--dnn", "vgg17"],
            "unknown model 'vgg17': did you mean 'vgg1",
        ),
        // The name is looked up before the data.
        (
            &[
                "--dnn",
                "vgg17",
                "--dataset",
                "mnist",
                "--data-dir",
                "/nonexistent",
            ],
            "unknown model 'vgg17'",
        ),
        (&["--dataset", "mnist"], "MNIST"),
        (&["--image-size", "5"], "expected 12 to 256"),
        (
            &[
                "--momentum-correction",
                "--factor-masking",
                "--residual",
                "none",
            ],
            "--factor-masking needs a residual",
        ),
        (
            &["--dataset", "mnist", "--image-size", "32"],
            "--image-size is for imagenet and synthetic",
        ),
        (
            &["--dataset", "mnist", "--data-dir", "/nonexistent"],
            "/nonexistent",
        ),
        (&["--dnn", "lstmimdb", "--dataset", "synthetic"], "lstmimdb"),
        (&["--method", "spardl", "--teams", "2"], "teams"),
        (&["--method", "spardl", "--teams", "4"], "teams"),
        (&["--method", "nothing"], "nothing"),
        // Of an option that is given twice the last one counts, but --set adds up: the first is the wrong one here.
        (
            &[
                "--set",
                "spardl.x=1",
                "--set",
                "exdyna.blocks=64",
                "--method",
                "spardl",
            ],
            "spardl has no option 'x': there are teams, sag, residual",
        ),
        (&["--set", "spardl.teams=x", "--method", "spardl"], "teams"),
        (
            &["--seed", "18446744073709551615"],
            "not in 0..=9223372036854775807",
        ),
        (
            &["--train-samples", "18446744073709551615"],
            "numbers go up to 9223372036854775807",
        ),
        (&["--keep-last", "0"], "--keep-last 0"),
        (&["--bucket-elements", "0"], "--bucket-elements 0"),
        (&["--factor-masking"], "--momentum-correction"),
        (&["--density", "7"], "from 0 to 1"),
        (&["--lr", "0"], "--lr"),
        (&["--resume"], "--checkpoint-dir"),
        (&["--device", "abacus"], "there are flex, wgpu, cuda"),
        (&["--batch-size", "100000"], "100000"),
        (&["--config", "/nonexistent.toml"], "/nonexistent.toml"),
    ];
    for (args, expected) in cases {
        let output = spardl(&small(args));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        let lines: Vec<&str> = text.lines().collect();
        // One line, and nothing of a run before it.
        let [complaint] = lines[..] else {
            panic!("{args:?}: {text}");
        };
        assert!(
            complaint.starts_with("spardl: ") && complaint.contains(expected),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_directory_of_checkpoints_belongs_to_one_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let saved = dir.path().to_str().expect("text");
    let saving = ["--checkpoint-dir", saved, "--max-epochs", "1"];
    ends_well(&small(&saving));
    let refused = |more: &[&str], expected: &str| {
        let output = spardl(&small(&[&saving[..], more].concat()));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {text}");
        assert!(text.contains(expected), "{more:?}: {text}");
    };
    refused(&[], "add --resume");
    refused(&["--resume", "--seed", "2"], "has --seed 1, not 2");
    refused(
        &["--resume", "--optimiser", "ok-topk", "--momentum", "0"],
        "has --optimiser sgd, not ok-topk",
    );
    let changed = ["--resume", "--lr", "0.01", "--batch-size", "4"];
    let output = ends_well(&small(&[&saving[..], &changed].concat()));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for option in ["--lr 0.01; it was 0.05", "--batch-size 4; it was 8"] {
        assert!(text.contains(&format!("going on with {option}")), "{text}");
    }
    assert_eq!(text.matches("going on with").count(), 2, "{text}");
}

#[test]
fn a_run_that_goes_on_at_the_end_of_an_epoch_has_one_log_and_one_curve() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (out, saved) = (path("out"), path("saved"));
    let run = |more: &[&str]| {
        let saving = ["--checkpoint-dir", &saved, "--out", &out];
        ends_well(&small(&[&saving[..], more].concat()));
    };
    run(&["--max-epochs", "1"]);
    run(&["--max-epochs", "3", "--resume"]);
    let epochs = lines(&Path::new(&out).join("epochs.jsonl"));
    let numbers: Vec<_> = epochs.iter().map(|epoch| epoch["epoch"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3].map(Some));
    // The curve goes from the first step of the first process to the last of the second.
    let page = fs::read_to_string(Path::new(&out).join("report.html")).expect("a page");
    let (_, chart) = page
        .split_once("aria-label=\"Loss against step\"")
        .expect("a chart");
    let (_, axis) = chart.split_once("data-x=\"").expect("an axis");
    let ends: Vec<f64> = axis
        .split(['\"', ' '])
        .take(2)
        .map(|end| end.parse().expect("a number"))
        .collect();
    assert!(ends[0] <= 1.0 && ends[1] >= 78.0, "{ends:?}");
}

#[test]
fn a_file_may_use_the_published_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.toml");
    let text = "dnn = \"mlp\"\ntrain-samples = 64\ntest-samples = 10\nnworkers = 2\nepochs = 1\n\
                compression = true\ncompressor = \"gtopk\"\ndensity = 0.02\n";
    fs::write(&file, text).expect("written");
    let output = ends_well(&["train", "--config", file.to_str().expect("text")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in ["workers = 2", "method = \"gtopk\"", "density = \"0.02\""] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
}

/// The first 512 steps of the published run reduce the whole gradient.
#[test]
fn the_warm_up_of_ok_topk_has_the_published_length() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(folder.join("vgg16_oktopk.sh")).expect("the example");
    let (_, rest) = text.split_once("--warmup-epochs ").expect("a warm-up");
    let epochs: f64 = rest
        .split(' ')
        .next()
        .unwrap_or("")
        .parse()
        .expect("epochs");
    let steps_per_epoch = 50_000 / (16 * 16);
    let dense = (0..1000).take_while(|step| f64::from(*step) < epochs * f64::from(steps_per_epoch));
    assert_eq!(dense.count(), 512);
}

/// Open MPI takes a host without a number for one slot.
#[test]
fn the_hosts_of_the_examples_have_room_for_their_ranks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for entry in fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "sh") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let (_, command) = text.split_once("mpiexec -n ").expect("how to launch it");
        let (ranks, hosts) = command.split_once(" -host ").expect("hosts");
        let hosts = hosts.split('"').next().unwrap_or_default();
        let slots = hosts.split(',').map(|host| match host.split_once(':') {
            Some((_, slots)) => slots.parse::<u32>().expect("a number"),
            None => 1,
        });
        let slots: u32 = slots.sum();
        assert_eq!(ranks.parse(), Ok(slots), "{}", path.display());
    }
}

#[cfg(feature = "networks")]
#[test]
fn the_published_examples_are_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "sh") {
            seen += 1;
            let output = Command::new("bash")
                .arg(&path)
                .args(["--data-dir", "/nonexistent"])
                .env("SPARDL", env!("CARGO_BIN_EXE_spardl"))
                .env_remove("LAUNCH")
                .output()
                .expect("bash");
            // All of the configuration is accepted before the data is looked for.
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(
                output.status.code(),
                Some(2),
                "{}: {errors}",
                path.display()
            );
            assert!(
                errors.contains("/nonexistent"),
                "{}: {errors}",
                path.display()
            );
        }
    }
    assert!(seen >= 13);
}

#[cfg(unix)]
#[test]
fn results_survive_a_closed_or_full_stdout() {
    let compare = |out: &str| {
        let mut args = small(&["--out", out, "--methods", "dense,spardl"]);
        args[0] = "compare";
        args.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let train = |out: &str| {
        let args = small(&["--out", out]);
        args.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (first, args) in [
        ("summary.json", &train as &dyn Fn(&str) -> Vec<String>),
        ("compare.json", &compare),
    ] {
        for full in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let args = args(&dir.path().display().to_string());
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let stdout = if full {
                let device = fs::OpenOptions::new().write(true).open("/dev/full");
                Stdio::from(device.expect("a full device"))
            } else {
                Stdio::piped()
            };
            let mut child = command(&args)
                .stdout(stdout)
                .stderr(Stdio::null())
                .spawn()
                .expect("the binary was built for this test");
            // The reader leaves before anything is written.
            drop(child.stdout.take());
            let code = child.wait().expect("it ends").code();
            assert_eq!(code, Some(i32::from(full)), "{args:?}");
            for name in [first, "report.html"] {
                assert!(dir.path().join(name).exists(), "{name} of {args:?}");
            }
        }
    }
}

#[test]
fn a_file_for_out_and_odd_numbers_are_refused_before_anything_is_printed() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display().to_string();
    let below = format!("{path}/below");
    for (args, complaint) in [
        (["--out", path.as_str()], "name a directory"),
        (["--out", below.as_str()], "Not a directory"),
        (["--lr", "inf"], "finite number above zero"),
        (
            ["--deadline", "1e300"],
            "--deadline 1e300 is not a number of seconds",
        ),
        (["--density", "-0.1"], "from 0 to 1"),
    ] {
        let output = spardl(&small(&args));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(
            text.contains(complaint) && text.lines().count() == 1,
            "{args:?}: {text}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let output = spardl(&["bench", "--deadline", "1e300", "--elements", "10"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("number of seconds"), "{text}");
    assert!(
        output.status.code() == Some(2) && output.stdout.is_empty(),
        "{text}"
    );
}
