//! A method with what distinguishes it from others of the same name.

use spardl::AUTO;
use spardl_algos::{Residual, registry};
use spardl_core::ValueType;
use spardl_train::schedule::DensitySchedule;

use super::super::config::Config;
use crate::method;
use crate::output::bad_request;

/// A method with what distinguishes it.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) label: String,
    pub(super) method: String,
    density: Option<DensitySchedule>,
    residual: Option<Residual>,
}

impl Variant {
    /// `spardl`, `spardl@0.001`, `spardl/local`, `spardl@0.001/global-b`; the label says what it is: the value type unless it is f32.
    pub(super) fn parse(asked: &str, values: ValueType) -> anyhow::Result<Self> {
        let (rest, rule) = match asked.split_once('/') {
            Some((rest, rule)) => (rest, Some(rule)),
            None => (asked, None),
        };
        let (name, density) = match rest.split_once('@') {
            Some((name, density)) => (name, Some(density)),
            None => (rest, None),
        };
        let family = match name {
            AUTO => AUTO,
            name => registry::find(name).map_err(bad_request)?.0.name,
        };
        if let Some(rule) = rule.filter(|_| family != "spardl") {
            return Err(bad_request(format!(
                "--methods {asked}: only spardl has residual rules: leave out /{rule}"
            )));
        }
        if density.is_some() && family.starts_with("dense") {
            return Err(bad_request(format!(
                "--methods {asked}: {name} reduces whole gradients: leave out the density"
            )));
        }
        let method = method::full_name(name, values);
        Ok(Self {
            label: format!("{method}{}", &asked[name.len()..]),
            method,
            density: density.map(str::parse).transpose().map_err(bad_request)?,
            residual: rule.map(str::parse).transpose().map_err(bad_request)?,
        })
    }

    pub(super) fn config(&self, base: &Config, seed: u64) -> Config {
        let usual = Config::default();
        // What is chosen brings its own options; those asked for are the other methods'.
        let options = if self.method == AUTO { &usual } else { base };
        Config {
            teams: options.teams,
            sag: options.sag,
            value_type: options.value_type,
            set: options.set.clone(),
            method: self.method.clone(),
            density: self.density.clone().unwrap_or_else(|| base.density.clone()),
            residual: self.residual.unwrap_or(options.residual),
            seed,
            ..base.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_how_values_travel() {
        let label = |asked: &str, values| Variant::parse(asked, values).expect("valid").label;
        let (f32, bf16) = (ValueType::F32, ValueType::Bf16);
        assert_eq!(label("dense", f32), "dense");
        assert_eq!(label("dense-bf16", f32), "dense-bf16");
        assert_eq!(label("dense", bf16), "dense-bf16");
        assert_eq!(label("spardl-bf16", bf16), "spardl-bf16");
        let both = label("spardl@0.05/local", bf16);
        assert_eq!(both, "spardl-bf16@0.05/local");
    }
}
