//! What computes the network of a run. Without the feature `networks` it is the perceptron of `spardl-nets` alone.

#[cfg(feature = "networks")]
mod all;
#[cfg(not(feature = "networks"))]
mod first;

#[cfg(feature = "networks")]
pub(super) use all::Engine;
#[cfg(not(feature = "networks"))]
pub(super) use first::Engine;

use spardl_nets::{Entry, PERCEPTRON};

use super::config::Device;
use crate::output::bad_request;

/// Can this build compute the network?
pub(super) fn is_built_in(model: &Entry) -> bool {
    cfg!(feature = "networks") || model.name == PERCEPTRON
}

/// Refuses a network or a device that was left out of this build.
fn check(dnn: &str, device: Device) -> anyhow::Result<()> {
    let model = spardl_nets::find(dnn).map_err(bad_request)?;
    if !is_built_in(model) {
        return Err(bad_request(format!(
            "network {dnn} is not in this build, which has {PERCEPTRON} only: install all with \
             'cargo install --locked --path crates/spardl-cli --features networks'"
        )));
    }
    let missing = match device {
        Device::Wgpu if !cfg!(feature = "wgpu") => "wgpu",
        Device::Cuda if !cfg!(feature = "cuda") => "cuda",
        _ => return Ok(()),
    };
    Err(bad_request(format!(
        "this spardl was built without {missing}: install it with \
         'cargo install --locked --path crates/spardl-cli --features {missing}'"
    )))
}
