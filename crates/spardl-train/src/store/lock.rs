//! One run at a time in a directory of checkpoints.
//!
//! The file `.lock` says which process uses the directory. It goes when the run ends; one that a killed run left behind is taken
//! over, when the process can be seen to be gone.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Store, StoreError, disk};

const NAME: &str = ".lock";

/// The process that uses a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its machine.
    pub host: String,
    /// When it was started, in the system's count; numbers of processes are used again.
    started: Option<u64>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

impl Holder {
    fn this_process() -> Self {
        let pid = process::id();
        Self {
            pid,
            host: host(),
            started: started(pid),
        }
    }

    /// Can it be seen that the process is gone? Not from another machine.
    fn is_gone(&self) -> bool {
        let can_look = Path::new("/proc/self/stat").exists();
        can_look && self.host == host() && started(self.pid) != self.started
    }
}

/// A directory that is in use by this process, until this is dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// A run that ended without giving the directory back.
    before: Option<String>,
}

impl Lock {
    /// Whose lock was taken over, in words.
    pub fn taken_over_from(&self) -> Option<&str> {
        self.before.as_deref()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that stays is taken over by the next run.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Rank 0: takes the directory for this process, and so sees that it can be written to.
    ///
    /// # Errors
    /// When another process uses it, or the disk says no.
    pub fn lock(&self) -> Result<Lock, StoreError> {
        let path = self.dir().join(NAME);
        let fail = |source| disk::error("write", &path, source);
        let _turn = turn(self.dir());
        match write_new(&path) {
            Ok(()) => return Ok(Lock { path, before: None }),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(fail(error)),
            Err(_) => {}
        }
        let text =
            fs::read_to_string(&path).map_err(|source| disk::error("read", &path, source))?;
        let before = match serde_json::from_str::<Holder>(&text) {
            Ok(holder) if !holder.is_gone() => {
                return Err(StoreError::Locked {
                    dir: self.dir().to_owned(),
                    lock: path,
                    holder,
                });
            }
            Ok(holder) => holder.to_string(),
            // The machine went down before it was on disk.
            Err(_) => "a run that did not say who it was".to_owned(),
        };
        fs::remove_file(&path).map_err(fail)?;
        write_new(&path).map_err(fail)?;
        let before = Some(before);
        Ok(Lock { path, before })
    }
}

/// Processes of one machine look at the lock one after the other. Else one of them could read what the other has not written yet,
/// or remove what the other just wrote in place of the same old lock. A disk that cannot do this is used without.
fn turn(dir: &Path) -> Option<File> {
    const TRIES: u32 = 200;
    let dir = File::open(dir).ok()?;
    for _ in 0..TRIES {
        match dir.try_lock() {
            Ok(()) => return Some(dir),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

fn write_new(path: &Path) -> io::Result<()> {
    let text = serde_json::to_string(&Holder::this_process()).expect("words and numbers");
    let mut file = File::create_new(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    // On a full disk an empty file is left, which would be in the way of the next run.
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

/// When a process was started; `None` when there is none, or this system does not say.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // One that ended keeps its line until its parent has asked how, which some launchers never do.
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.or_else(|_| std::env::var("HOSTNAME").map_err(io::Error::other));
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_directory_is_one_run_s_until_that_ends_or_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::new(dir.path(), 1);
        let lock = store.lock().expect("free");
        assert_eq!(lock.taken_over_from(), None);
        let error = store.lock().expect_err("in use").to_string();
        let this = format!("is in use by process {} on ", process::id());
        assert!(error.contains(&this), "{error}");
        drop(lock);
        drop(store.lock().expect("free again"));

        let path = dir.path().join(NAME);
        let leave = |holder: &Holder| {
            fs::write(&path, serde_json::to_string(holder).expect("JSON")).expect("written");
        };
        let mut killed = Holder::this_process();
        killed.started = killed.started.map(|ticks| ticks + 1);
        leave(&killed);
        let words = format!("process {} on {}", killed.pid, killed.host);
        let lock = store.lock().expect("the process is gone");
        assert_eq!(lock.taken_over_from(), Some(words.as_str()));
        drop(lock);

        killed.host = "elsewhere".to_owned();
        leave(&killed);
        let error = store.lock().expect_err("not to be seen").to_string();
        assert!(error.contains("on elsewhere"), "{error}");

        fs::write(&path, "").expect("written");
        assert!(store.lock().expect("nobody's").taken_over_from().is_some());
    }

    #[test]
    fn of_runs_that_begin_at_once_one_gets_the_directory() {
        const RUNS: usize = 4;
        let mut killed = Holder::this_process();
        killed.started = killed.started.map(|ticks| ticks + 1);
        let killed = serde_json::to_string(&killed).expect("JSON");
        for left in [None, Some(&killed)].repeat(20) {
            let dir = tempfile::tempdir().expect("a directory");
            if let Some(left) = left {
                fs::write(dir.path().join(NAME), left).expect("written");
            }
            let store = Store::new(dir.path(), 1);
            let all = Barrier::new(RUNS);
            let locks: Vec<_> = thread::scope(|scope| {
                let run = || {
                    all.wait();
                    store.lock()
                };
                let runs = [(); RUNS].map(|()| scope.spawn(run));
                runs.into_iter()
                    .map(|run| run.join().expect("no panic"))
                    .collect()
            });
            assert_eq!(locks.iter().flatten().count(), 1, "{locks:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_killed_run_is_gone_before_its_parent_has_asked_how_it_ended() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::new(dir.path(), 1);
        let mut child = process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("a process");
        let pid = child.id();
        let holder = Holder {
            pid,
            host: host(),
            started: started(pid),
        };
        assert!(holder.started.is_some(), "it runs");
        let text = serde_json::to_string(&holder).expect("JSON");
        fs::write(dir.path().join(NAME), text).expect("written");
        store.lock().expect_err("it runs");
        child.kill().expect("killed");
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).expect("not asked yet");
        while !stat().contains(") Z ") {
            thread::sleep(Duration::from_millis(1));
        }
        let lock = store.lock().expect("it is gone");
        assert!(lock.taken_over_from().is_some());
        child.wait().expect("it ended");
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_named() {
        let store = Store::new("/proc/self", 1);
        let error = store.lock().expect_err("not a place for files").to_string();
        assert!(error.contains("/proc/self/.lock"), "{error}");
    }
}
