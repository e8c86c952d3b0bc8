//! Reading a checkpoint, and saying what is wrong with it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, Part};
use super::{Arrays, ArraysError, MANIFEST, MODEL, rank_file};

/// A published checkpoint whose manifest has been read.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    manifest: Manifest,
}

/// Why a checkpoint is not used: which file, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("checkpoint of step {step} refused: {file} {problem}")]
pub struct Damage {
    /// The checkpoint's step.
    pub step: u64,
    /// The file's name.
    pub file: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Problem {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// The manifest does not name it.
    #[error("is not listed in {MANIFEST}")]
    NotListed,
    /// It has another length.
    #[error("is {got} bytes long, expected {expected}")]
    Size {
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        got: u64,
    },
    /// It has the right length and other content.
    #[error("does not match its hash")]
    Hash,
    /// Another version of spardl wrote it.
    #[error("has format {0}, which this version of spardl does not read")]
    Format(u32),
    /// It is whole but not what it should be.
    #[error("cannot be understood: {0}")]
    Content(String),
    /// The system could not read it.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

impl Damage {
    /// What would help, where the file may be whole and someone else, or a moment later, may read it.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self.problem {
            Problem::Unreadable(_) => Some("make it readable"),
            Problem::Format(_) => Some("use the version that wrote it"),
            _ => None,
        }
    }
}

impl Checkpoint {
    pub(super) fn new(dir: PathBuf, manifest: Manifest) -> Self {
        Self { dir, manifest }
    }

    pub(super) fn open(dir: PathBuf, step: u64) -> Result<Self, Damage> {
        let manifest = fs::read(dir.join(MANIFEST))
            .map_err(Problem::from)
            .and_then(|bytes| Manifest::from_bytes(&bytes, step));
        match manifest {
            Ok(manifest) => Ok(Self::new(dir, manifest)),
            Err(problem) => Err(Damage {
                step,
                file: MANIFEST.to_owned(),
                problem,
            }),
        }
    }

    /// Where it lies.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The step after which it was made.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.manifest.step()
    }

    /// What it says about itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The files that `rank` of `workers` needs to go on: the model, and the old ranks that are `rank` modulo `workers` (its
    /// own one when the number of workers is as it was).
    #[must_use]
    pub fn needed_by(&self, rank: usize, workers: usize) -> Vec<String> {
        let old = self.manifest.workers();
        let ranks = (rank..old).step_by(workers.max(1));
        let files = ranks.map(|rank| rank_file(rank, old));
        std::iter::once(MODEL.to_owned()).chain(files).collect()
    }

    /// Checks a file's size and hash.
    ///
    /// # Errors
    /// When the file is not as it was written.
    pub fn verify(&self, name: &str) -> Result<(), Damage> {
        self.with_file(name, |_| Ok(()))
    }

    /// Reads a file; its size and hash are checked on the way.
    ///
    /// # Errors
    /// When the file is not as it was written.
    pub fn read(&self, name: &str) -> Result<Arrays<'static>, Damage> {
        self.with_file(name, |file| {
            let size = file.part.size;
            Ok(Arrays::read_from(file, size)?)
        })
    }

    fn with_file<T>(
        &self,
        name: &str,
        read: impl FnOnce(&mut Hashed<'_>) -> Result<T, Problem>,
    ) -> Result<T, Damage> {
        let attempt = || {
            let part = self.manifest.part(name).ok_or(Problem::NotListed)?;
            let file = File::open(self.dir.join(name))?;
            let (expected, got) = (part.size, file.metadata()?.len());
            if got != expected {
                return Err(Problem::Size { expected, got });
            }
            let hasher = blake3::Hasher::new();
            let mut file = Hashed { file, hasher, part };
            let outcome = read(&mut file);
            if let Err(Problem::Unreadable(_)) = outcome {
                return outcome;
            }
            // Content that cannot be understood is damage first: hash all of it before blaming the writer.
            file.drain()?;
            if file.hasher.finalize().to_hex().as_str() != part.blake3 {
                return Err(Problem::Hash);
            }
            outcome
        };
        attempt().map_err(|problem| Damage {
            step: self.step(),
            file: name.to_owned(),
            problem,
        })
    }
}

/// Hashes what is read.
struct Hashed<'a> {
    file: File,
    hasher: blake3::Hasher,
    part: &'a Part,
}

impl Hashed<'_> {
    /// Hashes the rest.
    fn drain(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 18];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

impl From<ArraysError> for Problem {
    fn from(error: ArraysError) -> Self {
        match error {
            ArraysError::Io(error) => error.into(),
            other => Self::Content(other.to_string()),
        }
    }
}
