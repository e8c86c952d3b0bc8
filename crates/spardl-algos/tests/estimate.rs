//! What a method estimates is what a step takes on the simulated network.

use std::fmt;
use std::io::Write;

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Estimate, IndexCoding, Layout, Rank, ValueType};
use spardl_sim::{Cluster, ClusterReport, Fabric, Line, Sharing, Spent, Topology};
use spardl_testkit::{configurations, generate};

const LINE: Line = Line {
    latency: 10_000,
    bandwidth: 1_000_000_000,
};

/// Configurations whose steps are not those that estimates are made for. Ok-Topk looks for thresholds again or balances in every
/// second or third step; a threshold that moves slowly from where it is set, or that counts what a fallback selected, does not
/// select `k` entries; five blocks are no even parts for most numbers of workers.
fn is_unusual(algorithm: &dyn Algorithm) -> bool {
    let text = algorithm.describe();
    let unusual = [
        "balance-trigger=1.1",
        "start=published",
        "fallback=counted",
        "blocks=5 ",
    ];
    unusual.iter().any(|part| text.contains(part))
}

/// Methods that keep what the others do not have: where workers have nothing in common, more and more stays behind and is
/// selected later. They do what their estimate says when the workers agree.
fn needs_agreement(algorithm: &dyn Algorithm) -> bool {
    ["ok-topk", "exdyna", "micro", "deft"].contains(&algorithm.name())
}

/// What a step took, and what the estimate says of it: rounds and nanoseconds.
struct Checked {
    simulated: (u32, u64),
    estimated: (u32, u64),
}

impl Checked {
    fn new(algorithm: &dyn Algorithm, workers: u32, len: usize, k: usize) -> Self {
        let layout = Layout::flat(len as u32);
        let fabric = Fabric::new(Topology::Flat, workers, LINE).unwrap();
        let mut cluster = Cluster::new(algorithm, workers, &layout)
            .unwrap()
            .with_fabric(fabric, Sharing::None);
        let shared = needs_agreement(algorithm);
        // Lists of B-SAG look for their length; methods without such a memory have settled at once.
        let adapts = algorithm.describe().contains("sag=b");
        let has_threshold = algorithm.loose_bound().is_some() || shared;
        let steps = match (adapts, has_threshold) {
            (true, _) => 24,
            (false, true) => 8,
            (false, false) => 2,
        };
        let mut report = ClusterReport::default();
        for step in 0..steps {
            let gradient = |rank: Rank, _, out: &mut [f32]| {
                let (seed, rank) = if shared { (0, 0) } else { (step, rank.get()) };
                generate::spikes(seed, (rank, workers), k, out);
                k
            };
            report = cluster.step_made(step, gradient).unwrap();
            cluster.commit().unwrap();
        }
        let estimate = algorithm.estimate(workers, &layout, k, steps - 1);
        let nanos = u64::from(estimate.rounds) * LINE.latency + LINE.transfer(estimate.bytes);
        let latency = report.timing.path.unwrap().spent(Spent::Latency);
        Self {
            simulated: ((latency / LINE.latency) as u32, report.timing.step()),
            estimated: (estimate.rounds, nanos),
        }
    }

    fn off(&self) -> f64 {
        self.estimated.1 as f64 / self.simulated.1 as f64 - 1.0
    }

    /// What is wrong: rounds that are not equal, a time that is off by more than one percent.
    fn complaint(&self, algorithm: &dyn Algorithm, workers: u32) -> Option<String> {
        let is_right = self.simulated.0 == self.estimated.0 && self.off().abs() <= 0.01;
        (!is_right).then(|| {
            let (name, rounds) = (algorithm.describe(), self.estimated.0);
            format!("{name} P={workers}: {rounds} rounds estimated, simulated: {self}")
        })
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((rounds, nanos), (_, estimated)) = (self.simulated, self.estimated);
        write!(
            f,
            "{rounds} | {nanos} | {estimated} | {:+.2} %",
            100.0 * self.off()
        )
    }
}

/// One residual rule is enough: they differ in what stays at home.
fn configurations_of(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut all = configurations::all_raw(workers);
    all.retain(|algorithm| {
        let text = algorithm.describe();
        let is_first_rule = algorithm.name() != "spardl"
            || ["auto", "global-a"]
                .iter()
                .any(|rule| text.contains(&format!("residual={rule} ")));
        is_first_rule && !is_unusual(&**algorithm)
    });
    all
}

