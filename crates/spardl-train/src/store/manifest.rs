//! The manifest: what belongs to a checkpoint, and the hashes to know it by.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{About, MANIFEST, MODEL, Problem, rank_file};

/// Raised when old readers could misread new checkpoints.
const VERSION: u32 = 3;

/// One file of a checkpoint, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in the checkpoint's directory.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its BLAKE3 hash, 64 hexadecimal digits.
    pub blake3: String,
}

/// What `checkpoint.json` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    step: u64,
    workers: usize,
    config: String,
    config_blake3: String,
    metadata: Value,
    files: Vec<Part>,
}

impl Manifest {
    pub(super) fn new(step: u64, mut files: Vec<Part>, about: About) -> Self {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            format: VERSION,
            step,
            workers: about.workers,
            config_blake3: blake3::hash(about.config.as_bytes()).to_hex().to_string(),
            config: about.config,
            metadata: about.metadata,
            files,
        }
    }

    /// The step after which the checkpoint was made.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The number of workers it was made with.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The effective configuration.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The BLAKE3 hash of the configuration, 64 hexadecimal digits.
    #[must_use]
    pub fn config_blake3(&self) -> &str {
        &self.config_blake3
    }

    /// What the caller added.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// The files, in name order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.files
    }

    /// The file of that name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.files.iter().find(|part| part.name == name)
    }

    /// Are all files named once, and none outside the directory?
    pub(super) fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for part in &self.files {
            if !plain(&part.name) || part.name == MANIFEST {
                return Err(format!("{:?} is no name for a part", part.name));
            }
            if !names.insert(part.name.as_str()) {
                return Err(format!("{} is listed twice", part.name));
            }
        }
        if !names.contains(MODEL) {
            return Err(format!("{MODEL} is not listed"));
        }
        // Looked for one after the other: a wrong number of workers ends at the first that is missing.
        let mut ranks = (0..self.workers).map(|rank| rank_file(rank, self.workers));
        match ranks.find(|name| !names.contains(name.as_str())) {
            Some(name) => Err(format!("{name} is not listed")),
            None => Ok(()),
        }
    }

    /// The text of the file. Its first field is the hash of all that follows it.
    pub(super) fn to_text(&self) -> String {
        let text = format!("{:#}\n", serde_json::json!(self));
        let rest = &text[1..];
        let hash = blake3::hash(rest.as_bytes()).to_hex();
        format!("{FIRST}{hash}\",{rest}")
    }

    /// Reads what [`Manifest::to_text`] wrote for `step`.
    pub(super) fn from_bytes(bytes: &[u8], step: u64) -> Result<Self, Problem> {
        let changed = || Problem::Content("it does not match its own hash".to_owned());
        let strange = |error: serde_json::Error| Problem::Content(error.to_string());
        let rest = bytes.strip_prefix(FIRST.as_bytes()).ok_or_else(changed)?;
        let (hash, rest) = rest.split_at_checked(HEX).ok_or_else(changed)?;
        let rest = rest.strip_prefix(b"\",").ok_or_else(changed)?;
        if blake3::hash(rest).to_hex().as_bytes() != hash {
            return Err(changed());
        }
        let text = [b"{", rest].concat();
        let version: Version = serde_json::from_slice(&text).map_err(strange)?;
        if version.format != VERSION {
            return Err(Problem::Format(version.format));
        }
        let manifest: Self = serde_json::from_slice(&text).map_err(strange)?;
        if manifest.step != step {
            return Err(Problem::Content(format!("it is of step {}", manifest.step)));
        }
        manifest.check().map_err(Problem::Content)?;
        Ok(manifest)
    }
}

/// A name that stays in its directory, on every system.
pub(super) fn plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(allowed)
}

const FIRST: &str = "{\n  \"blake3\": \"";
const HEX: usize = 2 * blake3::OUT_LEN;

/// Read first: another format may have other fields.
#[derive(Deserialize)]
struct Version {
    format: u32,
}
