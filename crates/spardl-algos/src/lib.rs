//! Every method of spardl, one file each, and the registry that names them.
//!
//! A method is an [`Algorithm`](spardl_core::Algorithm) (configuration, cost, laws) that makes machines; the file's header says
//! the idea, works an example, and lists what differs from the authors' code. The command line, the bench, the tests and the
//! documentation all read [`registry`].

#![forbid(unsafe_code)]

mod arc_topk;
mod clt_k;
mod deft;
mod dense;
mod dense_rabenseifner;
mod dense_ring;
mod exdyna;
mod gaussian_k;
mod gtopk;
mod hard_threshold;
mod lagged_mask;
mod list_gather;
mod mask;
mod micro;
mod ok_topk;
mod options;
mod oracle_k;
mod power_sgd;
mod random_k;
pub mod registry;
mod spardl;
mod splitmix;
mod topk_a;
mod topk_a2;
mod topk_dsa;
mod usual;

pub use arc_topk::{ArcTopk, Row};
pub use clt_k::CltK;
pub use deft::Deft;
pub use dense::Dense;
pub use dense_rabenseifner::DenseRabenseifner;
pub use dense_ring::DenseRing;
pub use exdyna::{Controller, ExDyna, Start};
pub use gaussian_k::{GaussianK, Preset};
pub use gtopk::{Dropped, GTopk};
pub use hard_threshold::HardThreshold;
pub use lagged_mask::LaggedMask;
pub use mask::Cap;
pub use micro::Micro;
pub use ok_topk::{Balance, Intersection, OkTopk, Preset as OkTopkPreset};
pub use options::Options;
pub use oracle_k::OracleK;
pub use power_sgd::{ErrorRule, PowerSgd};
pub use random_k::RandomK;
pub use spardl::{Residual, Sag, SparDl};
pub use topk_a::TopkA;
pub use topk_a2::TopkA2;
pub use topk_dsa::TopkDsa;
