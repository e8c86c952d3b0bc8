//! `spardl simulate` and `spardl advise` as their users call them.

mod command;

use serde_json::Value;

use command::{printed, refused, run};

#[test]
fn the_same_seed_gives_the_same_json_for_every_method_and_another_seed_another() {
    let all = "simulate --workers 6 --elements 2000 --methods all --seeds 2 --warmup 1 --format json \
               --backward 1ms --noise lognormal:0.2 --buckets 3 --select-ps 3000 --merge-ps 900 --cores 2 --fault drop=0.05 --topology fat-tree --leaf-size 2 --seed";
    let first = printed(&format!("{all} 1"));
    assert_eq!(first, printed(&format!("{all} 1")));
    assert_ne!(first, printed(&format!("{all} 2")));
    let whole: Value = serde_json::from_str(&first).expect("JSON");
    for row in whole["methods"].as_array().expect("rows") {
        let parts = [
            "compute",
            "select",
            "merge",
            "latency",
            "transfer",
            "contention",
            "faults",
            "cores",
        ];
        let path = &row["critical_path"];
        let sum: u64 = parts
            .iter()
            .filter_map(|part| path[format!("{part}_ns")].as_u64())
            .sum();
        assert_eq!(Some(sum), row["median_ns"].as_u64(), "{row}");
    }
}

#[test]
fn the_model_is_printed_beside_the_simulator_and_the_papers() {
    let text = printed(
        "simulate --workers 8 --elements 4096 --methods spardl,dense,ok-topk --check-model --sharing none --seeds 1",
    );
    for word in ["simulated", "off by", "published", "spardl", "ok-topk"] {
        assert!(text.contains(word), "{text}");
    }
    let whole = printed(
        "simulate --workers 100000 --elements 1300000000 --methods all --cost-only --format json",
    );
    let whole: Value = serde_json::from_str(&whole).expect("JSON");
    let rows = whole["methods"].as_array().expect("rows");
    let ring = rows.iter().find(|row| row["method"] == "dense-ring");
    assert_eq!(ring.expect("a row")["rounds"], 2 * 99_999);
}

