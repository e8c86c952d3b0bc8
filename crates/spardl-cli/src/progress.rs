//! A bar on stderr for those who wait.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::bad_request;

/// The bar appears after this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// How far the run is: shown when it takes long and stderr is a terminal, cleared at the end.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
    log: Option<File>,
}

impl Progress {
    /// A bar to `total` rows; only one rank of a job has it `shown`.
    pub(crate) fn new(total: u64, shown: bool) -> Self {
        let style =
            ProgressStyle::with_template("{bar:16} {pos}/{len}  {elapsed}, {eta} left  {wide_msg}");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden())
            .with_style(style.expect("a valid template"));
        Self {
            bar,
            since: Instant::now(),
            shown,
            log: None,
        }
    }

    /// Also writes everything to `rank-N.log` in that directory.
    pub(crate) fn with_log(mut self, directory: Option<&Path>, rank: u32) -> anyhow::Result<Self> {
        if let Some(directory) = directory {
            let path = directory.join(format!("rank-{rank}.log"));
            let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
            let unwritable = |error| {
                bad_request(format!(
                    "--log-dir: cannot write {}: {error}",
                    path.display()
                ))
            };
            self.log = Some(file.map_err(unwritable)?);
        }
        Ok(self)
    }

    /// Writes a line to the log only.
    pub(crate) fn note(&self, line: &str) {
        if let Some(mut log) = self.log.as_ref() {
            // A full disk should not end the run.
            let _ = writeln!(log, "{:9.3} s  {line}", self.since.elapsed().as_secs_f64());
        }
    }

    /// What is done now.
    pub(crate) fn say(&self, message: String) {
        self.note(&message);
        self.bar.set_message(message);
        if self.shown && self.bar.is_hidden() && self.since.elapsed() >= PATIENCE {
            // Stays hidden where stderr is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            if !self.bar.is_hidden() {
                self.bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
    }

    /// One more row is done.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
