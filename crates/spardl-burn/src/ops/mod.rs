//! Operations of our own on the CPU, with their own backward passes.
//!
//! burn differentiates them like its own. They exist where burn's operations would visit memory many times, or build graphs
//! of thousands of tiny nodes. On other devices the callers fall back to burn's operations.

pub(crate) mod conv;
pub(crate) mod lstm;
pub(crate) mod norm;
mod smooth;

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData};

type Training = Autodiff<Flex>;
type Recorded = FloatTensor<Training>;

/// The backward pass of an operation of `N` inputs, and what it has to remember.
trait Pullback<const N: usize>: Clone + Debug + Send + 'static {
    /// From the gradient of the output to those of the inputs that are `wanted`.
    fn pull(self, slope: FlexTensor, wanted: [bool; N]) -> [Option<FlexTensor>; N];
}

/// The inputs of an operation, if they are on the CPU.
enum Inputs<const N: usize> {
    /// A backward pass may follow.
    Training([Recorded; N]),
    /// No backward pass follows.
    Plain([FlexTensor; N]),
}

impl<const N: usize> Inputs<N> {
    /// May a backward pass follow?
    fn training(&self) -> bool {
        matches!(self, Self::Training(_))
    }

    /// The values.
    fn values(&self) -> [FlexTensor; N] {
        match self {
            Self::Training(inputs) => inputs.each_ref().map(|input| input.primitive().clone()),
            Self::Plain(inputs) => inputs.clone(),
        }
        .map(|input| input.to_contiguous())
    }

    /// The output as a tensor that knows its backward pass.
    fn finish<const D: usize, P: Pullback<N>>(self, output: FlexTensor, pullback: P) -> Tensor<D> {
        let inputs = match self {
            Self::Plain(_) => return Tensor::from_primitive::<Flex>(output),
            Self::Training(inputs) => inputs,
        };
        let nodes = inputs.each_ref().map(|input| input.node());
        let prepared = Node::<P>(PhantomData)
            .prepare::<NoCheckpointing>(nodes)
            .compute_bound()
            .stateful();
        let output = match prepared {
            OpsKind::Tracked(prepared) => prepared.finish(pullback, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        };
        Tensor::from_primitive::<Training>(output)
    }
}

/// One tensor of an operation's inputs, of whatever rank.
enum Operand {
    Training(Recorded),
    Plain(FlexTensor),
}

/// The tensor if it is on the CPU.
fn operand<const D: usize>(tensor: &Tensor<D>) -> Option<Operand> {
    let recorded = tensor.clone().try_into_primitive::<Training>();
    recorded.map(Operand::Training).ok().or_else(|| {
        let plain = tensor.clone().try_into_primitive::<Flex>();
        plain.map(Operand::Plain).ok()
    })
}

/// Operands that are all of one kind.
fn inputs<const N: usize>(operands: [Option<Operand>; N]) -> Option<Inputs<N>> {
    let (mut training, mut plain) = (Vec::new(), Vec::new());
    for operand in operands {
        match operand? {
            Operand::Training(tensor) => training.push(tensor),
            Operand::Plain(tensor) => plain.push(tensor),
        }
    }
    match training.try_into() {
        Ok(training) => Some(Inputs::Training(training)),
        Err(_) => plain.try_into().ok().map(Inputs::Plain),
    }
}

fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("contiguous f32")
}

fn tensor(values: Vec<f32>, shape: impl Into<burn::tensor::Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.into()))
}

fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

struct Node<P>(PhantomData<fn() -> P>);

impl<P> Debug for Node<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::any::type_name::<P>())
    }
}

impl<P: Pullback<N>, const N: usize> Backward<Flex, N> for Node<P> {
    type State = P;

    fn backward(self, ops: Ops<P, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let slope = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let slopes = ops.state.pull(slope, wanted);
        for (parent, slope) in ops.parents.into_iter().zip(slopes) {
            if let (Some(parent), Some(slope)) = (parent, slope) {
                gradients.register::<Flex>(parent.id, slope);
            }
        }
    }
}
