//! A build with all networks, computed by burn.

use spardl_burn::{DeviceChoice, Pooled};
use spardl_core::Layout;
use spardl_train::Model;
use spardl_train::data::Task;

use super::super::config::{Config, Device};
use crate::output::bad_request;

/// Computes any network, on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    device: DeviceChoice,
}

impl Engine {
    /// Refuses a network that does not exist and a device that was left out of this build.
    pub(crate) fn new(dnn: &str, device: Device) -> anyhow::Result<Self> {
        super::check(dnn, device)?;
        let device = match device {
            #[cfg(feature = "wgpu")]
            Device::Wgpu => DeviceChoice::Wgpu,
            #[cfg(feature = "cuda")]
            Device::Cuda => DeviceChoice::Cuda,
            _ => DeviceChoice::Flex,
        };
        Ok(Self { device })
    }

    pub(crate) fn layout(self, config: &Config, task: &Task) -> anyhow::Result<Layout> {
        spardl_burn::layout(&config.dnn, task).map_err(bad_request)
    }

    pub(crate) fn model(
        self,
        config: &Config,
        task: &Task,
    ) -> anyhow::Result<Box<dyn Model + Send>> {
        let model = spardl_burn::build(&config.dnn, task, config.seed, &self.device);
        let threads = config.threads_per_worker as usize;
        Ok(Box::new(Pooled::new(model.map_err(bad_request)?, threads)?))
    }
}
