//! The first values of a module's parameters.
//!
//! burn would draw them lazily from a generator that all threads share; replicas that are built at the same time would then
//! differ. Here they are a function of the seed, the name and the shape: see `spardl_nets::init`.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use spardl_nets::init::{Init, Site, draw};

use crate::flat::{Path, learned};

/// The module with first values from `seed` by `rule`, on `device`.
pub(crate) fn start<M: Module>(
    module: M,
    seed: u64,
    device: &Device,
    rule: fn(&Site) -> Init,
) -> M {
    module.map(&mut Starter {
        path: Path::default(),
        fan_in: 1,
        seed,
        device,
        rule,
    })
}

struct Starter<'a> {
    path: Path,
    fan_in: usize,
    seed: u64,
    device: &'a Device,
    rule: fn(&Site) -> Init,
}

impl ModuleMapper for Starter<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !learned(&param) {
            return param;
        }
        let shape = param.lazy_shape().to_vec();
        match shape[..] {
            [_, inputs, rows, columns] => self.fan_in = inputs * rows * columns,
            [inputs, _] => self.fan_in = inputs,
            _ => {}
        }
        let site = Site {
            name: self.path.dotted(),
            shape,
            fan_in: self.fan_in,
        };
        let values = draw((self.rule)(&site), self.seed, &site);
        let tensor = Tensor::from_data(TensorData::new(values, site.shape), self.device);
        // A new parameter rather than a mapped one: mapping would draw burn's own first values.
        Param::initialized(param.id, tensor.require_grad())
    }
}
