//! Starts this program under `mpiexec` and watches it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any job takes on two busy cores.
const LIMIT_SECONDS: &str = "120";

/// A named thing to run.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) run: Box<dyn Fn() -> Result<(), String>>,
}

impl Job {
    pub(crate) fn new(name: String, run: impl Fn() -> Result<(), String> + 'static) -> Self {
        let run = Box::new(run);
        Self { name, run }
    }

    /// A job that passes when all its ranks end well.
    pub(crate) fn ranks(name: String, ranks: u32, role: &'static str, link: Link) -> Self {
        Self::new(name, move || {
            let mut launched = Launched::new(ranks, &[role], link)?;
            let (status, output) = launched.finish()?;
            if status.success() {
                return Ok(());
            }
            Err(format!("{status}\n{output}"))
        })
    }
}

/// What messages travel over. Nothing ever leaves the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    SharedMemory,
    Loopback,
}

/// Is the library Open MPI? (MPICH has no switch between links.)
pub(crate) fn is_open_mpi() -> bool {
    spardl_mpi::Mpi::library_version().contains("Open MPI")
}

/// A running `mpiexec`, with the lines of all its ranks.
pub(crate) struct Launched {
    child: Child,
    lines: Receiver<String>,
    output: String,
}

impl Launched {
    pub(crate) fn new(ranks: u32, args: &[&str], link: Link) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", LIMIT_SECONDS])
            .arg(mpiexec())
            .args(["-n", &ranks.to_string()])
            .arg(program)
            .arg("rank")
            .args(args)
            .envs(environment(link))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let (sender, lines) = channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        Ok(Self {
            child,
            lines,
            output: String::new(),
        })
    }

    /// The first line that holds `text`.
    pub(crate) fn wait_for(&mut self, text: &str, limit: Duration) -> Result<String, String> {
        let end = Instant::now() + limit;
        loop {
            if let Some(line) = self.output.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return Err(format!("no line with '{text}' came:\n{}", self.output));
            };
            self.keep(&line);
        }
    }

    /// Waits for the end; returns how it was and all lines.
    pub(crate) fn finish(&mut self) -> Result<(ExitStatus, &str), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.keep(&line);
        }
        Ok((status, &self.output))
    }

    fn keep(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // `timeout` passes the signal on to mpiexec, which ends its ranks.
        if let Ok(None) = self.child.try_wait() {
            signal("TERM", self.child.id()).ok();
            self.child.wait().ok();
        }
    }
}

fn forward(stream: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    if let Some(stream) = stream {
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
    }
}

/// The launcher that belongs to the library: `MPIEXEC`, or the one with the library's name if both are installed.
fn mpiexec() -> String {
    if let Ok(mpiexec) = std::env::var("MPIEXEC") {
        return mpiexec;
    }
    let own = if is_open_mpi() {
        "mpiexec.openmpi"
    } else {
        "mpiexec.mpich"
    };
    let installed = Command::new(own).arg("--version").output().is_ok();
    if installed { own } else { "mpiexec" }.to_owned()
}

/// Lets root run more ranks than there are cores, and ranks that wait give their core to others.
fn environment(link: Link) -> Vec<(&'static str, &'static str)> {
    let links = match link {
        Link::SharedMemory => "vader,self",
        Link::Loopback => "tcp,self",
    };
    vec![
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_btl", links),
        ("OMPI_MCA_btl_tcp_if_include", "lo"),
        ("OMPI_MCA_oob_tcp_if_include", "lo"),
        ("RUST_BACKTRACE", "0"),
    ]
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, pid: u32) -> Result<(), String> {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("kill -{name} {pid}: {other:?}")),
    }
}

/// Does a process run? One that is dead and only waits to be counted does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !stat.is_empty() && !state.starts_with('Z') && !state.starts_with('X')
}
