//! Records as JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::EventsError;
use crate::store::disk;

/// A file with one JSON object per line.
///
/// Each line is one write, so that a reader that follows the file and a run that is killed see whole lines. NaN and infinities
/// become `null`: JSON has no word for them.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
}

impl JsonLines {
    /// A new file, in the place of one that is there; missing directories are made.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, EventsError> {
        let path = path.into();
        if let Some(parent) = path.parent() {
            disk::create_dir(parent)?;
        }
        let file = File::create(&path).map_err(|source| disk::error("create", &path, source))?;
        Ok(Self { path, file })
    }

    /// Goes on with a file (or a new one) after the checkpoint of `step`: what was written about later steps is dropped. Gives the
    /// records that are kept, but for lines that are none.
    ///
    /// Dropped are lines whose field `step` is greater, lines without one that come after such a line, and lines that are not
    /// whole. The file is replaced at once: stopped half way, it is as it was.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn resume<R: DeserializeOwned>(
        path: impl Into<PathBuf>,
        step: u64,
    ) -> Result<(Self, Vec<R>), EventsError> {
        let path = path.into();
        if !path.exists() {
            return Ok((Self::create(path)?, Vec::new()));
        }
        let kept = truncate_after(&path, step)?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|source| disk::error("append to", &path, source))?;
        Ok((Self { path, file }, kept))
    }

    /// Adds a record. The system has it when this returns.
    ///
    /// # Errors
    /// When the record is not for JSON or the disk says no.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), EventsError> {
        let mut line = serde_json::to_vec(record).map_err(EventsError::Record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        Ok(written.map_err(|source| disk::error("write", &self.path, source))?)
    }

    /// Where it is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn truncate_after<R: DeserializeOwned>(path: &Path, step: u64) -> Result<Vec<R>, EventsError> {
    let file = File::open(path).map_err(|source| disk::error("read", path, source))?;
    let mut lines = BufReader::new(file);
    let mut kept = Vec::new();
    disk::replace_file(path, |to| {
        let mut line = Vec::new();
        let mut later = false;
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return io::Result::Ok(());
            }
            let whole = line.starts_with(b"{") && line.ends_with(b"\n");
            let Ok(Record { step: of }) = serde_json::from_slice(&line) else {
                continue;
            };
            later |= of.is_some_and(|of| of > step);
            if whole && of.map_or(!later, |of| of <= step) {
                to.write_all(&line)?;
                kept.extend(serde_json::from_slice::<R>(&line));
            }
        }
    })?;
    Ok(kept)
}

/// All that is looked at when a file is cut.
#[derive(Deserialize)]
struct Record {
    step: Option<u64>,
}
