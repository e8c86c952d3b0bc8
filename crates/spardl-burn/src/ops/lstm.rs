//! A layer of long short-term memory as one operation.
//!
//! The caller has multiplied all inputs with the input weights, in one product. Here, step by step, the last output is
//! multiplied with the recurrent weights, one product for the four gates. The backward pass walks back in the same way, and the
//! gradient of the recurrent weights is one product over all steps. As burn's operations this would be a graph of a dozen nodes
//! per step, each with a gradient as long as the whole sequence.

use burn::backend::flex::{FlexTensor, ops::matmul::matmul};
use burn::tensor::Tensor;
use burn::tensor::activation;

use super::smooth::{logistic, tanh};
use super::{Pullback, add, inputs, operand, tensor, values};

/// The outputs `[steps, samples, width]` from projected inputs `[steps, samples, 4 * width]` (gates in the order input, forget,
/// candidate, output; bias included) and recurrent weights `[width, 4 * width]`. The state begins with zeros.
pub(crate) fn lstm(projected: Tensor<3>, recurrent: Tensor<2>) -> Tensor<3> {
    match inputs([operand(&projected), operand(&recurrent)]) {
        Some(inputs) => {
            let [projected, recurrent] = inputs.values();
            let memory = Memory::forward(&projected, recurrent);
            inputs.finish(memory.outputs.clone(), memory)
        }
        None => lstm_of_operations(projected, recurrent),
    }
}

