//! Every method over MPI has the bits it has in the simulator.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Collective, Input, Layout, Payload, Rank, Round};
use spardl_drive::{BucketId, Deadline, Driver, Transport};
use spardl_mpi::{Mpi, MpiTransport};
use spardl_sim::Cluster;
use spardl_testkit::check::{bits, dense};
use spardl_testkit::{configurations, generate};

use crate::launch::{Job, Link, is_open_mpi};

const LIMIT: Duration = Duration::from_secs(60);
const GATHER: BucketId = BucketId::new(9);

pub(crate) fn jobs() -> Vec<Job> {
    let job = |ranks, role, link| {
        Job::ranks(
            format!("{role}, {ranks} ranks, {link:?}"),
            ranks,
            role,
            link,
        )
    };
    let mut jobs: Vec<Job> = [1, 2, 3, 4, 6, 8]
        .map(|ranks| job(ranks, "bits", Link::SharedMemory))
        .into();
    jobs.extend([2, 4, 8].map(|ranks| job(ranks, "large", Link::SharedMemory)));
    if is_open_mpi() {
        jobs.push(job(4, "large", Link::Loopback));
    }
    jobs
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// All configurations of all methods.
    Small,
    /// Messages of many megabytes, which MPI sends only when the receiver asks for them.
    Large,
}

impl Size {
    const fn buckets(self) -> [usize; 3] {
        match self {
            Self::Small => [211, 0, 64],
            Self::Large => [2_000_000, 0, 300_000],
        }
    }

    const fn steps(self) -> u64 {
        match self {
            Self::Small => 3,
            Self::Large => 2,
        }
    }

    const fn k(self) -> usize {
        match self {
            Self::Small => 20,
            Self::Large => 20_000,
        }
    }

    fn algorithms(self, workers: u32) -> Vec<Box<dyn Algorithm>> {
        match self {
            Self::Small if workers <= 4 => configurations::every(workers),
            // More ranks than cores wait for each other: half of the configurations are enough.
            Self::Small => configurations::all(workers),
            Self::Large => [
                "dense",
                "dense-ring",
                "dense-rabenseifner",
                "topk-a",
                "spardl",
            ]
            .map(|name| registry::build(name, &Options::default()).unwrap())
            .into(),
        }
    }

    fn gradient(self, rank: u32, bucket: usize, step: u64) -> Vec<f32> {
        let seed = (step * 10 + bucket as u64) * 100 + u64::from(rank);
        generate::fractions(seed, 1, self.buckets()[bucket]).swap_remove(0)
    }

    fn layouts(self) -> [Layout; 3] {
        let [tensors, empty, flat] = self.buckets();
        let [empty, flat] = [empty, flat].map(|len| Layout::flat(len as u32));
        [generate::layered(tensors), empty, flat]
    }
}

pub(crate) fn rank(size: Size) {
    let mpi = Mpi::init().unwrap();
    let mut transport = mpi.transport().unwrap();
    let world = transport.world();
    let algorithms = size.algorithms(world.size());
    let mut seen = Vec::new();
    for algorithm in &algorithms {
        let hash;
        (transport, hash) = over_mpi(transport, &**algorithm, size);
        seen.push(hash);
    }
    let Some(all) = gather(&mut transport, &seen) else {
        return;
    };
    for (i, algorithm) in algorithms.iter().enumerate() {
        let expected = simulated(&**algorithm, world.size(), size);
        let got: Vec<u64> = all.iter().map(|hashes| hashes[i]).collect();
        assert_eq!(
            got,
            expected,
            "{} differs from the simulator",
            algorithm.describe()
        );
    }
    println!("{} configurations agree", algorithms.len());
}

/// A hash of all that this rank saw: update and residual after every step of every bucket.
fn over_mpi(transport: MpiTransport, algorithm: &dyn Algorithm, size: Size) -> (MpiTransport, u64) {
    let world = transport.world();
    let driver = Driver::for_layouts(transport, algorithm, &size.layouts()).unwrap();
    let mut driver = driver.with_timeout(LIMIT);
    let mut hash = DefaultHasher::new();
    for step in 0..size.steps() {
        let mine = [0, 1, 2].map(|bucket| size.gradient(world.rank().get(), bucket, step));
        let k = size.k();
        let inputs = mine
            .each_ref()
            .map(|gradient| Input::new(gradient, k, step));
        let reduced = driver.all_reduce(&inputs);
        reduced.unwrap_or_else(|error| panic!("{}: {error}", algorithm.describe()));
        for collective in driver.collectives() {
            add(&mut hash, collective);
        }
    }
    (driver.into_parts().0, hash.finish())
}

/// The same of all workers.
fn simulated(algorithm: &dyn Algorithm, workers: u32, size: Size) -> Vec<u64> {
    let mut clusters = size
        .layouts()
        .map(|layout| Cluster::new(algorithm, workers, &layout).unwrap());
    let mut hashes = vec![DefaultHasher::new(); workers as usize];
    for step in 0..size.steps() {
        for (bucket, cluster) in clusters.iter_mut().enumerate() {
            let gradients = (0..workers).map(|rank| size.gradient(rank, bucket, step));
            let gradients: Vec<_> = gradients.collect();
            cluster.step(&gradients, size.k(), step).unwrap();
            cluster.commit().unwrap();
            for (hash, worker) in hashes.iter_mut().zip(cluster.workers()) {
                add(hash, worker);
            }
        }
    }
    hashes.iter().map(Hasher::finish).collect()
}

fn add(hash: &mut DefaultHasher, collective: &Collective) {
    bits(&dense(collective.update(), collective.len())).hash(hash);
    bits(collective.residual()).hash(hash);
}

/// The hashes of all ranks, on rank 0.
fn gather(transport: &mut MpiTransport, hashes: &[u64]) -> Option<Vec<Vec<u64>>> {
    let world = transport.world();
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let len = bytes.len();
    let is_root = world.rank().get() == 0;
    let round = if is_root {
        (1..world.size()).fold(Round::new(), |round, from| {
            round.expect(Rank::new(from), len)
        })
    } else {
        Round::new().send(Rank::new(0), Payload::from_wire(bytes))
    };
    transport.submit(GATHER, round).unwrap();
    let deadline = Deadline::after(transport.clock().now(), LIMIT);
    let complete = transport.wait_any(deadline).unwrap();
    let (_, inbox) = complete.expect("a round is in flight");
    let read = |message: &[u8]| {
        let chunks = message.as_chunks().0.iter();
        chunks.map(|chunk| u64::from_le_bytes(*chunk)).collect()
    };
    let others = inbox.messages().map(read);
    is_root.then(|| std::iter::once(hashes.to_vec()).chain(others).collect())
}
