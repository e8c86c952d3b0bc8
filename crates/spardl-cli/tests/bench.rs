//! `spardl bench` as a user runs it.

mod command;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use npyz::WriterBuilder;
use serde_json::Value;

use command::{printed, refused, run, spardl};

/// What scripts read from every line of JSON.
const FIELDS: [&str; 22] = [
    "method",
    "workers",
    "elements",
    "density",
    "teams",
    "value_type",
    "time_ms",
    "time_p90_ms",
    "select_ms",
    "exchange_ms",
    "merge_ms",
    "wire_bytes",
    "entries_sent",
    "rounds",
    "nnz",
    "rescans",
    "stream_ms",
    "local_ratio",
    "speedup_dense_f32",
    "speedup_dense_bf16",
    "agreed",
    "conserved",
];

/// All methods, and dense once more with bf16 values.
const ROWS: usize = 21;

fn rows(arguments: &str) -> Vec<Value> {
    let text = printed(&format!("{arguments} --format json"));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

fn conserving_methods() -> BTreeMap<String, bool> {
    let text = printed("list --format json");
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    rows.map(|row| {
        let name = row["method"].as_str().expect("a name").to_owned();
        (name, row["conserves"].as_bool().expect("yes or no"))
    })
    .collect()
}

/// A directory of this test's own.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).expect("a scratch directory");
    path
}

const TINY: &str = "bench --iterations 2 --warmup 1 --seed 3";

#[test]
fn every_method_runs_at_odd_sizes_agrees_and_keeps_its_laws() {
    let laws = conserving_methods();
    let sweep = "--methods all --workers 1,3,8 --elements 1000,1 --density 0.001,1.0,0";
    let rows = rows(&format!("{TINY} {sweep}"));
    assert_eq!(rows.len(), ROWS * 18);
    for row in &rows {
        for field in FIELDS {
            assert!(row.get(field).is_some(), "{field} is missing in {row}");
        }
        assert_eq!(row["agreed"], true, "{row}");
        assert_eq!(row["wrong"], 0, "{row}");
        let method = row["method"].as_str().expect("a name");
        if laws.get(method) == Some(&true) {
            assert_eq!(row["conserved"], true, "{row}");
        }
        for time in ["time_ms", "stream_ms"] {
            assert!(row[time].as_f64().is_some(), "{row}");
        }
        assert!(row["speedup_dense_f32"].as_f64() > Some(0.0), "{row}");
        assert!(row["speedup_dense_bf16"].as_f64() > Some(0.0), "{row}");
        let dense = method.starts_with("dense");
        if dense && row["density"] == 1.0 && row["value_type"] == "f32" {
            assert!(row["relative_error"].as_f64() < Some(1e-5), "{row}");
        }
    }
    let methods = rows.iter().filter_map(|row| row["method"].as_str());
    assert!(methods.clone().any(|name| name == "dense"));
    assert!(methods.clone().any(|name| name == "dense-bf16"));
}

#[test]
fn entries_have_the_bytes_of_their_coding() {
    let list = "--methods dense,dense-bf16,spardl,spardl-bf16,topk-a --workers 4 --elements 200000";
    let rows = rows(&format!("{TINY} {list} --density 0.01"));
    let per_entry = |row: &Value| {
        row["wire_bytes"].as_f64().expect("bytes") / row["entries_sent"].as_f64().expect("entries")
    };
    let bands = [4.0..4.01, 2.0..2.01, 4.5..5.3, 2.5..3.3, 4.5..5.3];
    for (row, band) in rows.iter().zip(bands) {
        let got = per_entry(row);
        assert!(band.contains(&got), "{got} bytes per entry in {row}");
    }
}

#[test]
fn csv_has_the_names_once_and_as_many_columns_in_every_line() {
    let small = "--methods dense,power-sgd,topk-a --workers 2,3 --elements 500 --local";
    let text = printed(&format!("{TINY} {small} --format csv"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().expect("names").clone();
    for field in FIELDS {
        assert!(
            names.iter().any(|name| name == field),
            "{field} in {names:?}"
        );
    }
    // A reader refuses lines with another number of columns.
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 6);
    assert_eq!(&rows[0][0], "dense");
}

#[test]
fn local_runs_time_local_work_only() {
    for row in rows(&format!("{TINY} --workers 4 --elements 1000 --local")) {
        assert_eq!(row["exchange_ms"], 0.0, "{row}");
        assert_eq!(row["algbw_gbs"], Value::Null, "{row}");
        assert_eq!(row["speedup_dense_f32"], Value::Null, "{row}");
        assert!(row["wire_bytes"].as_u64() > Some(0), "{row}");
        assert_eq!(row["agreed"], true, "{row}");
    }
}

#[test]
fn there_are_two_tables_and_comments_are_marked() {
    let text = printed(&format!("{TINY} --methods all --workers 2 --elements 5000"));
    let (comments, data): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|line| !line.is_empty())
        .partition(|line| line.starts_with('#'));
    assert_eq!(data.len(), 2 * ROWS, "{text}");
    let names: Vec<&str> = comments.iter().flat_map(|c| c.split_whitespace()).collect();
    for column in [
        "size",
        "count",
        "time",
        "algbw",
        "eff_busbw",
        "#wrong",
        "error",
    ] {
        assert!(names.contains(&column), "{column}: {text}");
    }
    let wide = printed(&format!("{TINY} --workers 2 --elements 5000 --wide"));
    let data = wide
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    assert_eq!(data.count(), 4, "{wide}");
}

