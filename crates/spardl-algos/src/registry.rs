//! The one list of methods: name to algorithm.
//!
//! `NAME-bf16` is `NAME` with bf16 values on the wire, for every method.

use spardl_core::{Algorithm, ConfigError, ValueType};

use crate::{
    CltK, Deft, Dense, DenseRabenseifner, DenseRing, ExDyna, GTopk, GaussianK, HardThreshold,
    Micro, OkTopk, Options, PowerSgd, RandomK, SparDl, TopkA, TopkA2, TopkDsa,
};

/// A method of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, as on the command line.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// The options it reads besides the common ones: name, accepted values and meaning.
    pub options: &'static [(&'static str, &'static str)],
    source: &'static str,
    build: fn(&Options) -> Result<Box<dyn Algorithm>, ConfigError>,
}

/// All methods, in the order they are listed.
pub const METHODS: &[Entry] = &[
    Entry {
        name: "spardl",
        summary: "SparDL: sparse reduce-scatter, optional teams, global residuals",
        options: &[
            (
                "teams",
                "a divisor of the number of workers (1): fewer rounds; r sends more bytes, b keeps a larger residual",
            ),
            (
                "sag",
                "auto, r (teams a power of two), b (any): how teams synchronise",
            ),
            (
                "residual",
                "global-a, global-b, no-in-procedure, local, none: what is kept",
            ),
        ],
        source: include_str!("spardl/mod.rs"),
        build: |options| Ok(Box::new(SparDl::from_options(options)?)),
    },
    Entry {
        name: "ok-topk",
        summary: "Ok-Topk: thresholds and regions reused between exact steps, O(k) volume",
        options: &[
            (
                "preset",
                "vgg, lstm, bert: the bands that thresholds follow",
            ),
            ("tau", "steps between two cuts of the regions (64)"),
            (
                "tau-prime",
                "steps between two exact thresholds (32; bert 128)",
            ),
            (
                "balance",
                "auto, always, never: even out the shares before the all-gather",
            ),
            (
                "balance-trigger",
                "auto: when the largest share exceeds this many times the average (4)",
            ),
            (
                "residual",
                "intersection, published-unsorted (does not conserve): what is cleared",
            ),
        ],
        source: include_str!("ok_topk/mod.rs"),
        build: |options| Ok(Box::new(OkTopk::from_options(options)?)),
    },
    Entry {
        name: "topk-a",
        summary: "every worker's top-k, gathered by all and summed",
        options: &[],
        source: include_str!("topk_a.rs"),
        build: |options| {
            Ok(Box::new(TopkA {
                codec: options.codec,
            }))
        },
    },
    Entry {
        name: "topk-a2",
        summary: "topk-a, then the k largest of the sum",
        options: &[],
        source: include_str!("topk_a2.rs"),
        build: |options| {
            Ok(Box::new(TopkA2 {
                codec: options.codec,
            }))
        },
    },
    Entry {
        name: "topk-dsa",
        summary: "SparCML's dynamic all-reduce: split to owners, gather all sums, dense where shorter",
        options: &[(
            "residual",
            "sent, published (loses the k-th entry; does not conserve): what is cleared",
        )],
        source: include_str!("topk_dsa.rs"),
        build: |options| Ok(Box::new(TopkDsa::from_options(options)?)),
    },
    Entry {
        name: "gtopk",
        summary: "gTop-k: lists of k merged up a binomial tree and broadcast",
        options: &[(
            "residual",
            "global (nothing is lost), published (loses what merges drop)",
        )],
        source: include_str!("gtopk.rs"),
        build: |options| Ok(Box::new(GTopk::from_options(options)?)),
    },
    Entry {
        name: "gaussian-k",
        summary: "what exceeds a threshold from mean and deviation, gathered by all and summed",
        options: &[(
            "preset",
            "vgg, lstm, bert: how the threshold is corrected when the count is off",
        )],
        source: include_str!("gaussian_k.rs"),
        build: |options| Ok(Box::new(GaussianK::from_options(options)?)),
    },
    Entry {
        name: "exdyna",
        summary: "ExDyna: each worker searches one partition by a shared threshold; complete sums",
        options: &[
            ("blocks", "how many blocks partitions are made of (1024)"),
            (
                "adjust",
                "on, off: do blocks move to partitions that yield less",
            ),
            (
                "controller",
                "corrected, published: how the threshold follows the density",
            ),
            ("start", "data, published: where the threshold starts"),
            ("cap", "4k, none: the most entries a worker selects"),
        ],
        source: include_str!("exdyna/mod.rs"),
        build: |options| Ok(Box::new(ExDyna::from_options(options)?)),
    },
    Entry {
        name: "micro",
        summary: "MiCRO: ExDyna with fixed partitions",
        options: &[
            (
                "controller",
                "corrected, published: how the threshold follows the density",
            ),
            ("start", "data, published: where the threshold starts"),
            ("cap", "4k, none: the most entries a worker selects"),
        ],
        source: include_str!("micro.rs"),
        build: |options| Ok(Box::new(Micro::from_options(options)?)),
    },
    Entry {
        name: "random-k",
        summary: "k elements drawn from a common seed, summed over all workers",
        options: &[("seed", "a number (0): another seed draws other elements")],
        source: include_str!("random_k.rs"),
        build: |options| Ok(Box::new(RandomK::from_options(options)?)),
    },
    Entry {
        name: "power-sgd",
        summary: "PowerSGD: a low-rank approximation of every matrix, k is not used",
        options: &[
            ("rank", "1 or more (1): columns of the approximation"),
            ("seed", "a number (0): where the iteration starts"),
            (
                "residual",
                "own (what a worker did not deliver), mean (torch: less the mean update)",
            ),
        ],
        source: include_str!("power_sgd/mod.rs"),
        build: |options| Ok(Box::new(PowerSgd::from_options(options)?)),
    },
    Entry {
        name: "deft",
        summary: "DEFT: each worker searches some layers, with quotas by gradient norm; complete sums",
        options: &[],
        source: include_str!("deft/mod.rs"),
        build: |options| {
            Ok(Box::new(Deft {
                codec: options.codec,
            }))
        },
    },
    Entry {
        name: "clt-k",
        summary: "CLT-k: the top-k indices of one worker, a different one in each step; complete sums",
        options: &[],
        source: include_str!("clt_k.rs"),
        build: |options| {
            Ok(Box::new(CltK {
                codec: options.codec,
            }))
        },
    },
    Entry {
        name: "hard-threshold",
        summary: "every worker's entries above a fixed threshold; complete sums",
        options: &[
            ("threshold", "a positive number (1 / (2 sqrt k))"),
            ("cap", "4k, none: the most entries a worker selects"),
        ],
        source: include_str!("hard_threshold.rs"),
        build: |options| Ok(Box::new(HardThreshold::from_options(options)?)),
    },
    Entry {
        name: "dense",
        summary: "the whole gradient, any number of workers in 2 ceil(log2 P) rounds",
        options: &[],
        source: include_str!("dense.rs"),
        build: |options| {
            Ok(Box::new(Dense {
                values: options.codec.values,
            }))
        },
    },
    Entry {
        name: "dense-ring",
        summary: "the whole gradient around a ring, 2 (P - 1) rounds",
        options: &[],
        source: include_str!("dense_ring.rs"),
        build: |options| {
            Ok(Box::new(DenseRing {
                values: options.codec.values,
            }))
        },
    },
    Entry {
        name: "dense-rabenseifner",
        summary: "the whole gradient by recursive halving and doubling",
        options: &[],
        source: include_str!("dense_rabenseifner.rs"),
        build: |options| {
            Ok(Box::new(DenseRabenseifner {
                values: options.codec.values,
            }))
        },
    },
];

