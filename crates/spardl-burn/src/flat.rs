//! The parameters of a burn module as one slice, the last layer first, and back.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use spardl_core::{ConfigError, Layout};

/// Names and shapes of the parameters, the last one first.
pub(crate) fn layout<M: Module>(module: &M) -> Result<Layout, ConfigError> {
    let mut shapes = Shapes::default();
    module.visit(&mut shapes);
    shapes.tensors.reverse();
    Layout::new(shapes.tensors)
}

/// Copies the parameters out.
pub(crate) fn read<M: Module>(module: &M, values: &mut [f32]) {
    let mut reader = Reader { rest: values };
    module.visit(&mut reader);
    assert!(
        reader.rest.is_empty(),
        "the slice has the length of the layout"
    );
}

/// The module with other parameters.
pub(crate) fn write<M: Module>(module: M, values: &[f32]) -> M {
    let mut writer = Writer { rest: values };
    let module = module.map(&mut writer);
    assert!(
        writer.rest.is_empty(),
        "the slice has the length of the layout"
    );
    module
}

/// Copies the gradients out; a parameter that has none gets zeros.
pub(crate) fn read_gradients<M: Module>(module: &M, gradients: Gradients, values: &mut [f32]) {
    let mut reader = GradientReader {
        rest: values,
        gradients,
    };
    module.visit(&mut reader);
    assert!(
        reader.rest.is_empty(),
        "the slice has the length of the layout"
    );
}

/// The floats that are no parameters, in the order of definition.
pub(crate) fn buffers<M: Module>(module: &M) -> Vec<f32> {
    let mut reader = BufferReader::default();
    module.visit(&mut reader);
    reader.values
}

/// The module with other floats that are no parameters.
pub(crate) fn write_buffers<M: Module>(module: M, values: &[f32]) -> M {
    let mut writer = BufferWriter { rest: values };
    let module = module.map(&mut writer);
    assert!(
        writer.rest.is_empty(),
        "the buffers have the length they were read with"
    );
    module
}

/// Is it a parameter, and not a running statistic?
pub(crate) fn learned<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    !param.is_initialized() || param.val().is_require_grad()
}

/// Where a visitor is.
#[derive(Default)]
pub(crate) struct Path {
    names: Vec<String>,
}

impl Path {
    pub(crate) fn enter(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    pub(crate) fn exit(&mut self) {
        self.names.pop();
    }

    /// For instance `layer3.0.conv1.weight`.
    pub(crate) fn dotted(&self) -> String {
        self.names.join(".")
    }
}

#[derive(Default)]
struct Shapes {
    path: Path,
    tensors: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if learned(param) {
            self.tensors
                .push((self.path.dotted(), param.lazy_shape().to_vec()));
        }
    }
}

struct Reader<'a> {
    rest: &'a mut [f32],
}

impl ModuleVisitor for Reader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if learned(param) {
            let place = split_last(&mut self.rest, param.lazy_shape().num_elements());
            copy_out(param.val(), place);
        }
    }
}

struct GradientReader<'a> {
    rest: &'a mut [f32],
    gradients: Gradients,
}

impl ModuleVisitor for GradientReader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !learned(param) {
            return;
        }
        let place = split_last(&mut self.rest, param.lazy_shape().num_elements());
        // Removed, not copied: data that nobody else holds is read in place.
        match param.val().grad_remove(&mut self.gradients) {
            Some(gradient) => copy_out(gradient, place),
            None => place.fill(0.0),
        }
    }
}

struct Writer<'a> {
    rest: &'a [f32],
}

impl ModuleMapper for Writer<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !learned(&param) {
            return param;
        }
        let (rest, place) = self
            .rest
            .split_at(self.rest.len() - param.lazy_shape().num_elements());
        self.rest = rest;
        param.map(|old| replacement(&old, place).require_grad())
    }
}

#[derive(Default)]
struct BufferReader {
    values: Vec<f32>,
}

impl ModuleVisitor for BufferReader {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !learned(param) {
            let start = self.values.len();
            self.values
                .resize(start + param.lazy_shape().num_elements(), 0.0);
            copy_out(param.val(), &mut self.values[start..]);
        }
    }
}

struct BufferWriter<'a> {
    rest: &'a [f32],
}

impl ModuleMapper for BufferWriter<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if learned(&param) {
            return param;
        }
        let (place, rest) = self.rest.split_at(param.lazy_shape().num_elements());
        self.rest = rest;
        param.map(|old| replacement(&old, place))
    }
}

fn replacement<const D: usize>(old: &Tensor<D>, values: &[f32]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), old.shape()), &old.device())
}

fn split_last<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let all = std::mem::take(rest);
    let (first, last) = all.split_at_mut(all.len() - len);
    *rest = first;
    last
}

fn copy_out<const D: usize>(tensor: Tensor<D>, place: &mut [f32]) {
    let data = tensor.into_data();
    place.copy_from_slice(data.as_slice().expect("all devices compute in f32"));
}
