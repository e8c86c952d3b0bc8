//! `spardl advise`: what to use on a network, in plain words.

pub(crate) mod candidates;

use spardl::tune::{Kind, Space};
use spardl_core::{Density, Gamma, Line, Model, offer};

use crate::local_work::LocalWorkArgs;
use crate::output::{bad_request, tell};
use crate::screen::grouped;
use crate::simulate::units::{bits, nanos, show_bytes, show_rate, show_time};
use crate::simulate::{buckets, table};
use candidates::Candidate;

/// What the advice is for.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The number of workers.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    workers: u32,
    /// A model by name, for its size: see below.
    #[arg(long, value_name = "NAME", value_parser = model_size, required_unless_present = "parameters")]
    model: Option<u32>,
    /// The number of parameters.
    #[arg(
        long,
        visible_alias = "elements",
        value_name = "N",
        conflicts_with = "model"
    )]
    parameters: Option<u32>,
    /// What a worker can send per second.
    #[arg(long, default_value = "1gbit", value_name = "RATE", value_parser = bits)]
    bandwidth: u64,
    /// Time that a message takes however short it is.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = nanos)]
    latency: u64,
    #[command(flatten)]
    local_work: LocalWorkArgs,
    /// Time of the forward pass.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = nanos)]
    forward: u64,
    /// Time of the backward pass.
    #[arg(long, default_value = "0ns", value_name = "TIME", value_parser = nanos)]
    backward: u64,
    /// Buckets that begin while the backward pass goes on; 1: the exchange begins after it.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    buckets: u32,
    /// The part of the entries that a sparse update should have.
    #[arg(long, default_value_t = 0.01, value_name = "D")]
    density: f64,
    /// Print this many rows of the table behind the words.
    #[arg(long, default_value_t = 6, value_name = "N")]
    rows: usize,
}

const EXAMPLES: &str = "\
Models: lenet 62K, resnet18 11.7M, vgg16-cifar 14.7M, resnet50 25.6M, bert-base 110M, gpt2 124M, vgg16 138M, bert-large 340M,
gpt2-xl 1.5B.

Examples:
  spardl advise --model resnet50 --workers 16 --bandwidth 10gbit --backward 120ms
  spardl tune --local --save gamma.json    # what local work costs on this machine, then
  spardl advise --model bert-base --workers 8 --bandwidth 25gbit --measured gamma.json
  spardl advise --parameters 7000000 --workers 64 --bandwidth 100mbit --latency 1ms";

/// Parameters of well-known models.
const MODELS: [(&str, u32); 9] = [
    ("lenet", 61_706),
    ("resnet18", 11_689_512),
    ("vgg16-cifar", 14_728_266),
    ("resnet50", 25_557_032),
    ("bert-base", 109_482_240),
    ("gpt2", 124_439_808),
    ("vgg16", 138_357_544),
    ("bert-large", 335_141_888),
    ("gpt2-xl", 1_557_611_200),
];

fn model_size(name: &str) -> Result<u32, String> {
    let found = MODELS.iter().find(|(known, _)| *known == name);
    found.map(|(_, size)| *size).ok_or_else(|| {
        let names: Vec<&str> = MODELS.iter().map(|(name, _)| *name).collect();
        let offer = offer(name, &names);
        format!("'{name}' is not a model I know: {offer}; or give --parameters")
    })
}

/// Rates between which the answer is looked for, in bits per second.
const RATES: (f64, f64) = (1e6, 1e13);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let density = Density::new(args.density).map_err(bad_request)?;
    let elements = args.model.or(args.parameters).unwrap_or(0);
    let layouts = buckets(elements, args.buckets)?;
    let choices = Space::default().choices(args.workers)?;
    let all = candidates::all(
        choices,
        args.workers,
        (&layouts, density),
        &args.local_work.gammas()?,
    );
    tell(&advice(args, elements, &all))
}

fn advice(args: &Args, elements: u32, all: &[Candidate]) -> String {
    let at = |bandwidth: u64| model(args, bandwidth);
    let here = at(args.bandwidth);
    let (dense, sparse) = (
        best(all, &here, Kind::Dense),
        best(all, &here, Kind::Sparse),
    );
    let plain = all.iter().find(|candidate| candidate.name() == "dense");
    let (Some(dense), Some(sparse), Some(plain)) = (dense, sparse, plain) else {
        return "There is nothing to exchange.\n".to_owned();
    };
    let time = |candidate: &Candidate| candidate.step(&here);
    let winner = if time(sparse) < time(dense) {
        sparse
    } else {
        dense
    };
    let mut text = format!(
        "{} parameters ({} as f32), {} workers, {} and {} a message, {} of computing per step.\n\n",
        grouped(elements.into()),
        show_bytes(4.0 * f64::from(elements)),
        args.workers,
        show_rate(args.bandwidth as f64),
        show_time(args.latency as f64),
        show_time((args.forward + args.backward) as f64),
    );
    text += &format!("Use {}.\n", winner.in_words(args.density));
    text += &format!(
        "A step then takes {}; with dense f32 it takes {}.\n",
        show_time(time(winner) as f64),
        show_time(time(plain) as f64)
    );
    text += &verdict(time(winner), time(dense), time(plain), winner.kind());
    text += &flip(args, all, winner.kind());
    text += "Dense is exact. A sparse update brings the same mass later: check the accuracy with `spardl compare`.\n\n";
    text + &rows(args, all, &here)
}

