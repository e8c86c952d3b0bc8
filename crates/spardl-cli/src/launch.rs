//! Who started this process, as the environment tells, and what moves the rounds.

use std::env;
use std::time::Duration;

use crate::job::{Job, agree, identity};
use crate::output::{AlreadyReported, bad_request};

/// What moves the rounds between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransportChoice {
    /// MPI when mpiexec or srun started this process, threads otherwise.
    Auto,
    /// Workers as threads of this process.
    Threads,
    /// Workers as ranks of an MPI job: mpiexec -n 4 spardl bench ..
    Mpi,
}

/// The seconds of --deadline.
pub(crate) fn deadline(seconds: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(bad_request(format!(
            "--deadline {seconds:?} is not a number of seconds above zero and below 1e19"
        ))),
    }
}

/// What started the ranks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    /// The number of ranks, where the environment has it.
    pub(crate) size: Option<u32>,
    /// The rank of this process.
    pub(crate) rank: Option<u32>,
    /// The variable that gave it away, as `NAME=VALUE`.
    pub(crate) evidence: String,
}

/// Variables of a launcher: those with the size, the first that is set counts; and the one with the rank.
struct Family {
    name: &'static str,
    sizes: &'static [&'static str],
    rank: &'static str,
}

/// The specific ones first: mpiexec inside a Slurm job has Slurm's variables too, and those count its daemons.
const FAMILIES: [Family; 4] = [
    Family {
        name: "mpiexec of Open MPI",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        rank: "OMPI_COMM_WORLD_RANK",
    },
    Family {
        name: "mpiexec (PMI)",
        sizes: &["PMI_SIZE"],
        rank: "PMI_RANK",
    },
    Family {
        name: "srun",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        rank: "SLURM_PROCID",
    },
    Family {
        name: "a launcher with PMIx",
        sizes: &[],
        rank: "PMIX_RANK",
    },
];

/// Slurm numbers its batch scripts and other steps without ranks from here.
const SLURM_SPECIAL_STEPS: u32 = 0xffff_fff0;

/// How to get a binary that can.
const BUILD: &str = "cargo build --release -p spardl-cli --features mpi";

impl Launcher {
    /// What the environment of this process says; `None`: it was started by hand.
    pub(crate) fn detect() -> Option<Self> {
        Self::among(|name| env::var(name).ok())
    }

    fn among(value: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| value(name)?.trim().parse::<u32>().ok();
        let step = number("SLURM_STEP_ID").filter(|step| *step < SLURM_SPECIAL_STEPS);
        for family in &FAMILIES {
            if family.name == "srun" && (step.is_none() || number(family.rank).is_none()) {
                continue;
            }
            let sizes = family.sizes.iter();
            let found = sizes.copied().find(|name| number(name).is_some());
            let first = if family.sizes.is_empty() {
                family.rank
            } else {
                family.sizes[0]
            };
            let name = found.unwrap_or(first);
            if number(name).is_none() {
                continue;
            }
            return Some(Self {
                name: family.name,
                size: found.and_then(number),
                rank: number(family.rank),
                evidence: format!("{name}={}", value(name).unwrap_or_default()),
            });
        }
        None
    }

    /// Is this a rank that leaves the words to rank 0?
    pub(crate) fn is_silent(&self) -> bool {
        self.rank.is_some_and(|rank| rank > 0)
    }

    fn words(&self) -> String {
        match self.size {
            Some(size) => format!("{} started {size} ranks ({})", self.name, self.evidence),
            None => format!("{} started this ({})", self.name, self.evidence),
        }
    }

    /// What is wrong when MPI sees another number of ranks than were started.
    pub(crate) fn mismatch(&self, ranks: u32, library: &str) -> Option<String> {
        let size = self.size.filter(|size| *size != ranks)?;
        let library = library.split([',', '\n']).next().unwrap_or(library).trim();
        Some(format!(
            "{} but MPI sees {ranks}: it is not the launcher of the MPI that spardl was built with ({library}); \
             start the {size} ranks with that one's mpiexec",
            self.words()
        ))
    }

    /// What is wrong when ranks were started of a binary that cannot talk to the others.
    pub(crate) fn no_mpi(&self) -> Option<String> {
        (self.size != Some(1)).then(|| {
            format!(
                "{} but this spardl was built without MPI: build it with '{BUILD}', or run it without a launcher \
                 for workers as threads",
                self.words()
            )
        })
    }
}

