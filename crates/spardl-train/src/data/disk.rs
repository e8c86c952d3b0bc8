//! Finding and reading files, with errors that say what to do.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::sets::{Request, Set};
use super::{DataError, SETS};

/// Where a set lies: the directory given, and the folder of it that holds the files.
#[derive(Debug)]
pub(crate) struct Place {
    set: &'static Set,
    directory: PathBuf,
    folder: PathBuf,
}

impl Place {
    /// Looks for a set: in the directory given, in its folder of the set's name, and in the folders that its archive unpacks
    /// to, in either. `markers` are files of which one shows that the set is here. Nothing found, the folder is the one where
    /// it should be.
    pub(crate) fn find(
        name: &str,
        request: &Request,
        folders: &[&str],
        markers: &[&str],
    ) -> Result<Self, DataError> {
        let set = entry(name);
        let Some(directory) = request.dir.clone() else {
            return Err(DataError::NoDirectory {
                title: set.title,
                expects: set.expects,
            });
        };
        let candidates = [directory.clone(), directory.join(name)]
            .into_iter()
            .flat_map(|base| {
                let inner: Vec<PathBuf> = folders.iter().map(|folder| base.join(folder)).collect();
                std::iter::once(base).chain(inner)
            });
        let folder = candidates
            .into_iter()
            .find(|folder| markers.iter().any(|marker| folder.join(marker).exists()))
            .unwrap_or_else(|| {
                folders
                    .first()
                    .map_or(directory.clone(), |f| directory.join(f))
            });
        Ok(Self {
            set,
            directory,
            folder,
        })
    }

    /// The folder that holds the files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The first of these files that exists.
    pub(crate) fn file(&self, names: &[&str]) -> Result<PathBuf, DataError> {
        let paths = || names.iter().map(|name| self.folder.join(name));
        paths()
            .find(|path| path.exists())
            .ok_or_else(|| self.missing(names[0]))
    }

    /// The error that something of the set is not there.
    pub(crate) fn missing(&self, name: &str) -> DataError {
        DataError::Missing {
            title: self.set.title,
            directory: self.directory.clone(),
            expected: self.folder.join(name),
            hint: self.set.source,
        }
    }
}

fn entry(name: &str) -> &'static Set {
    SETS.iter()
        .find(|set| set.name == name)
        .expect("every set that is read from disk is listed")
}

/// A whole file, unpacked if its name ends in `.gz`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read(path).map_err(|cause| DataError::read(path, cause));
    }
    let file = File::open(path).map_err(|cause| DataError::read(path, cause))?;
    let mut bytes = Vec::new();
    match flate2::read::GzDecoder::new(std::io::BufReader::new(file)).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(cause) => Err(DataError::damaged(
            path,
            format!(
                "after {} bytes: {cause}; expected a whole gzip file",
                bytes.len()
            ),
        )),
    }
}

/// The names in a folder, sorted, so that samples have the same numbers on every machine.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, DataError> {
    let failed = |cause| DataError::read(folder, cause);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        // A name that is not text is none of ours.
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A file as text; bytes that are not UTF-8 become replacement characters.
pub(crate) fn text(path: &Path) -> Result<String, DataError> {
    let bytes = read(path)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned()))
}

/// The folders in a folder, sorted; none if it is not there.
pub(crate) fn folders(folder: &Path) -> Result<Vec<String>, DataError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = names(folder)?;
    names.retain(|name| folder.join(name).is_dir());
    Ok(names)
}
