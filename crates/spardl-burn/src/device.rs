//! Where a network is computed.

use burn::tensor::Device;

/// Where a network is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// On the CPU, in pure Rust.
    #[default]
    Flex,
    /// On a graphics card, through wgpu.
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// On the first NVIDIA card.
    #[cfg(feature = "cuda")]
    Cuda,
}

impl DeviceChoice {
    /// The device, one that records what a backward pass needs.
    pub(crate) fn open(self) -> Device {
        let device = match self {
            Self::Flex => Device::flex(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            #[cfg(feature = "cuda")]
            Self::Cuda => Device::cuda(0usize),
        };
        device.autodiff()
    }
}
