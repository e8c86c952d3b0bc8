//! A model whose small tensors come last, so that they can be reduced apart from the others.

use spardl::Layout;

use crate::{Batch, Model, Score};

/// The same model in another order: tensors of fewer than some dimensions come after all others.
pub(crate) struct Reordered<'a> {
    model: &'a mut dyn Model,
    layout: Layout,
    moves: Vec<Move>,
    /// In the order of the model.
    values: Vec<f32>,
}

/// Where a tensor is in the order of the model, and where it is here.
#[derive(Clone, Copy)]
struct Move {
    theirs: usize,
    ours: usize,
    len: usize,
}

impl<'a> Reordered<'a> {
    /// The tensors of `model` with those of fewer than `dims` dimensions last.
    pub(crate) fn new(model: &'a mut dyn Model, dims: usize) -> Self {
        let parts = model.layout().parts();
        let mut order: Vec<_> = parts.iter().collect();
        order.sort_by_key(|part| part.shape.len() < dims);
        let tensors = order.iter().map(|p| (p.name.clone(), p.shape.clone()));
        let layout = Layout::new(tensors).expect("as long as that of the model");
        let both = order.iter().zip(layout.parts());
        let moves = both.map(|(theirs, ours)| Move {
            theirs: theirs.offset as usize,
            ours: ours.offset as usize,
            len: ours.len(),
        });
        Self {
            moves: moves.collect(),
            values: vec![0.0; layout.len() as usize],
            layout,
            model,
        }
    }
}

/// From the order of the model to ours.
fn to_ours(moves: &[Move], theirs: &[f32], ours: &mut [f32]) {
    for step in moves {
        ours[step.ours..][..step.len].copy_from_slice(&theirs[step.theirs..][..step.len]);
    }
}

impl Model for Reordered<'_> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn parameters(&self, values: &mut [f32]) {
        let mut theirs = vec![0.0; values.len()];
        self.model.parameters(&mut theirs);
        to_ours(&self.moves, &theirs, values);
    }

    fn set_parameters(&mut self, values: &[f32]) {
        for step in &self.moves {
            let theirs = &mut self.values[step.theirs..][..step.len];
            theirs.copy_from_slice(&values[step.ours..][..step.len]);
        }
        self.model.set_parameters(&self.values);
    }

    fn buffers(&self) -> Vec<f32> {
        self.model.buffers()
    }

    fn set_buffers(&mut self, values: &[f32]) {
        self.model.set_buffers(values);
    }

    fn gradient(&mut self, batch: &Batch, seed: u64, gradient: &mut [f32]) -> Score {
        let score = self.model.gradient(batch, seed, &mut self.values);
        to_ours(&self.moves, &self.values, gradient);
        score
    }

    fn evaluate(&mut self, batch: &Batch) -> Score {
        self.model.evaluate(batch)
    }
}