/// A request for a Slurm job whose ranks nobody started: the batch script runs once.
pub(crate) fn forgotten_srun() -> Option<String> {
    forgotten_among(|name| env::var(name).ok())
}

fn forgotten_among(value: impl Fn(&str) -> Option<String>) -> Option<String> {
    if Launcher::among(&value).is_some() {
        return None;
    }
    let job = value("SLURM_JOB_ID")?;
    let tasks = value("SLURM_NTASKS").filter(|tasks| tasks != "1")?;
    Some(format!(
        "Slurm job {job} has {tasks} tasks but this process was started without srun: use 'srun spardl ..'"
    ))
}

/// Is this process a rank that leaves the words to rank 0?
pub(crate) fn is_silent() -> bool {
    Launcher::detect().is_some_and(|launcher| launcher.is_silent())
}

/// Joins the MPI job when that is asked for, and sees that all ranks run the same command of the same build; `None`: workers are
/// threads. From the start of MPI on, ranks wait no longer than `patience` for each other.
pub(crate) fn connect(
    choice: TransportChoice,
    command: &str,
    patience: Duration,
) -> anyhow::Result<Option<Job>> {
    let launcher = Launcher::detect();
    let refuse = |message: String| match &launcher {
        Some(launcher) if launcher.is_silent() => AlreadyReported(2).into(),
        _ => bad_request(message),
    };
    let wanted = match choice {
        TransportChoice::Threads => false,
        TransportChoice::Mpi => true,
        TransportChoice::Auto => launcher.is_some(),
    };
    if !wanted {
        return Ok(None);
    }
    let Some(library) = Job::library() else {
        if let Some(message) = launcher.as_ref().and_then(Launcher::no_mpi) {
            return Err(refuse(message));
        }
        if choice == TransportChoice::Auto {
            return Ok(None);
        }
        let message = format!("this spardl was built without MPI: build it with '{BUILD}'");
        return Err(refuse(message));
    };
    let mut job = Job::join(patience)?;
    let ranks = job.world().size();
    match launcher.as_ref().and_then(|l| l.mismatch(ranks, &library)) {
        Some(message) => return Err(refuse(message)),
        None => {
            let same = agree(&mut job, Ok(identity(command)));
            job.conclude(same)?;
        }
    }
    Ok(Some(job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| {
            let found = variables.iter().find(|variable| variable.0 == name);
            found.map(|variable| variable.1.to_owned())
        }
    }

    fn size(variables: &'static [(&str, &str)]) -> Option<Option<u32>> {
        Launcher::among(environment(variables)).map(|launcher| launcher.size)
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        assert_eq!(size(&[("PATH", "/bin")]), None);
        assert_eq!(size(&[("OMPI_COMM_WORLD_SIZE", "4")]), Some(Some(4)));
        assert_eq!(size(&[("PMI_SIZE", "3"), ("PMI_RANK", "0")]), Some(Some(3)));
        assert_eq!(size(&[("PMIX_RANK", "1")]), Some(None));
        let step = &[
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(size(step), Some(Some(8)));
        // mpiexec inside a Slurm job: Slurm counts its daemons, one per node.
        let both = &[
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("PMI_SIZE", "16"),
        ];
        assert_eq!(size(both), Some(Some(16)));
    }

    #[test]
    fn a_batch_script_is_not_a_rank_and_lacks_srun() {
        let script = &[
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "4294967291"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(size(script), None);
        let warning = forgotten_among(environment(script)).expect("a warning");
        assert!(
            warning.contains("77") && warning.contains("srun"),
            "{warning}"
        );
        assert_eq!(forgotten_among(environment(&[("SLURM_JOB_ID", "1")])), None);
    }

    #[test]
    fn another_number_of_ranks_is_a_mismatch() {
        let launcher = Launcher::among(environment(&[("PMI_SIZE", "4")])).expect("a launcher");
        assert_eq!(launcher.mismatch(4, "Open MPI v4.1.4"), None);
        let words = launcher
            .mismatch(1, "Open MPI v4.1.4, package")
            .expect("words");
        assert!(
            words.contains("started 4 ranks (PMI_SIZE=4) but MPI sees 1"),
            "{words}"
        );
        assert!(words.contains("(Open MPI v4.1.4)"), "{words}");
    }
}