impl Entry {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// When an option is unknown to the method or has a value it does not accept.
    pub fn build(&self, options: &Options) -> Result<Box<dyn Algorithm>, ConfigError> {
        let known = |option: &str| self.options.iter().any(|(name, _)| *name == option);
        if let Some((option, value)) = options.set.iter().find(|(option, _)| !known(option)) {
            let names: Vec<&str> = self.options.iter().map(|(name, _)| *name).collect();
            let expected = match names.as_slice() {
                [] => "it has no options of its own".to_owned(),
                names => format!("its options are {}", names.join(", ")),
            };
            return Err(ConfigError::BadOption {
                method: self.name.to_owned(),
                option: option.clone(),
                value: value.clone(),
                expected,
            });
        }
        (self.build)(options)
    }

    /// The idea, a worked example, cost and differences from the authors' code: the header of the method's file.
    pub fn explanation(&self) -> String {
        let lines = self
            .source
            .lines()
            .map_while(|line| line.strip_prefix("//!"));
        lines
            .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
            .collect()
    }
}

/// The entry of that name and its value type: `NAME` or `NAME-bf16`.
///
/// # Errors
/// When there is no such method; the message lists the names.
pub fn find(name: &str) -> Result<(&'static Entry, Option<ValueType>), ConfigError> {
    let (stem, values) = match name.strip_suffix("-bf16") {
        Some(stem) => (stem, Some(ValueType::Bf16)),
        None => (name, None),
    };
    let entry = METHODS.iter().find(|entry| entry.name == stem);
    entry.map(|entry| (entry, values)).ok_or_else(|| {
        let names: Vec<&str> = METHODS.iter().map(|entry| entry.name).collect();
        let known = format!("{} (each also with -bf16)", names.join(", "));
        ConfigError::UnknownMethod {
            name: name.to_owned(),
            known,
        }
    })
}

