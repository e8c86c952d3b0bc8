//! Checkpoints on disk.
//!
//! A checkpoint is a directory:
//!
//! ```text
//! step-000000123/
//!   model.safetensors                parameters and optimiser, written by rank 0
//!   rank-00000-of-00004.safetensors  what only this worker knows: residual, method, position in the data
//!   ...
//!   checkpoint.json                  the manifest: step, workers, configuration, size and hash of every file
//! ```
//!
//! It is written in three phases; between them the caller makes all workers meet (a barrier, a gather of the [`Part`]s):
//!
//! 1. rank 0: [`Store::begin`] makes the hidden directory `.step-000000123.partial`;
//! 2. every rank: [`Store::write_part`], on disk when it returns;
//! 3. rank 0: [`Store::publish`] writes the manifest and renames the directory.
//!
//! So a directory without a leading dot is complete, whenever the power went. What happens to it afterwards (a bad disk, a
//! copy that broke off) is found by size and hash when it is read, down to the last bit: see [`Store::check`] and [`Damage`].
//! The directory must be one that all workers see.

mod arrays;
mod checkpoint;
pub(crate) mod disk;
mod format;
mod lock;
mod manifest;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use arrays::{Arrays, ArraysError, Values};
pub use checkpoint::{Checkpoint, Damage, Problem};
pub use lock::{Holder, Lock};
pub use manifest::{Manifest, Part};

/// The file of parameters and optimiser, written by rank 0.
pub const MODEL: &str = "model.safetensors";

/// The manifest's file name.
pub const MANIFEST: &str = "checkpoint.json";

/// The file of one worker.
#[must_use]
pub fn rank_file(rank: usize, workers: usize) -> String {
    format!("rank-{rank:05}-of-{workers:05}.safetensors")
}

/// A directory of checkpoints.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    keep_last: usize,
}

/// What a manifest says beside the step and the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Number of workers: as many rank files are expected.
    pub workers: usize,
    /// The effective configuration as text; its hash is kept with it.
    pub config: String,
    /// Anything else, small.
    pub metadata: Value,
}

/// Why a checkpoint could not be written or looked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another run writes there.
    #[error(
        "{} is in use by {holder}: name another directory, or remove {} if that run is over",
        dir.display(),
        lock.display()
    )]
    Locked {
        /// The directory of checkpoints.
        dir: PathBuf,
        /// The file that says so.
        lock: PathBuf,
        /// Who it is.
        holder: Holder,
    },
    /// The disk said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried: "write", "rename", ...
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A part that was to be published is not there as announced, or one is missing.
    #[error("checkpoint of step {step} not published: {problem}")]
    Parts {
        /// The step.
        step: u64,
        /// What is wrong with which part.
        problem: String,
    },
    /// Arrays that a file cannot hold.
    #[error(transparent)]
    Arrays(#[from] ArraysError),
}

impl Store {
    /// Checkpoints in `dir`, of which the last `keep_last` stay (at least one). Nothing is created yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, keep_last: usize) -> Self {
        Self {
            dir: dir.into(),
            keep_last: keep_last.max(1),
        }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory of all checkpoints, on disk when this returns.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn create(&self) -> Result<(), StoreError> {
        let new = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let made: Vec<&Path> = self.dir.ancestors().take_while(new).collect();
        disk::create_dir(&self.dir)?;
        made.into_iter().try_for_each(disk::sync_parent)
    }

