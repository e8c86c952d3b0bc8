//! The one list of methods: name to algorithm.
//!
//! `NAME-TYPE` is `NAME` with values of that [`ValueType`] on the wire: `spardl-bf16`, `spardl-q4`. Types whose values share
//! a scale (`q8` to `q1`) need a residual that keeps their errors; methods without one refuse them.

use spardl_core::{Algorithm, ConfigError, ValueType, offer};

use crate::Options;

/// A method of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, as on the command line.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// The options it reads besides the common ones: name, accepted values and meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// The text of the method's file; its header explains the method.
    pub(crate) source: &'static str,
    /// Configurations for a number of workers that make the method take another way than its defaults. Every option has
    /// another value in one of them, and a test of a few steps reaches what a method does every so many steps.
    pub variants: fn(workers: u32) -> Vec<Options>,
    pub(crate) build: fn(&Options) -> Result<Box<dyn Algorithm>, ConfigError>,
}

/// All methods, in the order they are listed.
pub const METHODS: &[Entry] = &[
    crate::spardl::ENTRY,
    crate::ok_topk::ENTRY,
    crate::topk_a::ENTRY,
    crate::topk_a2::ENTRY,
    crate::topk_dsa::ENTRY,
    crate::gtopk::ENTRY,
    crate::gaussian_k::ENTRY,
    crate::exdyna::ENTRY,
    crate::micro::ENTRY,
    crate::random_k::ENTRY,
    crate::power_sgd::ENTRY,
    crate::deft::ENTRY,
    crate::clt_k::ENTRY,
    crate::hard_threshold::ENTRY,
    crate::arc_topk::ENTRY,
    crate::lagged_mask::ENTRY,
    crate::oracle_k::ENTRY,
    crate::dense::ENTRY,
    crate::dense_ring::ENTRY,
    crate::dense_rabenseifner::ENTRY,
];

impl Entry {
    /// The algorithm with these options.
    ///
    /// # Errors
    /// When an option is unknown to the method or has a value it does not accept, or when nobody would keep the errors of the
    /// value type.
    pub fn build(&self, options: &Options) -> Result<Box<dyn Algorithm>, ConfigError> {
        let known = |option: &str| self.options.iter().any(|(name, _)| *name == option);
        if let Some((option, value)) = options.set.iter().find(|(option, _)| !known(option)) {
            let names: Vec<&str> = self.options.iter().map(|(name, _)| *name).collect();
            let expected = match names.as_slice() {
                [] => "it has no options of its own".to_owned(),
                names => offer(option, names),
            };
            return Err(ConfigError::BadOption {
                method: self.name.to_owned(),
                option: option.clone(),
                value: value.clone(),
                expected,
            });
        }
        let algorithm = (self.build)(options)?;
        let values = algorithm.value_type();
        if values.elementwise() == values || algorithm.laws().keeps_residual {
            return Ok(algorithm);
        }
        Err(ConfigError::BadOption {
            method: self.name.to_owned(),
            option: "value type".to_owned(),
            value: values.to_string(),
            expected: "without a residual nobody keeps the errors of so few bits: use f32 or bf16"
                .to_owned(),
        })
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

/// The entry of that name and its value type: `NAME` or `NAME-TYPE`.
///
/// # Errors
/// When there is no such method; the message lists the names.
pub fn find(name: &str) -> Result<(&'static Entry, Option<ValueType>), ConfigError> {
    let suffixed = name.rsplit_once('-').and_then(|(stem, suffix)| {
        let values = suffix.parse().ok()?;
        Some((stem, Some(values)))
    });
    let (stem, values) = suffixed.unwrap_or((name, None));
    let entry = METHODS.iter().find(|entry| entry.name == stem);
    entry.map(|entry| (entry, values)).ok_or_else(|| {
        let names: Vec<&str> = METHODS.iter().map(|entry| entry.name).collect();
        let types = ValueType::ALL.map(|values| format!("-{values}"));
        let (offer, types) = (offer(stem, &names), types.join(", "));
        ConfigError::UnknownMethod {
            name: name.to_owned(),
            offer: format!("{offer} (each also with {types})"),
        }
    })
}

/// The algorithm of that name with these options; the suffix of a value type overrides the value type.
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
    fn every_name_builds_with_every_value_type_or_says_why_not_and_explains_itself() {
        for entry in METHODS {
            let options = Options::default();
            assert_eq!(build(entry.name, &options).unwrap().name(), entry.name);
            for values in ValueType::ALL {
                match build(&format!("{}-{values}", entry.name), &options) {
                    Ok(typed) => {
                        let text = typed.describe();
                        assert!(text.contains(values.name()), "{text}");
                        assert_eq!(typed.value_type(), values, "{text}");
                    }
                    Err(error) => {
                        let plain = build(entry.name, &options).unwrap();
                        assert!(!plain.laws().keeps_residual && values.elementwise() != values);
                        assert!(error.to_string().contains("use f32 or bf16"), "{error}");
                    }
                }
            }
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
        assert!(
            error.contains("did you mean 'spardl'? There are spardl, "),
            "{error}"
        );
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