/// The algorithm of that name with these options; a `-bf16` suffix overrides the value type.
///
/// # Errors
/// As [`find`] and [`Entry::build`].
pub fn build(name: &str, options: &Options) -> Result<Box<dyn Algorithm>, ConfigError> {
    let (entry, values) = find(name)?;
    let mut options = options.clone();
    options.codec.values = values.unwrap_or(options.codec.values);
    entry.build(&options)
}

#[cfg(test)]
mod tests {
    use spardl_core::{Codec, IndexCoding};

    use super::*;

    #[test]
    fn every_name_builds_plain_and_in_bf16_and_explains_itself() {
        for entry in METHODS {
            let options = Options::default();
            assert_eq!(build(entry.name, &options).unwrap().name(), entry.name);
            let bf16 = build(&format!("{}-bf16", entry.name), &options).unwrap();
            assert!(bf16.describe().contains("bf16"), "{}", bf16.describe());
            let text = entry.explanation();
            for word in ["Rounds:", "Bytes:", "Example"] {
                assert!(text.contains(word), "{} does not say {word}", entry.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_or_option_is_refused_with_what_is_accepted() {
        let error = build("spardle", &Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("use one of spardl, "), "{error}");
        let mut options = Options::default();
        options.set.insert("tau".to_owned(), "3".to_owned());
        let error = build("dense", &options).unwrap_err().to_string();
        assert!(error.contains("no options of its own"), "{error}");
    }

    /// An option that is listed and not read would be accepted with any value.
    #[test]
    fn every_option_refuses_nonsense() {
        for entry in METHODS {
            for (option, _) in entry.options {
                let mut options = Options::default();
                options.set.insert((*option).to_owned(), "?".to_owned());
                let built = entry.build(&options).map(|algorithm| algorithm.describe());
                let error = built.expect_err(entry.name).to_string();
                assert!(error.contains(option), "{}: {error}", entry.name);
            }
        }
    }

    #[test]
    fn ranks_that_code_indices_differently_differ_in_their_descriptions() {
        let codec = Codec {
            indices: IndexCoding::Raw,
            ..Codec::default()
        };
        let raw = Options {
            codec,
            ..Options::default()
        };
        for name in ["spardl", "ok-topk", "topk-a", "gtopk"] {
            let raw = build(name, &raw).unwrap().describe();
            assert_ne!(build(name, &Options::default()).unwrap().describe(), raw);
        }
    }
}
