//! The directory of --out: what a run leaves there, and that nothing of an earlier one stays beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use spardl_train::record::{Summary, Totals, Traffic};

use super::config::Config;
use crate::output::{arguments, bad_request};
use crate::stamp;

/// The steps of a run, one to a line; a directory that has it was written by a run.
pub(super) const STEPS: &str = "steps.jsonl";

/// What only a run that ended well writes.
const AT_THE_END: [&str; 3] = ["summary.json", "compare.json", "report.html"];
/// What a run that goes on reads again, or replaces before it writes.
const ON_THE_WAY: [&str; 3] = ["config.toml", STEPS, "epochs.jsonl"];
/// How TensorBoard knows its files.
const EVENTS: &str = "events.out.tfevents.";

/// What a run left, as `summary.json`: the result, and all that is needed to judge and to repeat it.
#[derive(Debug, Serialize)]
struct Saved<'a> {
    command: String,
    version: String,
    machine: String,
    /// UTC, at the end of the run.
    date: String,
    config: &'a Config,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Seconds of training.
    elapsed_s: f64,
    test_accuracy: Option<f64>,
    /// Sums over all epochs.
    totals: Totals,
    traffic: Traffic,
}

/// Makes the directory, without anything of an earlier run in it unless this one `resumes`. One that cannot be written to is
/// a request that cannot be met, and is noticed before anything is computed.
pub(super) fn prepare(out: Option<&Path>, resumes: bool) -> anyhow::Result<()> {
    let Some(dir) = out else {
        return Ok(());
    };
    let probe = dir.join(".spardl-writes-here");
    let is_writable = || fs::create_dir_all(dir).and_then(|()| fs::write(&probe, ""));
    let made = is_writable().map_err(Into::into);
    let made = made.and_then(|()| Ok(fs::remove_file(&probe)?));
    made.and_then(|()| clear(dir, resumes))
        .map_err(|error| bad_request(format!("--out {}: {error:#}", dir.display())))
}

/// Begins the directory of a run that begins, or `resumes`, without anything of another run in it: writes the configuration.
pub(super) fn begin(out: Option<&Path>, config: &Config, resumes: bool) -> anyhow::Result<()> {
    let Some(dir) = out else {
        return Ok(());
    };
    clear(dir, resumes)?;
    let path = dir.join("config.toml");
    let text = config.to_toml()?;
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(&path, text));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Writes the result.
pub(super) fn save_summary(dir: &Path, config: &Config, summary: &Summary) -> anyhow::Result<()> {
    let saved = Saved {
        command: format!("spardl {}", arguments().join(" ")),
        version: stamp::version(),
        machine: stamp::machine(),
        date: stamp::date(),
        config,
        summary,
        elapsed_s: summary.seconds(),
        test_accuracy: summary.accuracy(),
        totals: summary.totals(),
        traffic: summary.traffic(),
    };
    let path = dir.join("summary.json");
    let text = serde_json::to_string_pretty(&saved)?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// Removes the files of earlier runs, also from directories of single runs below, and nothing that no run writes. A run that
/// `resumes` keeps what its earlier part wrote on the way.
pub(super) fn clear(dir: &Path, resumes: bool) -> anyhow::Result<()> {
    let below = match entries(dir)? {
        Some(entries) => entries,
        None => return Ok(()),
    };
    remove(dir, resumes)?;
    for inner in below.iter().filter(|path| path.join(STEPS).is_file()) {
        remove(inner, false)?;
        // Something of the user's own stays, with its directory.
        if entries(inner)?.is_some_and(|left| left.is_empty()) {
            fs::remove_dir(inner).with_context(|| format!("removing {}", inner.display()))?;
        }
    }
    Ok(())
}

fn remove(dir: &Path, resumes: bool) -> anyhow::Result<()> {
    let mut names: Vec<PathBuf> = AT_THE_END.iter().map(|name| dir.join(name)).collect();
    if !resumes {
        names.extend(ON_THE_WAY.iter().map(|name| dir.join(name)));
        let is_events = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(EVENTS))
        };
        names.extend(
            entries(dir)?
                .unwrap_or_default()
                .into_iter()
                .filter(is_events),
        );
    }
    for path in names {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is in a directory; `None` when there is none.
fn entries(dir: &Path) -> anyhow::Result<Option<Vec<PathBuf>>> {
    let read = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read,
    };
    let paths = read.and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    paths
        .map(Some)
        .with_context(|| format!("reading {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = entries(dir)
            .expect("readable")
            .unwrap_or_default()
            .iter()
            .filter_map(|path| path.file_name()?.to_str().map(ToOwned::to_owned))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_run_finds_nothing_of_an_earlier_one_and_leaves_what_is_not_a_run_s() {
        let dir = tempfile::tempdir().expect("a directory");
        let (top, inner, own) = (
            dir.path().to_owned(),
            dir.path().join("gtopk-seed-1"),
            dir.path().join("notes"),
        );
        let fill = || {
            for dir in [&top, &inner, &own] {
                fs::create_dir_all(dir).expect("made");
            }
            for dir in [&top, &inner] {
                let events = format!("{EVENTS}1.host");
                let names = AT_THE_END.iter().chain(&ON_THE_WAY).copied();
                for name in names.chain([events.as_str()]) {
                    fs::write(dir.join(name), "old").expect("written");
                }
            }
            fs::write(own.join("report.html"), "mine").expect("written");
            fs::write(top.join("thoughts.txt"), "mine").expect("written");
        };
        fill();
        clear(&top, false).expect("cleared");
        assert_eq!(left(&top), ["notes", "thoughts.txt"]);
        assert_eq!(left(&own), ["report.html"]);
        fill();
        fs::write(inner.join("mine.txt"), "mine").expect("written");
        clear(&top, true).expect("cleared");
        let kept = [
            "config.toml",
            "epochs.jsonl",
            "events.out.tfevents.1.host",
            "gtopk-seed-1",
            "notes",
            STEPS,
            "thoughts.txt",
        ];
        assert_eq!(left(&top), kept);
        assert_eq!(left(&inner), ["mine.txt"]);
        // Nothing there yet.
        clear(&top.join("new"), false).expect("nothing to do");
    }
}