#[test]
fn gradients_come_from_a_file() {
    let folder = scratch("gradients");
    let npy = folder.join("samples.npy");
    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().shape(&[3, 100]);
    let mut writer = options.writer(&mut bytes).begin_nd().expect("a writer");
    writer
        .extend((0..300).map(|i| (i as f32 * 0.7).sin()))
        .expect("values");
    writer.finish().expect("a file");
    fs::write(&npy, &bytes).expect("a file");
    let from_npy = format!("{TINY} --methods dense,spardl,deft --density 0.1 --workers 2,5");
    for row in rows(&format!("{from_npy} --gradients {}", npy.display())) {
        assert_eq!(row["elements"], 100);
        assert_eq!(row["agreed"], true, "{row}");
        assert_eq!(row["gradients"], npy.display().to_string());
    }

    let tensors = folder.join("layers.safetensors");
    let values: Vec<u8> = (0..60)
        .flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes())
        .collect();
    let view = |shape: Vec<usize>, data| {
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, data).expect("a view")
    };
    let layers = [
        ("w", view(vec![4, 10], &values[..160])),
        ("b", view(vec![20], &values[160..])),
    ];
    let bytes = safetensors::serialize(layers, None).expect("a file");
    fs::write(&tensors, bytes).expect("a file");
    let file = tensors.display();
    for row in rows(&format!(
        "{TINY} --methods deft,power-sgd --density 0.2 --gradients {file}"
    )) {
        assert_eq!(row["elements"], 60, "{row}");
        assert_eq!(row["agreed"], true, "{row}");
    }
}

#[test]
fn what_cannot_be_met_is_refused_on_one_line() {
    let complaint = refused("bench --methods nonsense");
    assert!(
        complaint.contains("nonsense") && complaint.contains("ok-topk"),
        "{complaint}"
    );
    let complaint = refused("bench --methods spardl --workers 6 --teams 4");
    assert!(
        complaint.contains('3') && complaint.contains('6'),
        "{complaint}"
    );
    let complaint = refused("bench --density 2");
    assert!(
        complaint.contains("density 2 is not a number from 0 to 1"),
        "{complaint}"
    );
    let complaint = refused("bench --gradients /nowhere/at/all.npy");
    assert!(complaint.contains("/nowhere/at/all.npy"), "{complaint}");
    let complaint = refused("bench --gradients gradients.txt");
    assert!(
        complaint.contains("a .npy or a .safetensors file"),
        "{complaint}"
    );
    let complaint = refused("bench --workers 4096 --elements 4294967295");
    assert!(complaint.contains("would fit"), "{complaint}");

    let broken = scratch("broken").join("text.npy");
    fs::write(&broken, "not an array").expect("a file");
    let complaint = refused(&format!("bench --gradients {}", broken.display()));
    assert!(complaint.contains("not a .npy file"), "{complaint}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let arguments = format!("{TINY} --methods all --workers 2,3 --elements 1000 --format json");
    let mut child = spardl(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stdout = child.stdout.take().expect("a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.starts_with('{'), "{line}");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_lower_level_is_named_in_the_heading_and_an_unknown_one_is_refused() {
    let arguments = "bench --local --workers 2 --elements 1000 --methods spardl --iterations 1";
    let mut command = spardl(arguments);
    let output = command.env("SPARDL_LEVEL", "portable").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let machine = text.lines().find(|line| line.starts_with("# machine:"));
    assert!(machine.unwrap().contains(", portable,"), "{text}");

    let mut command = spardl(arguments);
    let output = command.env("SPARDL_LEVEL", "sse9").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.starts_with("spardl: SPARDL_LEVEL: there is no 'sse9': use portable"),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1);
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf_8_are_refused_in_one_line() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    for arguments in [&["bench", "--methods"][..], &["list"], &["bench", "--out"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_spardl"))
            .args(arguments)
            .arg(OsStr::from_bytes(b"\xff\xfe"))
            .output()
            .expect("the command runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn gradients_whose_sum_overflows_are_said_to() {
    let npy = scratch("overflow").join("huge.npy");
    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().shape(&[2, 100]);
    let mut writer = options.writer(&mut bytes).begin_nd().expect("a writer");
    writer.extend([f32::MAX; 200]).expect("values");
    writer.finish().expect("a file");
    fs::write(&npy, &bytes).expect("a file");
    for method in ["dense", "spardl"] {
        let file = npy.display();
        let output = run(&format!(
            "{TINY} --methods {method} --density 1 --workers 2 --gradients {file}"
        ));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("step 0 was skipped: "), "{complaint}");
        assert!(!complaint.contains("was called"), "{complaint}");
    }
}