/// The same of burn's operations.
fn lstm_of_operations(projected: Tensor<3>, recurrent: Tensor<2>) -> Tensor<3> {
    let [steps, samples, gates] = projected.dims();
    let width = gates / 4;
    let device = projected.device();
    let mut output = Tensor::<2>::zeros([samples, width], &device);
    let mut cell = output.clone();
    let mut outputs = Vec::with_capacity(steps);
    for step in 0..steps {
        let input = projected
            .clone()
            .narrow(0, step, 1)
            .reshape([samples, gates]);
        let gates = input + output.matmul(recurrent.clone());
        let [input, forget, candidate, out] =
            [0, 1, 2, 3].map(|gate| gates.clone().narrow(1, gate * width, width));
        cell = activation::sigmoid(forget) * cell
            + activation::sigmoid(input) * activation::tanh(candidate);
        output = activation::sigmoid(out) * activation::tanh(cell.clone());
        outputs.push(output.clone());
    }
    Tensor::stack(outputs, 0)
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct Memory {
    samples: usize,
    width: usize,
    recurrent: FlexTensor,
    /// After their functions, `[steps, samples, 4 * width]`.
    gates: FlexTensor,
    /// The hyperbolic tangents of the cells and the cells, `[steps, samples, width]`.
    bent: FlexTensor,
    cells: FlexTensor,
    outputs: FlexTensor,
}

impl Memory {
    fn forward(projected: &FlexTensor, recurrent: FlexTensor) -> Self {
        let [steps, samples, four] = projected.layout().shape().dims();
        let width = four / 4;
        let (row, block) = (samples * width, samples * four);
        let mut gates = values(projected).to_vec();
        let [mut bent, mut cells, mut outputs] = [(); 3].map(|()| vec![0.0; steps * row]);
        for step in 0..steps {
            let gates = &mut gates[step * block..][..block];
            if step > 0 {
                let last = tensor(
                    outputs[(step - 1) * row..][..row].to_vec(),
                    [samples, width],
                );
                let product = matmul(last, recurrent.clone());
                add(gates, values(&product));
            }
            let (before, cells) = cells.split_at_mut(step * row);
            let before = &before[step.saturating_sub(1) * row..];
            for sample in 0..samples {
                let at = sample * width..(sample + 1) * width;
                let gates = &mut gates[sample * four..][..four];
                let before = before.get(at.clone()).unwrap_or_default();
                let place = step * row + at.start..step * row + at.end;
                let state = [
                    &mut cells[at],
                    &mut bent[place.clone()],
                    &mut outputs[place],
                ];
                forward_sample(gates, before, state);
            }
        }
        let shape = [steps, samples, width];
        Self {
            samples,
            width,
            recurrent,
            gates: tensor(gates, [steps, samples, four]),
            bent: tensor(bent, shape),
            cells: tensor(cells, shape),
            outputs: tensor(outputs, shape),
        }
    }
}

impl Pullback<2> for Memory {
    fn pull(self, slope: FlexTensor, [_, wants_recurrent]: [bool; 2]) -> [Option<FlexTensor>; 2] {
        let (samples, width, four) = (self.samples, self.width, 4 * self.width);
        let (row, block) = (samples * width, samples * four);
        let (slope, gates) = (values(&slope), values(&self.gates));
        let (bent, cells) = (values(&self.bent), values(&self.cells));
        let steps = slope.len() / row;
        let back = self.recurrent.transpose(0, 1);
        let mut slopes = vec![0.0; steps * block];
        let mut cell_slope = vec![0.0; row];
        let mut output_slope = slope[(steps - 1) * row..].to_vec();
        for step in (0..steps).rev() {
            let slopes = &mut slopes[step * block..][..block];
            for sample in 0..samples {
                let at = step * row + sample * width;
                let before = match step {
                    0 => &[],
                    _ => &cells[at - row..][..width],
                };
                let own = sample * width..(sample + 1) * width;
                backward_sample(
                    &mut slopes[sample * four..][..four],
                    &gates[step * block + sample * four..][..four],
                    [&bent[at..][..width], before, &output_slope[own.clone()]],
                    &mut cell_slope[own],
                );
            }
            if step > 0 {
                let product = matmul(tensor(slopes.to_vec(), [samples, four]), back.clone());
                output_slope.copy_from_slice(values(&product));
                add(&mut output_slope, &slope[(step - 1) * row..][..row]);
            }
        }
        let slopes = tensor(slopes, [steps, samples, four]);
        let recurrent = wants_recurrent.then(|| {
            // The outputs of all steps but the last against the slopes of all steps but the first.
            let rows = (steps - 1) * samples;
            let outputs = self.outputs.reshape([steps * samples, width].into());
            let later = slopes.reshape([steps * samples, four].into());
            matmul(
                outputs.narrow(0, 0, rows).transpose(0, 1),
                later.narrow(0, samples, rows),
            )
        });
        [Some(slopes), recurrent]
    }
}

/// From the sums of the gates to their values, the new cell, its hyperbolic tangent and the output.
fn forward_sample(gates: &mut [f32], before: &[f32], state: [&mut [f32]; 3]) {
    let [cell, bent, output] = state;
    let width = cell.len();
    let (input, rest) = gates.split_at_mut(width);
    let (forget, rest) = rest.split_at_mut(width);
    let (candidate, out) = rest.split_at_mut(width);
    for gate in [&mut *input, &mut *forget, &mut *out] {
        gate.iter_mut().for_each(|value| *value = logistic(*value));
    }
    candidate.iter_mut().for_each(|value| *value = tanh(*value));
    for ((cell, &input), &candidate) in cell.iter_mut().zip(&*input).zip(&*candidate) {
        *cell = input * candidate;
    }
    for ((cell, &forget), &before) in cell.iter_mut().zip(&*forget).zip(before) {
        *cell += forget * before;
    }
    for (((&mut cell, bent), output), &out) in cell.iter_mut().zip(bent).zip(output).zip(&*out) {
        *bent = tanh(cell);
        *output = out * *bent;
    }
}

/// From the gradient of an output and of the cell after it to those of the gates' sums and of the cell before.
fn backward_sample(slopes: &mut [f32], gates: &[f32], known: [&[f32]; 3], cell_slope: &mut [f32]) {
    let [bent, before, output_slope] = known;
    let width = bent.len();
    let [input, forget, candidate, out] = [0, 1, 2, 3].map(|gate| &gates[gate * width..][..width]);
    let (input_slope, rest) = slopes.split_at_mut(width);
    let (forget_slope, rest) = rest.split_at_mut(width);
    let (candidate_slope, out_slope) = rest.split_at_mut(width);
    for at in 0..width {
        let bent = bent[at];
        let (i, f, g, o) = (input[at], forget[at], candidate[at], out[at]);
        let slope = output_slope[at];
        let cell = cell_slope[at] + slope * o * (1.0 - bent * bent);
        out_slope[at] = slope * bent * o * (1.0 - o);
        input_slope[at] = cell * g * i * (1.0 - i);
        candidate_slope[at] = cell * i * (1.0 - g * g);
        forget_slope[at] = cell * f * (1.0 - f);
        cell_slope[at] = cell * f;
    }
    if before.is_empty() {
        forget_slope.fill(0.0);
    }
    for (slope, &before) in forget_slope.iter_mut().zip(before) {
        *slope *= before;
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    #[test]
    fn it_agrees_with_burns_own_operations() {
        let device = Device::flex().autodiff();
        let numbers = |len: usize, scale: f32| -> Vec<f32> {
            (0..len).map(|at| scale * (at as f32 * 2.3).sin()).collect()
        };
        let run = |cell: fn(Tensor<3>, Tensor<2>) -> Tensor<3>| {
            let projected = Tensor::<3>::from_data(
                TensorData::new(numbers(5 * 3 * 16, 1.5), [5, 3, 16]),
                &device,
            )
            .require_grad();
            let recurrent =
                Tensor::<2>::from_data(TensorData::new(numbers(4 * 16, 0.7), [4, 16]), &device)
                    .require_grad();
            let weights = Tensor::<3>::from_data(
                TensorData::new(numbers(5 * 3 * 4, 1.0), [5, 3, 4]),
                &device,
            );
            let outputs = cell(projected.clone(), recurrent.clone());
            let gradients = (outputs.clone() * weights).sum().backward();
            [
                outputs.into_data(),
                projected.grad(&gradients).unwrap().into_data(),
                recurrent.grad(&gradients).unwrap().into_data(),
            ]
            .map(|data| data.try_to_vec::<f32>().unwrap())
        };
        for (ours, theirs) in run(lstm).iter().zip(&run(lstm_of_operations)) {
            assert_eq!(ours.len(), theirs.len());
            for (one, other) in ours.iter().zip(theirs) {
                assert!((one - other).abs() < 2e-6, "{one} {other}");
            }
        }
    }
}