#[test]
fn the_estimate_has_the_rounds_of_the_simulated_step_and_its_time_within_one_percent() {
    let (mut checked, mut exact, mut wrong) = (0, 0, Vec::new());
    for workers in [2, 3, 4, 5, 6, 8, 12, 16, 32] {
        // Long lists: those of B-SAG are one entry longer in every second step.
        let each = if workers < 16 { 256 } else { 128 };
        for algorithm in configurations_of(workers) {
            let (len, k) = (workers as usize * each * 8, workers as usize * each);
            let checked_one = Checked::new(&*algorithm, workers, len, k);
            wrong.extend(checked_one.complaint(&*algorithm, workers));
            exact += u32::from(checked_one.off() == 0.0);
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 200, "only {checked} configurations");
    assert!(exact > checked / 2, "only {exact} of {checked} are exact");
}

/// Set to print what is checked, and to check up to the limits of patience instead of those of a test: a table for the docs.
const FULL_CHECK: &str = "SPARDL_FULL_CHECK";

/// Checks every method that sends no more messages and bytes than there is time for: what needs a round per worker, or sends
/// everybody's list to everybody, takes too long with thousands of workers.
fn check_all(workers: u32) {
    let is_full = std::env::var_os(FULL_CHECK).is_some();
    let (most_messages, most_bytes) = if is_full {
        (40_000_000, 20_000_000_000)
    } else {
        (100_000, 50_000_000)
    };
    let (len, k) = (workers as usize * 4, workers as usize);
    let layout = Layout::flat(len as u32);
    let mut wrong = Vec::new();
    for entry in registry::METHODS {
        let mut options = Options::default();
        options.codec.indices = IndexCoding::Raw;
        let algorithm = entry.build(&options).unwrap();
        let estimate = algorithm.estimate(workers, &layout, k, 1);
        let messages = u64::from(estimate.rounds) * u64::from(workers);
        let bytes = estimate.bytes * u64::from(workers);
        if messages > most_messages || bytes > most_bytes || is_unusual(&*algorithm) {
            continue;
        }
        let checked = Checked::new(&*algorithm, workers, len, k);
        if is_full {
            let line = format!("| {} | {workers} | {checked} |\n", entry.name);
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
        wrong.extend(checked.complaint(&*algorithm, workers));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_estimate_holds_for_256_workers() {
    check_all(256);
}

#[test]
fn the_estimate_holds_for_1024_workers() {
    check_all(1024);
}

#[test]
fn the_estimate_holds_for_4096_workers() {
    check_all(4096);
}

#[test]
fn an_estimate_for_a_hundred_thousand_workers_is_below_the_bound_and_takes_no_time() {
    let layout = Layout::flat(110_000_000);
    for entry in registry::METHODS {
        for indices in [IndexCoding::Raw, IndexCoding::Packed] {
            let mut options = Options::default();
            options.codec.indices = indices;
            let algorithm = entry.build(&options).unwrap();
            let (workers, k) = (100_000, 1_100_000);
            let estimate = algorithm.estimate(workers, &layout, k, 0);
            let cost = algorithm.cost(workers, &layout, k, 0);
            assert!(estimate.rounds <= *cost.rounds.end(), "{}", entry.name);
            // The longest chain of a tree has twice what its busiest worker sends.
            let most = 2 * cost.bytes_max;
            assert!(
                estimate.bytes <= most,
                "{}: {estimate:?} {cost:?}",
                entry.name
            );
        }
    }
}

/// What the estimate of a step says, as a multiple of what it took on gradients with a heavy tail, on which the length of a code
/// of few bits depends.
fn estimated_over_simulated(algorithm: &dyn Algorithm, workers: u32) -> f64 {
    const LEN: usize = 1 << 17;
    let (layout, k, steps) = (Layout::flat(LEN as u32), LEN / 100, 4);
    let fabric = Fabric::new(Topology::Flat, workers, LINE).unwrap();
    let mut cluster = Cluster::new(algorithm, workers, &layout)
        .unwrap()
        .with_fabric(fabric, Sharing::None);
    let mut report = ClusterReport::default();
    for step in 0..steps {
        let all = generate::fractions(step, workers, LEN);
        let gradient = |rank: Rank, _, out: &mut [f32]| {
            out.copy_from_slice(&all[rank.index()]);
            k
        };
        report = cluster.step_made(step, gradient).unwrap();
        cluster.commit().unwrap();
    }
    let Estimate { rounds, bytes } = algorithm.estimate(workers, &layout, k, steps - 1);
    let nanos = u64::from(rounds) * LINE.latency + LINE.transfer(bytes);
    nanos as f64 / report.timing.step() as f64
}

#[test]
fn estimates_with_values_of_few_bits_are_near_what_is_sent() {
    let (workers, mut checked, mut wrong) = (4, 0, Vec::new());
    for entry in registry::METHODS {
        let off = |values| {
            let mut options = Options::default();
            options.codec.values = values;
            let algorithm = entry.build(&options).ok()?;
            Some(estimated_over_simulated(&*algorithm, workers))
        };
        // Thresholds that do not select k entries of such gradients say nothing about values.
        if off(ValueType::F32).is_none_or(|off| (off - 1.0).abs() > 0.02) {
            continue;
        }
        for values in ValueType::ALL {
            // How many chunks need a wider code than one or two bits depends on the gradient.
            let near = match values {
                ValueType::F32 | ValueType::Bf16 => 0.02,
                ValueType::Q8 | ValueType::Q4 => 0.08,
                _ => 0.2,
            };
            let Some(off) = off(values) else { continue };
            checked += 1;
            if (off - 1.0).abs() > near {
                wrong.push(format!("{} {values}: {off:.3}", entry.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 60, "only {checked} were checked");
}