/// Every candidate has a gamma of its own.
fn model(args: &Args, bandwidth: u64) -> Model {
    let latency = args.latency;
    Model {
        forward: args.forward,
        backward: args.backward,
        ..Model::of_exchange(Line { latency, bandwidth }, Gamma::default())
    }
}

fn best<'a>(all: &'a [Candidate], model: &Model, kind: Kind) -> Option<&'a Candidate> {
    let of_kind = all.iter().filter(|candidate| candidate.kind() == kind);
    of_kind.min_by_key(|candidate| candidate.step(model))
}

/// How much it brings.
fn verdict(winner: u64, dense: u64, plain: u64, kind: Kind) -> String {
    let times = |slow: u64| slow as f64 / winner.max(1) as f64;
    match kind {
        Kind::Dense => {
            "Nothing sparse is faster here: the network is not what a step waits for.\n".to_owned()
        }
        Kind::Sparse => format!(
            "That is {:.1} times as fast as dense f32, and {:.1} times as fast as the best dense exchange.\n",
            times(plain),
            times(dense)
        ),
    }
}

/// The rate at which the other kind wins.
fn flip(args: &Args, all: &[Candidate], kind: Kind) -> String {
    let sparse_wins = |bandwidth: f64| {
        let model = model(args, bandwidth as u64);
        let time = |kind| best(all, &model, kind).map_or(u64::MAX, |of| of.step(&model));
        time(Kind::Sparse) < time(Kind::Dense)
    };
    match crossing(sparse_wins, RATES) {
        None if kind == Kind::Sparse => {
            format!("Dense does not win up to {}.\n", show_rate(RATES.1))
        }
        None => format!("Nothing sparse wins down to {}.\n", show_rate(RATES.0)),
        Some(rate) => format!(
            "The answer flips at about {}: below it a sparse exchange is faster, above it a dense one.\n",
            show_rate(rate)
        ),
    }
}

/// Where `holds` stops to hold between two rates, if it holds at the lower and not at the upper one; to one percent.
fn crossing(holds: impl Fn(f64) -> bool, (mut low, mut high): (f64, f64)) -> Option<f64> {
    if !holds(low) || holds(high) {
        return None;
    }
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((low * high).sqrt())
}

fn rows(args: &Args, all: &[Candidate], model: &Model) -> String {
    let mut sorted: Vec<&Candidate> = all.iter().collect();
    sorted.sort_by_key(|candidate| candidate.step(model));
    let first = sorted.iter().take(args.rows);
    let dense = sorted
        .iter()
        .skip(args.rows)
        .filter(|of| of.name() == "dense");
    let names = [
        "choice", "step", "exchange", "latency", "transfer", "select", "merge", "bytes",
    ];
    let cells = first.chain(dense).map(|candidate| {
        let predicted = candidate.predict(model);
        let time = |nanos: u64| show_time(nanos as f64);
        vec![
            candidate.name(),
            time(predicted.step),
            time(predicted.exchange()),
            time(predicted.latency),
            time(predicted.transfer),
            time(predicted.select),
            time(predicted.merge),
            show_bytes(predicted.bytes as f64),
        ]
    });
    table::table(&names, cells)
}

#[cfg(test)]
mod tests {
    use spardl::tune::Gammas;

    use super::*;

    #[test]
    fn the_crossing_is_found_to_a_percent_or_not_at_all() {
        let found = crossing(|rate| rate < 3.3e9, RATES).unwrap();
        assert!((3.2e9..3.4e9).contains(&found), "{found}");
        assert_eq!(crossing(|_| true, RATES), None);
        assert_eq!(crossing(|_| false, RATES), None);
    }

    fn args(bandwidth: u64) -> Args {
        Args {
            workers: 16,
            model: Some(25_557_032),
            parameters: None,
            bandwidth,
            latency: 20_000,
            forward: 0,
            backward: 100_000_000,
            buckets: 1,
            density: 0.01,
            local_work: LocalWorkArgs::default(),
            rows: 3,
        }
    }

    #[test]
    fn slow_networks_are_told_to_be_sparse_and_fast_ones_to_be_dense() {
        let density = Density::new(0.01).unwrap();
        let layouts = buckets(25_557_032, 1).unwrap();
        // A machine on which long sums cost little.
        let gamma = |select, merge| Gamma { select, merge };
        let gammas = Gammas {
            dense: gamma(150, 100),
            ..Gammas::alike(gamma(600, 500))
        };
        let all = candidates::all(
            Space::default().choices(16).unwrap(),
            16,
            (&layouts, density),
            &gammas,
        );
        let slow = advice(&args(1_000_000_000), 25_557_032, &all);
        assert!(slow.contains("times as fast as dense f32"), "{slow}");
        assert!(slow.contains("The answer flips at about"), "{slow}");
        let fast = advice(&args(10_000_000_000_000), 25_557_032, &all);
        assert!(fast.contains("Nothing sparse is faster here"), "{fast}");
        assert!(fast.contains("Use the dense exchange"), "{fast}");
    }
}
