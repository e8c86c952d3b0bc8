//! Tells the command which commit it was built from, to stamp numbers with, and which sources: two builds of a version may differ.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(build) = build_id() {
        println!("cargo::rustc-env=SPARDL_BUILD={build:016x}");
    }
    let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*"]) else {
        return;
    };
    println!("cargo::rustc-env=SPARDL_COMMIT={commit}");
    // A commit or a checkout writes here.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// A hash of all sources of the workspace, the target and the features: ranks compare it when they meet.
fn build_id() -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for name in ["TARGET", "PROFILE", "CARGO_CFG_FEATURE"] {
        env::var(name).unwrap_or_default().hash(&mut hasher);
    }
    // Elsewhere than in the workspace there are only the sources of the command itself.
    let crates = Path::new("..");
    let roots = match crates.join("spardl-core").exists() {
        true => subdirectories(crates)?,
        false => vec![PathBuf::from(".")],
    };
    for root in roots.iter().map(|root| root.join("src")) {
        println!("cargo::rerun-if-changed={}", root.display());
        add(&root, &mut hasher)?;
    }
    Ok(hasher.finish())
}

fn add(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    if path.is_dir() {
        for inner in entries(path)? {
            add(&inner, hasher)?;
        }
    } else if path.exists() {
        path.hash(hasher);
        fs::read(path)?.hash(hasher);
    }
    Ok(())
}

fn subdirectories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = entries(path)?;
    all.retain(|path| path.is_dir());
    Ok(all)
}

fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let all = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut all = all.collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

/// What git answers; nothing outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
