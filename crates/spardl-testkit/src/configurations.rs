//! Every method of the registry in every configuration that tests must cover.

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, IndexCoding, ValueType};

/// All configurations for `workers` workers, with their one-line descriptions as context for messages.
pub fn all(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut all = Vec::new();
    for entry in registry::METHODS {
        for values in [ValueType::F32, ValueType::Bf16] {
            for options in options_of(entry, workers) {
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
        for mut options in options_of(entry, workers) {
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

fn options_of(entry: &registry::Entry, workers: u32) -> Vec<Options> {
    let mut all = vec![Options::default()];
    all.extend((entry.variants)(workers));
    all
}
