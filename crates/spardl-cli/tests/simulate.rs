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
            .contains("flattened-butterfly, or the name of a file")
    );
    assert!(refused("simulate --density 2").contains("density"));
    assert!(refused("simulate --fault explode").contains("'explode' is not a fault"));
    assert!(refused("simulate --workers 6 --teams 4").contains("4"));
    assert!(refused("simulate --measured nowhere.json").contains("--measured nowhere.json"));
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
    let grid = whole["grid"].as_array().expect("a grid");
    let here = |point: &&Value| point["workers"] == 64 && point["latency_ns"] == 5_000;
    let methods = grid
        .iter()
        .filter(here)
        .filter(|point| point["bandwidth_bits"] == 1_000_000_000_u64)
        .count();
    // The familiar methods, and those that win somewhere; three numbers of workers, two rates, two latencies.
    assert!(
        (8..=16).contains(&methods) && grid.len() == 12 * methods,
        "{methods}"
    );
    let svg = std::fs::read_to_string(first.join("wins-1.svg")).expect("a picture");
    assert!(svg.starts_with("<svg xmlns="));
}

/// The fastest choice at every point of a sweep, as the command line writes it.
fn winners(dir: &std::path::Path, more: &str) -> Vec<(String, String)> {
    printed(&format!(
        "sweep --out {} --elements 3000000 --simulated-elements 64 --workers 4,64 --bandwidths 1gbit,25gbit,400gbit \
         --latencies 5us,500us {more}",
        dir.display()
    ));
    let text = std::fs::read_to_string(dir.join("sweep.json")).expect("numbers");
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    let number = |point: &Value, name: &str| point[name].as_u64().expect("a number");
    let mut winners: Vec<(String, u64, String)> = Vec::new();
    for point in whole["grid"].as_array().expect("a grid") {
        let line = format!(
            "--workers {} --bandwidth {}bit --latency {}ns",
            number(point, "workers"),
            number(point, "bandwidth_bits"),
            number(point, "latency_ns")
        );
        let step = number(point, "step_ns");
        let choice = point["choice"].as_str().expect("a choice").to_owned();
        match winners.iter_mut().find(|(known, ..)| *known == line) {
            Some(known) if known.1 > step => *known = (line, step, choice),
            Some(_) => (),
            None => winners.push((line, step, choice)),
        }
    }
    winners
        .into_iter()
        .map(|(line, _, choice)| (line, choice))
        .collect()
}

#[test]
fn a_sweep_and_advice_agree_on_what_wins() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("gamma.json");
    // A machine on which merging lists is cheap.
    let cheap = r#"{"conditions": {"version": "", "workers": 2, "lengths": [], "density": "0.01", "transport": "", "hosts": [],
        "values": [], "every_method": true}, "latency_ns": 1, "bandwidth_bits_per_s": 1,
        "gamma_ps": {"dense": [100, 300], "ok-topk": [300, 90], "spardl": [300, 200]}}"#;
    std::fs::write(&file, cheap).expect("written");
    let mut seen = Vec::new();
    for more in [
        String::new(),
        format!("--measured {}", file.display()),
        "--merge-ps 100".to_owned(),
    ] {
        for (line, choice) in winners(&dir.path().join("sweep"), &more) {
            let advice = printed(&format!("advise --parameters 3000000 {line} {more}"));
            let used = advice.split('`').nth(1).expect("what to use");
            assert_eq!(used, choice, "{line} {more}");
            seen.push(choice);
        }
    }
    assert_eq!(seen.len(), 3 * 12);
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 2, "only {seen:?} win");
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
    assert!(
        words.contains("picked for a flat network with 10 us a message and 1 Gbit/s"),
        "{words}"
    );
    assert!(!words.contains("not for the simulated one"), "{words}");
    let (_, words) = auto("--topology two-level");
    assert!(
        words.contains("1 Gbit/s, not for the simulated one (two-level, 8 per machine)"),
        "{words}"
    );
}

#[test]
fn simulated_steps_and_the_pick_take_local_work_as_it_was_measured_by_method() {
    let dir = tempfile::tempdir().expect("a directory");
    let simulate = |gammas: &str, methods: &str| {
        let file = dir.path().join("gamma.json");
        let text = format!(
            r#"{{"conditions": {{"version": "", "workers": 2, "lengths": [], "density": "0.01", "transport": "", "hosts": [],
            "values": [], "every_method": true}}, "latency_ns": 1, "bandwidth_bits_per_s": 1, "gamma_ps": {gammas}}}"#
        );
        std::fs::write(&file, text).expect("written");
        let output = run(&format!(
            "simulate --workers 8 --elements 10000 --methods {methods} --seeds 1 --format json --measured {}",
            file.display()
        ));
        let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        whole["methods"].clone()
    };
    let rows = simulate(
        r#"{"dense": [100000, 0], "spardl": [300000, 7000]}"#,
        "dense,spardl",
    );
    let path = |row: usize, part: &str| rows[row]["critical_path"][part].as_u64();
    // 10,000 elements at 100 and at 300 ns.
    assert_eq!(path(0, "select_ns"), Some(1_000_000));
    assert_eq!(path(1, "select_ns"), Some(3_000_000));
    assert_eq!(path(0, "merge_ns"), Some(0));
    assert!(path(1, "merge_ns") > Some(0));
    // Lists that cost very much make it a dense exchange, on a network where it is a sparse one otherwise.
    let is_dense = |gammas| {
        simulate(gammas, "auto")[0]["configuration"]
            .to_string()
            .contains("dense")
    };
    assert!(!is_dense(r#"{"dense": [1, 1], "spardl": [1, 1]}"#));
    assert!(is_dense(r#"{"dense": [1, 1], "spardl": [1, 900000000]}"#));
}
