//! The options that methods are built from.

use std::collections::BTreeMap;

use spardl_core::{Codec, ConfigError};

use crate::spardl::{Residual, Sag};

/// Options of all methods; each method reads its own and refuses unknown ones in [`Options::set`].
#[derive(Clone, Debug)]
pub struct Options {
    /// How indices and values travel.
    pub codec: Codec,
    /// SparDL: the number of teams; must divide the number of workers.
    pub teams: u32,
    /// SparDL: how teams synchronise.
    pub sag: Sag,
    /// SparDL: what becomes of undelivered mass.
    pub residual: Residual,
    /// Options of single methods, by name.
    pub set: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            codec: Codec::default(),
            teams: 1,
            sag: Sag::default(),
            residual: Residual::default(),
            set: BTreeMap::new(),
        }
    }
}

impl Options {
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
