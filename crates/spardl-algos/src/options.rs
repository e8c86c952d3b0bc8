//! The options that methods are built from.

use std::collections::BTreeMap;

use spardl_core::{Codec, ConfigError};

/// A method's options as words: what the edges have (command line, files, other languages). A method parses them once, into its own
/// struct, and refuses what it does not know.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How indices and values travel.
    pub codec: Codec,
    /// Options of the method, by name.
    pub set: BTreeMap<String, String>,
}

impl Options {
    /// The same options with `name` set to `value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.set.insert(name.to_owned(), value.to_string());
        self
    }

    /// One set of options for each list of names and values.
    pub(crate) fn variants(lists: &[&[(&str, &str)]]) -> Vec<Self> {
        let options = |list: &&[(&str, &str)]| {
            let set = list.iter();
            set.fold(Self::default(), |all, (name, value)| all.with(name, value))
        };
        lists.iter().map(options).collect()
    }

    /// The value of option `name` for `method`: `default` when it is not set.
    ///
    /// # Errors
    /// When the value set is not one that `parse` accepts; `expected` says what is.
    pub fn parsed<T>(
        &self,
        method: &str,
        name: &str,
        default: T,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let Some(value) = self.set.get(name) else {
            return Ok(default);
        };
        parse(value).ok_or_else(|| ConfigError::BadOption {
            method: method.to_owned(),
            option: name.to_owned(),
            value: value.clone(),
            expected: expected.to_owned(),
        })
    }
}
