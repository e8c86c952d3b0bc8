//! The pages name only what exists: their links lead to files and headings, their commands are ones that spardl accepts, and
//! the scripts and examples they start are there.

#![cfg(feature = "train")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A page, by its path from the root of the project.
struct Page {
    name: String,
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every page a reader may open.
fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for directory in [
        ".",
        "docs",
        "bindings/python",
        "examples",
        "examples/python",
    ] {
        let entries = root()
            .join(directory)
            .read_dir()
            .expect("a directory of the project");
        for entry in entries {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let pages: Vec<Page> = paths
        .into_iter()
        .map(|path| Page {
            name: path
                .strip_prefix(root())
                .expect("below the root")
                .display()
                .to_string(),
            text: std::fs::read_to_string(&path).expect("text"),
            path,
        })
        .collect();
    assert!(pages.len() >= 10, "only {} pages were found", pages.len());
    pages
}

/// The text between two marks, wherever it occurs on one line.
fn between<'a>(line: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    line.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split(close).next())
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The commands of fenced `sh` blocks, a continued one as one line, comments gone.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut open = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside && line.starts_with("```sh");
            continue;
        }
        if !inside {
            continue;
        }
        let line = if line.starts_with('#') {
            ""
        } else {
            line.split(" #").next().unwrap_or("")
        };
        match line.strip_suffix('\\') {
            Some(start) => open.push_str(start),
            None => found.push(std::mem::take(&mut open) + line),
        }
    }
    found
}

/// A heading's name in a link.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_heading(path: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(path).expect("text");
    prose(&text)
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        for target in prose(&page.text).flat_map(|line| between(line, "](", ')')) {
            if target.contains("://") {
                continue;
            }
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
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n  {}",
        broken.join("\n  ")
    );
}

#[test]
fn files_that_pages_name_exist() {
    let mut missing = Vec::new();
    for page in pages().iter().filter(|page| page.name != "CHANGELOG.md") {
        let spans = prose(&page.text).flat_map(|line| line.split('`').skip(1).step_by(2));
        let words = spans.map(str::to_string).chain(commands(&page.text));
        for word in words.flat_map(|text| {
            text.split_whitespace()
                .map(str::to_string)
                .collect::<Vec<_>>()
        }) {
            let word = word.trim_end_matches(['.', ',', ':', ';', ')', '/']);
            let ours = ["scripts/", "examples/", "crates/", "docs/", "bindings/"];
            // x.rs is the file that a reader is about to write.
            let pattern = word.contains(['*', '<', '{', '$'])
                || word.ends_with("..")
                || word.ends_with("/x.rs");
            if ours.iter().any(|start| word.starts_with(start))
                && !pattern
                && !root().join(word).exists()
            {
                missing.push(format!("{}: {word}", page.name));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "files that do not exist:\n  {}",
        missing.join("\n  ")
    );
}

/// The arguments of spardl in a command, if it starts spardl: up to a pipe, a redirection or the next command.
fn arguments(command: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    // Here it is copied, or an argument of another program.
    if words
        .iter()
        .any(|word| matches!(*word, "scp" | "--example"))
    {
        return None;
    }
    let start = words
        .iter()
        .position(|word| *word == "spardl" || word.ends_with("/spardl"));
    let start = match start {
        Some(at) => at,
        // cargo run .. -p spardl-cli -- ARGUMENTS
        None if words.first() == Some(&"cargo")
            && words.contains(&"run")
            && words.contains(&"spardl-cli") =>
        {
            words.iter().position(|word| *word == "--")?
        }
        None => return None,
    };
    let rest = words[start + 1..].iter();
    let rest = rest.take_while(|word| !matches!(**word, "|" | ">" | "<" | "&&" | ";" | ":" | "&"));
    // $M stands for methods on the pages; other variables stand for several words that are checked where they are set.
    let rest = rest.map(|word| word.trim_matches(['"', '\'']).replace("$M", "spardl"));
    let rest = rest.filter(|word| !matches!(word.as_str(), ".." | "...") && !word.starts_with('$'));
    Some(rest.collect())
}

#[test]
fn spardl_accepts_the_commands_of_the_pages() {
    let mut tried = 0;
    let mut refused = Vec::new();
    for page in pages().iter().filter(|page| page.name != "CHANGELOG.md") {
        let spans = prose(&page.text).flat_map(|line| line.split('`').skip(1).step_by(2));
        let spans = spans
            .filter(|span| span.starts_with("spardl "))
            .map(str::to_string);
        for command in commands(&page.text).into_iter().chain(spans) {
            let Some(arguments) = arguments(&command) else {
                continue;
            };
            if arguments.is_empty() {
                continue;
            }
            tried += 1;
            // With --help at the end everything before it is parsed, and nothing is run.
            let output = Command::new(env!("CARGO_BIN_EXE_spardl"))
                .args(&arguments)
                .arg("--help")
                .output()
                .expect("the binary was built for this test");
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stderr).trim().to_string();
                refused.push(format!("{}: {command}\n    {words}", page.name));
            }
        }
    }
    assert!(
        refused.is_empty(),
        "commands that spardl refuses:\n  {}",
        refused.join("\n  ")
    );
    assert!(tried >= 50, "only {tried} commands were found");
}

#[test]
fn a_page_is_read_as_a_reader_would() {
    let text = "a [b](c.md)\n```sh\nspardl list   # all\n# a comment\nspardl bench \\\n  --local\n```\n`spardl x`\n```text\nspardl no\n```\n";
    let found: Vec<String> = commands(text)
        .into_iter()
        .filter(|command| !command.is_empty())
        .collect();
    assert_eq!(found, ["spardl list  ", "spardl bench --local"]);
    assert_eq!(
        between("a [b](c.md) [d](e)", "](", ')').collect::<Vec<_>>(),
        ["c.md", "e"]
    );
    assert_eq!(anchor(" In a program, `bare`"), "in-a-program-bare");
    assert_eq!(
        arguments("mpiexec -n 2 target/release/spardl bench --x 1 | cat"),
        Some(vec!["bench".into(), "--x".into(), "1".into()])
    );
    assert_eq!(
        arguments("cargo run --release -p spardl-cli -- train"),
        Some(vec!["train".into()])
    );
    assert_eq!(arguments("cargo test"), None);
}
