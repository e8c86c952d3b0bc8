//! Pages and help texts name only what exists: their links lead to files and headings, their commands are ones that spardl, cargo
//! and the scripts accept, their commits are in the history.

#![cfg(feature = "train")]

mod command;
mod history;
mod page;

use std::collections::BTreeSet;
use std::process::Command;

use command::{cargo_problem, spardl_arguments};
use page::{anchor, commands, current_pages, files, has_heading, links, pages, root, spans, words};

/// Fails with everything that is wrong.
fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// What spardl says to this; whether it is well with it.
fn spardl(arguments: &[String]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_spardl"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// Why spardl does not take a command: with --help at its end everything before it is parsed, and nothing is run.
fn refusal(arguments: Vec<String>) -> Option<String> {
    let mut asked = arguments;
    asked.push("--help".to_owned());
    spardl(&asked).err()
}

/// The commands of spardl, from its help, and the help of each.
fn help_texts() -> Vec<(String, String)> {
    let help = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        spardl(&arguments).expect("help")
    };
    let top = help(&["--help"]);
    let (_, list) = top.split_once("Commands:").expect("a list of commands");
    let list = list.lines().skip(1).take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        is_name.then(|| line.split_whitespace().next())?
    });
    let names: Vec<String> = names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let texts = names.into_iter().map(|name| {
        let text = help(&[&name, "--help"]);
        (name, text)
    });
    texts.chain([(String::new(), top.clone())]).collect()
}

/// Words that are files of the project, by their looks, and are not there.
fn missing_files(text: &str) -> impl Iterator<Item = &str> {
    let ours = ["scripts/", "examples/", "crates/", "docs/", "bindings/"];
    let words = text.split(|c: char| c.is_whitespace() || "`()[]\"'".contains(c));
    words
        .map(|word| word.trim_end_matches(['.', ',', ':', ';', '/']))
        .filter(move |word| ours.iter().any(|start| word.starts_with(start)))
        .filter(|word| {
            // x.rs is the file that a reader is about to write.
            let is_pattern = word.contains(['*', '<', '{', '$']) || word.ends_with("/x.rs");
            !is_pattern && !root().join(word).exists()
        })
}

/// Written by `spardl docs`, in whatever width.
const GENERATED: [&str; 2] = ["docs/algorithms.md", "docs/ablations.md"];

#[test]
fn lines_of_prose_are_at_most_110_characters() {
    let mut found = Vec::new();
    for page in pages() {
        if GENERATED.contains(&page.name.as_str()) {
            continue;
        }
        let mut is_code = false;
        for (number, line) in (1..).zip(page.text.lines()) {
            is_code ^= line.starts_with("```");
            let is_prose =
                !is_code && !line.starts_with("    ") && !line.starts_with(['|', '!', '#']);
            if is_prose && line.chars().count() > 110 {
                found.push(format!("{}:{number}: {line}", page.name));
            }
        }
    }
    none("lines of prose that are too long", &found);
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let all: Vec<String> = words(&page.text).collect();
        for target in all.iter().flat_map(|words| links(words)) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.path.clone(),
                file => page.path.parent().expect("a directory").join(file),
            };
            if !path.exists() || (!heading.is_empty() && !has_heading(&path, heading)) {
                broken.push(format!("{}: {target}", page.name));
            }
        }
    }
    none("links that lead nowhere", &broken);
}

#[test]
fn every_page_is_found_from_the_first_one() {
    let all: BTreeSet<String> = pages().into_iter().map(|page| page.name).collect();
    let (mut found, mut open) = (BTreeSet::new(), vec!["README.md".to_owned()]);
    while let Some(name) = open.pop() {
        let path = root().join(&name);
        if !all.contains(&name) || !found.insert(name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        for words in words(&text) {
            for target in links(&words) {
                let file = target.split('#').next().unwrap_or_default();
                let linked = path.parent().expect("a directory").join(file);
                let linked = linked.canonicalize().unwrap_or_default();
                let root = root().canonicalize().expect("the project");
                let below = linked.strip_prefix(root).unwrap_or(&linked);
                open.push(below.display().to_string());
            }
        }
    }
    let lost: Vec<String> = all.difference(&found).cloned().collect();
    none("pages that no other page leads to", &lost);
}

#[test]
fn files_that_pages_and_help_texts_name_exist() {
    let mut missing = Vec::new();
    for page in current_pages() {
        for text in spans(&page.text).into_iter().chain(commands(&page.text)) {
            let words = missing_files(&text);
            missing.extend(words.map(|word| format!("{}: {word}", page.name)));
        }
    }
    for (name, text) in help_texts() {
        let words = missing_files(&text);
        missing.extend(words.map(|word| format!("spardl {name} --help: {word}")));
    }
    none("files that do not exist", &missing);
}

#[test]
fn tests_that_pages_name_exist() {
    let mut functions = BTreeSet::new();
    for path in files(&["rs", "py"]) {
        let text = std::fs::read_to_string(path).expect("text");
        let heads = text.lines().map(str::trim_start);
        let heads = heads.filter_map(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("fn ")
                .or(line.strip_prefix("def "))
        });
        let names = heads.filter_map(|head| head.split('(').next());
        functions.extend(names.map(str::to_owned));
    }
    let (mut tried, mut missing) = (0, Vec::new());
    for page in current_pages() {
        for span in spans(&page.text) {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            // The names of tests are sentences.
            if span.chars().all(is_plain) && span.matches('_').count() >= 4 {
                tried += 1;
                if !functions.contains(&span) {
                    missing.push(format!("{}: {span}", page.name));
                }
            }
        }
    }
    none("tests that do not exist", &missing);
    assert!(tried >= 10, "only {tried} tests were found");
}

