//! A build with the network that needs no engine.

use spardl_core::Layout;
use spardl_nets::{perceptron, perceptron_layout};
use spardl_train::Model;
use spardl_train::data::Task;

use super::super::config::{Config, Device};
use crate::output::bad_request;

/// Computes the perceptron, in plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine;

impl Engine {
    /// Refuses a network or a device that was left out of this build.
    pub(crate) fn new(dnn: &str, device: Device) -> anyhow::Result<Self> {
        super::check(dnn, device).map(|()| Self)
    }

    pub(crate) fn layout(self, _: &Config, task: &Task) -> anyhow::Result<Layout> {
        perceptron_layout(task).map_err(bad_request)
    }

    pub(crate) fn model(
        self,
        config: &Config,
        task: &Task,
    ) -> anyhow::Result<Box<dyn Model + Send>> {
        let model = perceptron(task, config.seed).map_err(bad_request)?;
        Ok(Box::new(model))
    }
}
