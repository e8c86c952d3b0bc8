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

/// [`all`] and [`few_bits`]: for what holds whatever the sums are.
pub fn every(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut every = all(workers);
    every.extend(few_bits(workers));
    every
}

/// Configurations with values of few bits: every method that takes them, with every type; a method's variants with one type
/// each, in turn. What holds for exact sums of small integers only is no law for these.
pub fn few_bits(workers: u32) -> Vec<Box<dyn Algorithm>> {
    let types = ValueType::ALL
        .into_iter()
        .filter(|values| values.elementwise() != *values);
    let types: Vec<ValueType> = types.collect();
    let mut all = Vec::new();
    for entry in registry::METHODS {
        let plain = types.iter().map(|&values| (Options::default(), values));
        let variants = (entry.variants)(workers)
            .into_iter()
            .zip(types.iter().copied().cycle());
        for (mut options, values) in plain.chain(variants) {
            options.codec.values = values;
            // A method without a residual refuses them.
            all.extend(entry.build(&options));
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