    /// Rank 0: makes the directory into which all ranks write, anew when one was left behind.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn begin(&self, step: u64) -> Result<(), StoreError> {
        let partial = self.hidden(step, PARTIAL);
        disk::remove_dir(&partial)?;
        disk::create_dir(&partial)
    }

    /// Every rank: writes one file of the checkpoint begun at `step`. It is on disk when this returns.
    ///
    /// # Errors
    /// When the name is no plain file name, the arrays do not fit the format or the disk says no.
    pub fn write_part(
        &self,
        step: u64,
        name: &str,
        arrays: &Arrays<'_>,
    ) -> Result<Part, StoreError> {
        if !manifest::plain(name) || name == MANIFEST {
            let problem =
                format!("{name:?} is no name for a part: expected letters, digits and .-_");
            return Err(StoreError::Parts { step, problem });
        }
        let path = self.hidden(step, PARTIAL).join(name);
        let written = disk::write_file(&path, |file| arrays.write_to(file))?;
        let (size, hash) = written.map_err(|error| match error {
            ArraysError::Io(source) => disk::error("write", &path, source),
            other => other.into(),
        })?;
        Ok(Part {
            name: name.to_owned(),
            size,
            blake3: hash.to_hex().to_string(),
        })
    }

    /// Rank 0: makes the checkpoint of `step` visible, all at once, then deletes what is no longer kept.
    ///
    /// A checkpoint of the same step is replaced; at no moment are both gone. Only earlier steps count as old: later ones stay
    /// (see [`Store::set_aside_after`]).
    ///
    /// # Errors
    /// When a part is missing or not there as announced, or the disk says no. Nothing is deleted then.
    pub fn publish(
        &self,
        step: u64,
        parts: Vec<Part>,
        about: About,
    ) -> Result<Checkpoint, StoreError> {
        let partial = self.hidden(step, PARTIAL);
        let manifest = Manifest::new(step, parts, about);
        let complete = manifest
            .check()
            .and_then(|()| all_there(&partial, &manifest));
        complete.map_err(|problem| StoreError::Parts { step, problem })?;
        let text = manifest.to_text();
        disk::write_file(&partial.join(MANIFEST), |file| {
            io::Write::write_all(file, text.as_bytes())
        })?
        .map_err(|source| disk::error("write", &partial.join(MANIFEST), source))?;
        disk::sync_dir(&partial)?;

        let public = self.public(step);
        if public.exists() {
            let replaced = self.hidden(step, REPLACED);
            disk::remove_dir(&replaced)?;
            disk::rename(&public, &replaced)?;
        }
        disk::rename(&partial, &public)?;
        disk::sync_dir(&self.dir)?;
        self.prune(step)?;
        Ok(Checkpoint::new(public, manifest))
    }

    /// The steps of all checkpoints, newest first, damaged ones included.
    ///
    /// # Errors
    /// When the directory exists and cannot be read.
    pub fn list(&self) -> Result<Vec<u64>, StoreError> {
        let mut steps: Vec<u64> = self
            .entries()?
            .into_iter()
            .filter(|entry| matches!(entry.kind, Kind::Public | Kind::Hidden(REPLACED)))
            .map(|entry| entry.step)
            .collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        steps.dedup();
        Ok(steps)
    }

    /// Reads the manifest of `step`. The files are not looked at.
    ///
    /// # Errors
    /// When there is none or it is damaged.
    pub fn open(&self, step: u64) -> Result<Checkpoint, Damage> {
        let public = self.public(step);
        let replaced = self.hidden(step, REPLACED);
        // Stopped between the two renames of a replacement: the old one is whole and still counts.
        let dir = if !public.exists() && replaced.exists() {
            replaced
        } else {
            public
        };
        Checkpoint::open(dir, step)
    }

    /// Reads the manifest of `step` and checks the files that `needs` names, against size and hash.
    ///
    /// Each rank checks the files it needs; the checkpoint is fit for use when all ranks say so.
    ///
    /// # Errors
    /// The first damage found.
    pub fn check<N>(&self, step: u64, needs: N) -> Result<Checkpoint, Damage>
    where
        N: FnOnce(&Checkpoint) -> Vec<String>,
    {
        let checkpoint = self.open(step)?;
        for name in needs(&checkpoint) {
            checkpoint.verify(&name)?;
        }
        Ok(checkpoint)
    }

    /// Rank 0, when a run goes on from `step`: renames the damaged checkpoints of later steps, so that they are in nobody's way
    /// and what is whole in them can still be had. Gives their new places.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn set_aside_after(&self, step: u64) -> Result<Vec<PathBuf>, StoreError> {
        let mut places = Vec::new();
        for entry in self.entries()? {
            if entry.step <= step {
                continue;
            }
            let from = match entry.kind {
                Kind::Public => self.public(entry.step),
                Kind::Hidden(REPLACED) => self.hidden(entry.step, REPLACED),
                // Never was whole, or no longer wanted.
                Kind::Hidden(_) => {
                    self.delete(&entry)?;
                    continue;
                }
            };
            let place = self.free_place(entry.step);
            disk::rename(&from, &place)?;
            places.push(place);
        }
        if !places.is_empty() {
            disk::sync_dir(&self.dir)?;
        }
        Ok(places)
    }

    /// Where a damaged checkpoint can go without being in the way of an earlier one.
    fn free_place(&self, step: u64) -> PathBuf {
        let name = format!("{}.{DAMAGED}", public_name(step));
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let places = std::iter::once(name.clone()).chain(numbered);
        let mut places = places.map(|name| self.dir.join(name));
        places
            .find(|place| !place.exists())
            .expect("there is always another number")
    }

    /// Deletes what publishing `newest` made old, and what was left behind.
    fn prune(&self, newest: u64) -> Result<(), StoreError> {
        let steps = self.list()?;
        let mut past = steps.into_iter().filter(|&step| step <= newest);
        let oldest = past.by_ref().take(self.keep_last).last().unwrap_or(newest);
        for entry in self.entries()? {
            let kept = match entry.kind {
                Kind::Public => entry.step >= oldest,
                Kind::Hidden(REPLACED) => entry.step >= oldest && !self.public(entry.step).exists(),
                Kind::Hidden(_) => false,
            };
            if !kept {
                self.delete(&entry)?;
            }
        }
        Ok(())
    }

    /// Hides a checkpoint before it is deleted: stopped half way, it is not taken for a damaged one.
    fn delete(&self, entry: &Entry) -> Result<(), StoreError> {
        match entry.kind {
            Kind::Hidden(suffix) => disk::remove_dir(&self.hidden(entry.step, suffix)),
            Kind::Public => {
                let deleted = self.hidden(entry.step, DELETED);
                disk::remove_dir(&deleted)?;
                disk::rename(&self.public(entry.step), &deleted)?;
                disk::remove_dir(&deleted)
            }
        }
    }

    fn public(&self, step: u64) -> PathBuf {
        self.dir.join(public_name(step))
    }

    fn hidden(&self, step: u64, suffix: &str) -> PathBuf {
        self.dir.join(hidden_name(step, suffix))
    }

    fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let fail = |source| disk::error("read", &self.dir, source);
        let listing = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut entries = Vec::new();
        for item in listing {
            let name = item.map_err(fail)?.file_name();
            entries.extend(name.to_str().and_then(Entry::parse));
        }
        Ok(entries)
    }
}

