//! The checkpoints that are already there when a run starts.

use std::sync::Arc;

use spardl_train::store::{Lock, Store};
use toml::{Table, Value};

use super::config::Config;
use crate::output::{bad_request, say};

/// What a run is: with another value it would be another one. The rest (which samples, whose shapes) is compared with what the
/// checkpoint itself says when it is loaded.
const FIXED: [&str; 5] = ["dnn", "dataset", "seed", "optimiser", "sparse-momentum"];

/// Where a run may be and what may still change; neither says what the result is.
const PLACES: [&str; 5] = [
    "data-dir",
    "checkpoint-dir",
    "deadline",
    "device",
    "threads",
];

/// Makes the directory, and takes it for the run when this is the first rank. A fresh run does not mix with an earlier one, and
/// a run that goes on says what has changed.
pub(super) fn check(
    config: &Config,
    resume: bool,
    is_first: bool,
) -> anyhow::Result<Option<Arc<Lock>>> {
    let Some(dir) = &config.checkpoint_dir else {
        return Ok(None);
    };
    let shown = dir.display();
    let store = Store::new(dir, config.keep_last);
    store
        .create()
        .map_err(|error| bad_request(format!("--checkpoint-dir {shown}: {error}")))?;
    // Before a word is said: what another run has is not looked at.
    let lock = match is_first {
        true => Some(Arc::new(store.lock().map_err(bad_request)?)),
        false => None,
    };
    let steps = store.list().map_err(bad_request)?;
    let Some(newest) = steps.first() else {
        return Ok(lock);
    };
    if !resume {
        return Err(bad_request(format!(
            "--checkpoint-dir {shown} holds checkpoints of an earlier run, up to step {newest}: add --resume to go on from there, or \
             name another directory"
        )));
    }
    // The newest that can be read; a damaged one is dealt with where all workers look for one that is whole.
    let Some(checkpoint) = steps.iter().find_map(|step| store.open(*step).ok()) else {
        return Ok(lock);
    };
    let Ok(before) = toml::from_str::<Table>(checkpoint.manifest().config()) else {
        return Ok(lock);
    };
    let now = Table::try_from(config)?;
    for (name, before, now) in changes(&before, &now) {
        if FIXED.contains(&name) {
            return Err(bad_request(format!(
                "--resume: the run in {shown} has --{name} {before}, not {now}: give the same, or start another run in another directory"
            )));
        }
        if is_first {
            say(&format!("going on with --{name} {now}; it was {before}"));
        }
    }
    Ok(lock)
}

/// The options that differ, with both values.
fn changes<'a>(before: &'a Table, now: &'a Table) -> Vec<(&'a str, String, String)> {
    let shown = |value: Option<&Value>| match value {
        None => "unset".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let mut names: Vec<&str> = before
        .keys()
        .chain(now.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !PLACES.contains(name) && before.get(*name) != now.get(*name));
    let values = |name| (name, shown(before.get(name)), shown(now.get(name)));
    names.into_iter().map(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_what_differs_and_not_where_it_lies() {
        let before = "lr = 0.1\nseed = 1\ndata-dir = \"a\"\nclip = 2.0"
            .parse()
            .unwrap();
        let now = "lr = 0.1\nseed = 2\ndata-dir = \"b\"".parse().unwrap();
        let expected = [
            ("clip", "2.0".to_owned(), "unset".to_owned()),
            ("seed", "1".to_owned(), "2".to_owned()),
        ];
        assert_eq!(changes(&before, &now), expected);
    }
}
