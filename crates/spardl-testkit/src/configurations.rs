//! Every method of the registry in every configuration that tests must cover.

use spardl_algos::{Options, Residual, Sag, registry};
use spardl_core::{Algorithm, IndexCoding, ValueType};

/// All configurations for `workers` workers, with their one-line descriptions as context for messages.
pub fn all(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut all = Vec::new();
    for entry in registry::METHODS {
        for values in [ValueType::F32, ValueType::Bf16] {
            for options in options_of(entry.name, workers) {
                let mut options = options;
                options.codec.values = values;
                all.push(
                    entry
                        .build(&options)
                        .expect("a listed configuration builds"),
                );
            }
        }
    }
    all
}

/// The same configurations with raw indices, for cost bounds.
pub fn all_raw(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut all = Vec::new();
    for entry in registry::METHODS {
        for mut options in options_of(entry.name, workers) {
            options.codec.indices = IndexCoding::Raw;
            all.push(
                entry
                    .build(&options)
                    .expect("a listed configuration builds"),
            );
        }
    }
    all
}

/// Does it send only what exceeds the k-th magnitude, as `TopkDSA` was published? When all are equal it sends nothing.
pub fn loses_kth(algorithm: &dyn Algorithm) -> bool {
    let text = algorithm.describe();
    text.starts_with("topk-dsa residual=published")
}

fn options_of(name: &str, workers: u32) -> Vec<Options> {
    if name != "spardl" {
        let mut all = vec![Options::default()];
        all.extend(variants_of(name).iter().map(|set| {
            let set = set
                .iter()
                .map(|(o, value)| ((*o).to_owned(), (*value).to_owned()));
            Options {
                set: set.collect(),
                ..Options::default()
            }
        }));
        return all;
    }
    let mut all = Vec::new();
    for teams in (1..=workers).filter(|&teams| workers.is_multiple_of(teams)) {
        for sag in [Sag::R, Sag::B] {
            let pointless = teams == 1 && sag == Sag::B;
            if pointless || (sag == Sag::R && !teams.is_power_of_two()) {
                continue;
            }
            for (_, residual) in Residual::ALL {
                all.push(Options {
                    teams,
                    sag,
                    residual,
                    ..Options::default()
                });
            }
        }
    }
    all
}

/// Options that make a method take another way, besides its defaults. They are combined: every option has another value in
/// one of them, and a test of a few steps reaches what a method does every so many steps.
fn variants_of(name: &str) -> &'static [&'static [(&'static str, &'static str)]] {
    match name {
        "ok-topk" => &[
            &[("tau", "3"), ("tau-prime", "2"), ("balance-trigger", "1.1")],
            &[
                ("preset", "lstm"),
                ("tau", "2"),
                ("tau-prime", "3"),
                ("balance", "always"),
            ],
            &[
                ("preset", "bert"),
                ("tau-prime", "2"),
                ("balance", "never"),
                ("residual", "published-unsorted"),
            ],
        ],
        "topk-dsa" => &[&[("residual", "published")]],
        "gtopk" => &[&[("residual", "published")]],
        "gaussian-k" => &[&[("preset", "lstm")], &[("preset", "bert")]],
        "exdyna" => &[
            &[("blocks", "5"), ("adjust", "off"), ("cap", "none")],
            &[
                ("blocks", "16"),
                ("controller", "published"),
                ("start", "published"),
            ],
        ],
        "micro" => &[&[
            ("controller", "published"),
            ("start", "published"),
            ("cap", "none"),
        ]],
        "hard-threshold" => &[&[("threshold", "0.75"), ("cap", "none")]],
        "random-k" => &[&[("seed", "7")]],
        "power-sgd" => &[&[("rank", "3"), ("residual", "mean")]],
        _ => &[],
    }
}
