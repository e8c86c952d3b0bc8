//! Writing so that it stays written.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::StoreError;

pub(crate) fn error(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    StoreError::Io {
        doing,
        path,
        source,
    }
}

/// Writes a file, hashes it on the way, and waits until it is on disk. Gives its size and hash, or what `fill` failed with.
pub(super) fn write_file<E>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<Result<(u64, blake3::Hash), E>, StoreError> {
    let fail = |source| error("write", path, source);
    let file = File::create(path).map_err(fail)?;
    let mut hashing = Hashing {
        to: BufWriter::with_capacity(1 << 18, file),
        hasher: blake3::Hasher::new(),
        size: 0,
    };
    if let Err(error) = fill(&mut hashing) {
        return Ok(Err(error));
    }
    let Hashing { to, hasher, size } = hashing;
    let file = to.into_inner().map_err(|error| fail(error.into_error()))?;
    file.sync_all().map_err(fail)?;
    Ok(Ok((size, hasher.finalize())))
}

/// Puts a whole file in the place of another: a reader sees the old one or the new one.
pub(crate) fn replace_file(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StoreError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    write_file(&partial, fill)?.map_err(|source| error("write", &partial, source))?;
    rename(&partial, path)?;
    sync_parent(path)
}

pub(crate) fn create_dir(path: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(path).map_err(|source| error("create", path, source))
}

/// Removes a directory and all in it, if it is there.
pub(super) fn remove_dir(path: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| error("remove", path, source)),
    }
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|source| error("rename", from, source))
}

/// Waits until the names in a directory are on disk. Only Unix can open one.
pub(super) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    if cfg!(unix) {
        let synced = File::open(path).and_then(|dir| dir.sync_all());
        synced.map_err(|source| error("sync", path, source))?;
    }
    Ok(())
}

/// Waits until the name of `path` in its directory is on disk.
pub(super) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

struct Hashing {
    to: BufWriter<File>,
    hasher: blake3::Hasher,
    size: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
