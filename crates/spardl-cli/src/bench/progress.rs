//! A bar on stderr for those who wait.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar appears after this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// How far the run is: shown when it takes long and stderr is a terminal, cleared at the end.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    pub(super) fn new(total: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {wide_msg}");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden())
            .with_style(style.expect("a valid template"));
        Self {
            bar,
            since: Instant::now(),
        }
    }

    /// What is done now.
    pub(super) fn say(&self, message: String) {
        self.bar.set_message(message);
        if self.bar.is_hidden() && self.since.elapsed() >= PATIENCE {
            // Stays hidden where stderr is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            if !self.bar.is_hidden() {
                self.bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
    }

    /// One more row is done.
    pub(super) fn done(&self) {
        self.bar.inc(1);
    }

    /// Hides the bar while `print` runs.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
