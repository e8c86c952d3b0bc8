//! `spardl doctor`: what is here, how fast the links are, and what looks wrong.

mod crowd;
mod links;
pub(crate) mod machine;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spardl_kernels::Level;

use crate::job::{Job, agree, command};
use crate::launch::{Launcher, forgotten_srun};
use crate::output::{print, tell};
use crowd::Crowd;
use links::{Link, Together};

/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to look.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  spardl doctor\n  mpiexec -n 4 spardl doctor   # measures the links between all pairs of ranks too"
)]
pub(crate) struct Args {
    /// How to print: lines for people, or one JSON object.
    #[arg(long, default_value = "text")]
    format: Format,
    /// Measure the links between neighbours only: all pairs of ranks take long on slow networks.
    #[arg(long)]
    ring: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
struct Findings {
    version: &'static str,
    /// The name of the launcher and the variable it was known by; null: started by hand.
    launcher: Option<String>,
    launcher_variable: Option<String>,
    launcher_ranks: Option<u32>,
    /// Name and version; null: built without MPI.
    mpi_library: Option<String>,
    /// What MPI says; null: MPI was not started.
    mpi_ranks: Option<u32>,
    /// The machines of the ranks.
    hosts: Vec<Host>,
    /// The name of this machine.
    host: Option<String>,
    /// Cores of this machine.
    cores: usize,
    /// The instruction set that the kernels use here.
    simd: &'static str,
    links: Vec<Link>,
    /// What messages take while all ranks send.
    together: Option<Together>,
    /// Where a machine has more ranks than cores: what they take from each other.
    crowd: Option<Crowd>,
    warnings: Vec<String>,
}

/// A machine and the ranks on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Host {
    name: String,
    ranks: Vec<usize>,
    cores: usize,
    simd: String,
}

/// What a rank tells the others about its machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Seat {
    version: String,
    host: String,
    cores: usize,
    simd: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let launcher = Launcher::detect();
    // Nobody to talk to without a launcher: MPI need not start for that.
    let mut job = match (&launcher, Job::library()) {
        (Some(_), Some(_)) => Some(Job::join(PATIENCE)?),
        _ => None,
    };
    let result = examine(args, launcher.as_ref(), job.as_mut()).and_then(|findings| {
        // Ranks that do not know of each other go by what the launcher says.
        let connected = job.as_ref().filter(|job| job.world().size() > 1);
        let prints = connected.map_or_else(
            || !launcher.as_ref().is_some_and(Launcher::is_silent),
            Job::prints,
        );
        match args.format {
            _ if !prints => Ok(()),
            Format::Text => tell(&text::describe(&findings)),
            Format::Json => print(&(serde_json::to_string(&findings)? + "\n")),
        }
    });
    match &job {
        Some(job) => job.conclude(result),
        None => result,
    }
}

fn examine(
    args: &Args,
    launcher: Option<&Launcher>,
    job: Option<&mut Job>,
) -> anyhow::Result<Findings> {
    let cores = machine::cores();
    let simd = Level::best().name();
    let library = Job::library();
    let ranks = job.as_ref().map(|job| job.world().size());
    let mut warnings: Vec<String> = forgotten_srun().into_iter().collect();
    if let Some(launcher) = launcher {
        warnings.extend(match (&library, ranks) {
            (Some(library), Some(ranks)) => launcher.mismatch(ranks, library),
            _ => launcher.no_mpi(),
        });
    }
    let (mut hosts, mut links, mut together, mut crowd) = (Vec::new(), Vec::new(), None, None);
    if let Some(job) = job {
        // Not the build: whether that differs is a finding.
        agree(job, Ok(command("doctor")))?;
        let seat = Seat {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: job.host(),
            cores,
            simd: simd.to_owned(),
        };
        let all = job.gather(&serde_json::to_vec(&seat)?)?;
        let seats = all
            .iter()
            .map(|seat| serde_json::from_slice(seat))
            .collect::<Result<Vec<Seat>, _>>()?;
        hosts = group(&seats);
        warnings.extend(seat_warnings(&seats, &hosts));
        links = links::measure(job, args.ring)?;
        together = links::together(job)?;
        crowd = crowd::measure(job, cores)?;
    }
    Ok(Findings {
        version: env!("CARGO_PKG_VERSION"),
        launcher: launcher.map(|launcher| launcher.name.to_owned()),
        launcher_variable: launcher.map(|launcher| launcher.evidence.clone()),
        launcher_ranks: launcher.and_then(|launcher| launcher.size),
        mpi_library: library.map(|library| library.trim().to_owned()),
        mpi_ranks: ranks,
        hosts,
        host: machine::name(),
        cores,
        simd,
        links,
        together,
        crowd,
        warnings,
    })
}

/// The machines in the order of their names.
fn group(seats: &[Seat]) -> Vec<Host> {
    let mut hosts: BTreeMap<&str, Host> = BTreeMap::new();
    for (rank, seat) in seats.iter().enumerate() {
        let host = hosts.entry(&seat.host).or_insert_with(|| Host {
            name: seat.host.clone(),
            ranks: Vec::new(),
            cores: 0,
            simd: seat.simd.clone(),
        });
        host.ranks.push(rank);
        // Where the system does not tell, ranks that are bound to cores see only theirs: at least as many as the luckiest sees.
        host.cores = host.cores.max(seat.cores);
    }
    hosts.into_values().collect()
}

fn seat_warnings(seats: &[Seat], hosts: &[Host]) -> Vec<String> {
    let mut warnings = Vec::new();
    let first = &seats[0].version;
    if let Some(rank) = seats.iter().position(|seat| seat.version != *first) {
        let version = &seats[rank].version;
        warnings.push(format!(
            "rank {rank} runs spardl {version}, rank 0 runs {first}"
        ));
    }
    for host in hosts.iter().filter(|host| host.ranks.len() > host.cores) {
        warnings.push(format!(
            "{} ranks share {} cores of {}: times say little; with Open MPI at least use --mca mpi_yield_when_idle 1",
            host.ranks.len(),
            host.cores,
            host.name
        ));
    }
    if let Some(slow) = hosts.iter().find(|host| host.simd != hosts[0].simd) {
        warnings.push(format!(
            "{} has {}, {} has {}: the slowest rank sets the pace",
            slow.name, slow.simd, hosts[0].name, hosts[0].simd
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_grouped_by_host_and_too_many_of_them_are_a_warning() {
        let seat = |host: &str| Seat {
            version: "1".to_owned(),
            host: host.to_owned(),
            cores: 2,
            simd: "avx2".to_owned(),
        };
        let seats = ["b", "a", "b", "b"].map(seat);
        let hosts = group(&seats);
        assert_eq!(hosts[0].ranks, [1]);
        assert_eq!(hosts[1].ranks, [0, 2, 3]);
        let warnings = seat_warnings(&seats, &hosts);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("3 ranks share 2 cores of b"));
    }
}
