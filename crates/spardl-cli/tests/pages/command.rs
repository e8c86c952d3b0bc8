//! What a command on a page asks for, and whether cargo has it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::page::root;

/// The arguments of spardl in a command, if it starts spardl: up to a pipe, a redirection or the next command.
pub(crate) fn spardl_arguments(command: &str) -> Option<Vec<String>> {
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

/// What is wrong with a command of cargo: a package, feature, profile or target that is not there.
pub(crate) fn cargo_problem(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let words: Vec<&str> = words
        .into_iter()
        .skip_while(|word| *word != "cargo")
        .take_while(|word| !matches!(*word, "--" | "&&" | "|" | ">"))
        .collect();
    let after = |names: &[&str]| -> Vec<&str> {
        let pairs = words.windows(2).filter(|pair| names.contains(&pair[0]));
        pairs.map(|pair| pair[1]).collect()
    };
    let mut packages: Vec<PathBuf> = Vec::new();
    for name in after(&["-p", "--package"]) {
        packages.push(root().join("crates").join(name));
    }
    packages.extend(after(&["--path"]).into_iter().map(|path| root().join(path)));
    if let Some(none) = packages
        .iter()
        .find(|path| !path.join("Cargo.toml").exists())
    {
        return Some(format!("no package {}", none.display()));
    }
    for profile in after(&["--profile"]) {
        let all = manifest(&root());
        if !has(&all, &["profile", profile]) {
            return Some(format!("no profile {profile}"));
        }
    }
    if packages.is_empty() {
        packages = folders(&root().join("crates"));
    }
    for feature in after(&["--features"])
        .into_iter()
        .flat_map(|list| list.split(','))
    {
        let feature = feature.rsplit('/').next().unwrap_or(feature);
        if !packages
            .iter()
            .any(|path| has(&manifest(path), &["features", feature]))
        {
            return Some(format!("no feature {feature}"));
        }
    }
    let kinds = [
        ("--test", "tests"),
        ("--bin", "src/bin"),
        ("--example", "examples"),
    ];
    for (option, folder) in kinds {
        for target in after(&[option]) {
            let places = [format!("{target}.rs"), format!("{target}/main.rs")];
            let is_there = |path: &PathBuf| {
                places
                    .iter()
                    .any(|place| path.join(folder).join(place).exists())
            };
            if !packages.iter().any(is_there) {
                return Some(format!("no {option} {target}"));
            }
        }
    }
    None
}

/// What the packages of the project use that is not of the project.
pub(crate) fn dependencies() -> BTreeSet<String> {
    let mut packages = folders(&root().join("crates"));
    packages.push(root().join("bindings/python"));
    let mut names = BTreeSet::new();
    for package in packages {
        let manifest = manifest(&package);
        let of_targets = manifest.get("target").and_then(Value::as_table);
        let of_targets = of_targets.into_iter().flat_map(Table::values);
        let tables = of_targets.filter_map(Value::as_table).flat_map(Table::iter);
        let tables = tables.filter_map(|(kind, value)| Some((kind.as_str(), value.as_table()?)));
        let own = manifest
            .iter()
            .filter_map(|(kind, value)| Some((kind.as_str(), value.as_table()?)));
        for (kind, table) in own.chain(tables) {
            if ["dependencies", "dev-dependencies", "build-dependencies"].contains(&kind) {
                names.extend(table.keys().cloned());
            }
        }
    }
    names.retain(|name| !name.starts_with("spardl"));
    names
}

fn manifest(package: &Path) -> Table {
    let text = std::fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
    text.parse().expect("TOML")
}

fn has(table: &Table, path: &[&str]) -> bool {
    let first = table.get(path[0]).and_then(Value::as_table);
    first.is_some_and(|table| table.contains_key(path[1]))
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().expect("a folder of the project");
    entries
        .map(|entry| entry.expect("a folder").path())
        .collect()
}
