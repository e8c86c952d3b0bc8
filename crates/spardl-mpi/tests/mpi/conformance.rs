//! The suite that every transport must pass, one rank of it.

use spardl_drive::Transport;
use spardl_drive::conformance::SCENARIOS;
use spardl_mpi::Mpi;

use crate::launch::{Job, Link, is_open_mpi};

pub(crate) fn jobs() -> Vec<Job> {
    let job = |ranks, link| {
        let name = format!("conformance, {ranks} ranks, {link:?}");
        Job::ranks(name, ranks, "conformance", link)
    };
    let mut jobs: Vec<Job> = [1, 2, 3, 4, 6, 8]
        .map(|ranks| job(ranks, Link::SharedMemory))
        .into();
    if is_open_mpi() {
        jobs.push(job(4, Link::Loopback));
    }
    jobs
}

pub(crate) fn rank() {
    let mpi = Mpi::init().unwrap();
    for scenario in SCENARIOS {
        let transport = mpi.transport().unwrap();
        let world = transport.world();
        // A world of one has nobody to leave it or to miss.
        if world.size() == 1 && (scenario.leaves || scenario.name.contains("never_answers")) {
            continue;
        }
        if world.rank().get() == 0 {
            println!("{}", scenario.name);
        }
        (scenario.run)(Box::new(transport));
    }
}