#[test]
fn commits_that_pages_name_are_in_the_history() {
    // Without all of the history nobody can tell.
    if !history::is_whole() {
        return;
    }
    let head = history::git(&["rev-parse", "HEAD"]).expect("a commit");
    assert!(history::has(&head) && history::has(&head[..12]));
    assert!(!history::has("0123456789abcdef0123456789abcdef01234567"));
    let (mut tried, mut missing) = (BTreeSet::new(), Vec::new());
    for page in pages() {
        for text in words(&page.text) {
            for commit in history::commits(&text) {
                tried.insert(commit.to_owned());
                if !history::has(commit) {
                    missing.push(format!("{}: {commit}", page.name));
                }
            }
        }
    }
    none("commits that are not in the history", &missing);
    assert!(tried.len() >= 10, "only {tried:?} were found");
}

#[test]
fn spardl_accepts_the_commands_of_the_pages() {
    let mut tried = 0;
    let mut refused = Vec::new();
    for page in current_pages() {
        let said = spans(&page.text).into_iter();
        let said = said.filter(|span| span.starts_with("spardl "));
        for command in commands(&page.text).into_iter().chain(said) {
            let Some(arguments) = spardl_arguments(&command).filter(|words| !words.is_empty())
            else {
                continue;
            };
            tried += 1;
            if let Some(why) = refusal(arguments) {
                refused.push(format!("{}: {command}\n    {why}", page.name));
            }
        }
    }
    none("commands that spardl refuses", &refused);
    assert!(tried >= 100, "only {tried} commands were found");
}

#[test]
fn what_cargo_is_asked_for_on_the_pages_exists() {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for page in current_pages() {
        let said = spans(&page.text).into_iter();
        let said = said.filter(|span| span.starts_with("cargo "));
        for command in commands(&page.text).into_iter().chain(said) {
            if command.contains("cargo ") {
                tried += 1;
                let problem = cargo_problem(&command);
                wrong.extend(problem.map(|why| format!("{}: {command}: {why}", page.name)));
            }
        }
    }
    none("commands that cargo refuses", &wrong);
    assert!(tried >= 10, "only {tried} commands were found");
}

#[test]
fn the_table_of_crates_is_that_of_the_manifests() {
    let text = std::fs::read_to_string(root().join("DESIGN.md")).expect("the page");
    let (_, table) = text.split_once("| crate | why |").expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut named = BTreeSet::new();
    for row in rows {
        let crates = row.split('|').nth(1).expect("a first column");
        named.extend(crates.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    let used = command::dependencies();
    let too_many: Vec<String> = named.difference(&used).cloned().collect();
    none("crates of DESIGN.md that nothing uses", &too_many);
    let too_few: Vec<String> = used.difference(&named).cloned().collect();
    none("crates that DESIGN.md does not give a reason for", &too_few);
}

#[test]
fn a_page_is_read_as_a_reader_would() {
    let text = "a [b](c.md)\n```sh\nspardl list   # all\n# a comment\nspardl bench \\\n  --local\n```\n`spardl\nx` y\n\n    \
                spardl set in   # by spaces\n\n```text\n$ spardl typed\nspardl no\n```\n";
    assert_eq!(
        commands(text),
        [
            "spardl list",
            "spardl bench --local",
            "spardl set in",
            "spardl typed"
        ]
    );
    assert_eq!(spans(text), ["spardl x"]);
    assert_eq!(
        links("a [b](c.md) [d](e)").collect::<Vec<_>>(),
        ["c.md", "e"]
    );
    assert_eq!(anchor(" In a program, `bare`"), "in-a-program-bare");
    assert_eq!(
        history::commits(
            "1000000 in 12 s (commit 4074473), a build between 5a8a565\nand `ffc76e5`; commits 5617704 to\n1234567, then 7654321"
        ),
        ["4074473", "5a8a565", "ffc76e5", "5617704", "1234567"]
    );
    assert_eq!(history::commits("2.591591563, defaced, 0x1234567"), [""; 0]);
    assert_eq!(
        spardl_arguments("mpiexec -n 2 target/release/spardl bench --x 1 | cat"),
        Some(vec!["bench".into(), "--x".into(), "1".into()])
    );
    assert_eq!(
        spardl_arguments("cargo run --release -p spardl-cli -- train"),
        Some(vec!["train".into()])
    );
    assert_eq!(spardl_arguments("cargo test"), None);
    assert_eq!(
        cargo_problem("cargo test -p spardl-core --test select"),
        None
    );
    for wrong in [
        "-p spardl-x",
        "-p spardl-cli --features x",
        "--profile x",
        "--test x",
        "--bin x",
    ] {
        assert!(
            cargo_problem(&format!("cargo test {wrong}")).is_some(),
            "{wrong}"
        );
    }
}