#[test]
fn a_message_that_is_lost_for_good_is_a_failure_that_names_the_ranks() {
    let output = run("simulate --workers 4 --methods spardl --fault lose,from=2,to=0");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("rank 0") && words.contains("rank 2"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_on_one_line() {
    assert!(refused("simulate --latency 10").contains("'10' is not a time"));
    assert!(refused("simulate --bandwidth fast").contains("'fast' is not a rate"));
    assert!(
        refused("simulate --topology nowhere.csv")
            .contains("flattened-butterfly or a readable file")
    );
    assert!(refused("simulate --density 2").contains("density"));
    assert!(refused("simulate --fault explode").contains("'explode' is not a fault"));
    assert!(refused("simulate --workers 6 --teams 4").contains("4"));
    assert!(refused("simulate --cost-only --topology fat-tree").contains("flat network only"));
    assert!(refused("simulate --workers 900000 --elements 4000000000").contains("--cost-only"));
    assert!(refused("advise --workers 4 --model gpt9").contains("'gpt9' is not a model"));
}

#[test]
fn advice_says_what_to_use_and_where_it_flips() {
    // Where selecting is slow, dense sums win on fast networks.
    let text = printed(
        "advise --model resnet50 --workers 16 --bandwidth 1gbit --backward 120ms --select-ps 5000",
    );
    for words in [
        "Use `",
        "with dense f32 it takes",
        "The answer flips at about",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_sweep_writes_the_same_files_for_the_same_options() {
    let dir = tempfile::tempdir().expect("a directory");
    let sweep = |name: &str| {
        let out = dir.path().join(name);
        printed(&format!(
            "sweep --out {} --elements 1000000 --simulated-elements 512 --workers 4,64,1024 --bandwidths 1gbit,400gbit --latencies 5us,500us",
            out.display()
        ));
        out
    };
    let (first, second) = (sweep("first"), sweep("second"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&first).expect("a directory") {
        let name = entry.expect("a file").file_name();
        let read = |dir: &std::path::Path| std::fs::read(dir.join(&name)).expect("a file");
        assert_eq!(read(&first), read(&second), "{}", name.display());
        names.push(name.to_string_lossy().into_owned());
    }
    // Two maps, five charts, the page and the numbers.
    assert_eq!(names.len(), 9, "{names:?}");
    let page = std::fs::read_to_string(first.join("sweep.html")).expect("a page");
    assert_eq!(page.matches("<p class=\"conclusion\">").count(), 7);
    assert!(!page.contains("nothing to draw"));
    let text = std::fs::read_to_string(first.join("sweep.json")).expect("numbers");
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    // Three numbers of workers, two rates, two latencies, ten methods.
    assert_eq!(whole["grid"].as_array().map(Vec::len), Some(120));
    let svg = std::fs::read_to_string(first.join("wins-1.svg")).expect("a picture");
    assert!(svg.starts_with("<svg xmlns="));
}

#[test]
fn a_sweep_over_nothing_or_to_nowhere_is_refused() {
    assert!(refused("sweep --out x --bandwidths fast").contains("'fast' is not a rate"));
    assert!(refused("sweep --out x --methods nonsense").contains("nonsense"));
    assert!(refused("sweep --out x --workers 1").contains("1"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.path().display();
    assert!(refused(&format!("sweep --out {file}")).contains("it is a file"));
    assert!(refused(&format!("sweep --out {file}/below")).contains("/below: "));
}

#[test]
fn work_on_shared_cores_takes_as_much_longer_as_there_are_workers_to_a_core() {
    let step = |more: &str| {
        let text = printed(&format!(
            "simulate --workers 8 --elements 4096 --methods dense --latency 0ns --bandwidth 1tbit --select-ps 1000000 --seeds 1 --warmup 0 --format json {more}"
        ));
        let whole: Value = serde_json::from_str(&text).expect("JSON");
        let row = &whole["methods"][0];
        let cores = row["critical_path"]["cores_ns"].as_u64().expect("a number");
        (row["median_ns"].as_u64().expect("a number"), cores)
    };
    let (alone, none) = step("");
    let (shared, waited) = step("--cores 2");
    assert_eq!(none, 0);
    // Selecting takes 4.096 ms; eight workers on two cores take four times that.
    assert_eq!(shared - alone, 3 * 4_096_000);
    assert_eq!(waited, 3 * 4_096_000);
}

#[test]
fn json_has_the_bytes_of_every_worker_and_of_every_link() {
    let text = printed(
        "simulate --workers 6 --elements 2000 --methods spardl --topology fat-tree --leaf-size 2 --seeds 1 --format json",
    );
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    let row = &whole["methods"][0];
    let sum = |each: &Value, of: &dyn Fn(&Value) -> Option<u64>| {
        let each = each.as_array().expect("a list");
        each.iter().filter_map(of).sum::<u64>()
    };
    let workers = &row["bytes_per_worker"]["each"];
    assert_eq!(workers.as_array().map(Vec::len), Some(6));
    let total = row["bytes_total"].as_u64().expect("bytes");
    assert_eq!(sum(workers, &Value::as_u64), total);
    let links = &row["links"]["each"];
    assert_eq!(
        row["links"]["used"].as_u64(),
        links.as_array().map(|l| l.len() as u64)
    );
    // Every message leaves one worker; those to another switch take further links.
    let carried = sum(links, &|link| link["bytes"].as_u64());
    assert!(carried > 2 * total, "{carried} {total}");
    let busiest = &row["links"]["busiest"];
    let same = |link: &&Value| link["name"] == busiest["name"];
    let found = links.as_array().expect("a list").iter().find(same);
    assert_eq!(found.expect("the busiest link")["bytes"], busiest["bytes"]);
}

#[test]
fn auto_is_the_method_that_the_tuner_picks_for_the_simulated_network() {
    let auto = |network: &str| {
        let output = run(&format!(
            "simulate --workers 8 --elements 100000 --methods auto,dense --seeds 1 --format json {network}"
        ));
        let words = String::from_utf8(output.stderr).expect("UTF-8");
        let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = whole["methods"][0].clone();
        assert_eq!(row["method"], "auto");
        assert_eq!(whole["methods"][1]["method"], "dense");
        (row["configuration"].to_string(), words)
    };
    let (slow, words) = auto("--bandwidth 100mbit");
    assert!(!slow.contains("dense"), "{slow}");
    assert!(
        words.contains("auto: ") && words.contains("times as fast"),
        "{words}"
    );
    // To send every entry takes no method longer than a dense sum, and none shorter.
    let (whole, words) = auto("--bandwidth 1gbit --density 1");
    assert!(whole.contains("dense"), "{whole}");
    assert!(words.contains("nothing sparse is faster"), "{words}");
}