/// Being written.
const PARTIAL: &str = "partial";
/// Made way for another one of the same step.
const REPLACED: &str = "replaced";
/// Found damaged when a run went on from an earlier one; left to people.
const DAMAGED: &str = "damaged";
/// Being deleted.
const DELETED: &str = "deleted";

fn public_name(step: u64) -> String {
    format!("step-{step:09}")
}

fn hidden_name(step: u64, suffix: &str) -> String {
    format!(".{}.{suffix}", public_name(step))
}

/// One directory of the store.
struct Entry {
    step: u64,
    kind: Kind,
}

enum Kind {
    Public,
    Hidden(&'static str),
}

impl Entry {
    /// Only names that this store would give: other people's files are left alone.
    fn parse(name: &str) -> Option<Self> {
        let digits = name.trim_start_matches('.').strip_prefix("step-")?;
        let step = digits.split('.').next()?.parse().ok()?;
        if name == public_name(step) {
            let kind = Kind::Public;
            return Some(Self { step, kind });
        }
        let suffixes = [PARTIAL, REPLACED, DELETED];
        let suffix = suffixes
            .into_iter()
            .find(|suffix| name == hidden_name(step, suffix))?;
        let kind = Kind::Hidden(suffix);
        Some(Self { step, kind })
    }
}

fn all_there(dir: &Path, manifest: &Manifest) -> Result<(), String> {
    for part in manifest.parts() {
        // Opened, not only looked up: a network file system then asks for the size anew.
        let size = fs::File::open(dir.join(&part.name))
            .and_then(|file| file.metadata())
            .map_err(|error| format!("{}: {error}", part.name))?
            .len();
        if size != part.size {
            let Part {
                name,
                size: expected,
                ..
            } = part;
            return Err(format!("{name} is {size} bytes long, expected {expected}"));
        }
    }
    Ok(())
}
