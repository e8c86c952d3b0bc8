//! Finding and reading files, with errors that say what to do.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

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

/// The most bytes of a text that are read, unpacked: no text of a known set comes near it, a device or a bomb goes beyond.
const LONGEST_TEXT: u64 = 1 << 30;

/// A whole file of at most so many bytes, unpacked if its name ends in `.gz`. No more than one byte beyond them is unpacked.
pub(crate) fn read(path: &Path, longest: u64) -> Result<Vec<u8>, DataError> {
    let bytes = front(path, longest.saturating_add(1))?;
    if bytes.len() as u64 > longest {
        let problem = format!("it holds more than {longest} bytes, the most that it may");
        return Err(DataError::damaged(path, problem));
    }
    Ok(bytes)
}

/// The first so many bytes of a file, or all of a shorter one; unpacked if its name ends in `.gz`.
pub(crate) fn front(path: &Path, longest: u64) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(|cause| DataError::read(path, cause))?;
    let mut bytes = Vec::new();
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let result = if packed {
        let unpacked = MultiGzDecoder::new(BufReader::new(file));
        unpacked.take(longest).read_to_end(&mut bytes)
    } else {
        file.take(longest).read_to_end(&mut bytes)
    };
    match result {
        Ok(_) => Ok(bytes),
        Err(cause) if packed => {
            let read = bytes.len();
            let problem = format!("after {read} bytes: {cause}; expected a whole gzip file");
            Err(DataError::damaged(path, problem))
        }
        Err(cause) => Err(DataError::read(path, cause)),
    }
}

/// The names in a folder, sorted, so that samples have the same numbers on every machine.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, DataError> {
    let failed = |cause| DataError::read(folder, cause);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        // Left out in silence, a file would be missing among the samples.
        let name = entry.map_err(failed)?.file_name().into_string();
        names.push(name.map_err(|name| {
            let problem = "its name is not UTF-8: rename it or take it away";
            DataError::damaged(&folder.join(name), problem)
        })?);
    }
    names.sort_unstable();
    Ok(names)
}

/// A file as text; bytes that are not UTF-8 become replacement characters.
pub(crate) fn text(path: &Path) -> Result<String, DataError> {
    let bytes = read(path, LONGEST_TEXT)?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn a_file_of_several_gzip_members_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("two.gz");
        let mut bytes = gzip(b"one, ");
        bytes.extend(gzip(b"two"));
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path, 8).unwrap(), b"one, two");
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused_with_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("bomb.gz", gzip(&[0; 5000])), ("plain", vec![0; 5000])] {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path, 5000).unwrap().len(), 5000);
            let error = read(&path, 4999).unwrap_err().to_string();
            assert!(error.contains("more than 4999 bytes"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_whose_name_is_not_utf_8_is_named() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(OsStr::from_bytes(b"cat\xff.jpg"));
        fs::write(&odd, "x").unwrap();
        let error = names(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("cat") && error.contains("not UTF-8"),
            "{error}"
        );
    }
}
