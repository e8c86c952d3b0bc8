//! What local work costs: options of the subcommands that predict for machines that are not there.

use std::path::PathBuf;

use spardl::tune::Gammas;

use crate::tune;

/// What selecting and merging cost.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LocalWorkArgs {
    /// What local work costs, by method, as `spardl tune --local --save FILE` measured it on a machine like those.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["select_ps", "merge_ps"])]
    measured: Option<PathBuf>,
    /// Picoseconds that selecting takes per element, of every sparse method [default: see docs/tuner.md].
    #[arg(long, value_name = "PS")]
    select_ps: Option<u64>,
    /// Picoseconds that taking in and passing on takes per byte received, of every sparse method [default: see docs/tuner.md].
    #[arg(long, value_name = "PS")]
    merge_ps: Option<u64>,
}

impl LocalWorkArgs {
    /// As measured, as told, or as usual.
    pub(crate) fn gammas(&self) -> anyhow::Result<Gammas> {
        if let Some(path) = &self.measured {
            return Ok(tune::read(path)?.gammas());
        }
        let mut usual = Gammas::usual();
        let is_sparse = |name: &str| !name.starts_with("dense");
        let measured = usual.measured.iter_mut();
        let sparse = measured.filter(|(name, _)| is_sparse(name));
        for gamma in sparse.map(|(_, gamma)| gamma).chain([&mut usual.sparse]) {
            gamma.select = self.select_ps.unwrap_or(gamma.select);
            gamma.merge = self.merge_ps.unwrap_or(gamma.merge);
        }
        Ok(usual)
    }

    /// Where these costs are from.
    pub(crate) fn in_words(&self) -> String {
        if let Some(path) = &self.measured {
            return format!("as measured in {}", path.display());
        }
        let told = [
            ("per element selected from", self.select_ps),
            ("per byte merged", self.merge_ps),
        ];
        let told = told.map(|(of, picos)| picos.map(|picos| format!(", {picos} ps {of}")));
        let told: String = told.into_iter().flatten().collect();
        match told.is_empty() {
            true => "as usual (docs/tuner.md)".to_owned(),
            false => format!("as usual, but for sparse methods{told}"),
        }
    }
}
