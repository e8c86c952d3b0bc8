//! One worker's copy of a network: a burn module behind [`Model`].

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use spardl_core::{ConfigError, Layout};
use spardl_train::{Batch, IGNORE, Input, Model, Score};

use crate::dropout::Noise;
use crate::{flat, start};
use spardl_nets::init::{self, Init, Site};
use spardl_nets::loss;

/// A network that burn can differentiate.
pub(crate) trait Network: Module {
    /// What it reads.
    type Input: Feed;

    /// All layers but the last: one row per target.
    fn features(&self, input: Self::Input, noise: &Noise) -> Tensor<2>;

    /// The last layer: from rows that count to a logit per class.
    ///
    /// Apart from the other layers because a language model asks for few of its tokens, and its last layer is the widest.
    fn head(&self, features: Tensor<2>) -> Tensor<2>;

    /// How a parameter begins.
    fn first(site: &Site) -> Init {
        init::usual(site)
    }
}

/// What a network reads, made from a batch.
pub(crate) trait Feed: Sized {
    /// The samples of `batch`, each of this shape.
    fn feed(batch: &Batch, shape: &[usize], device: &Device) -> Self;
}

/// A network, its parameters and its running statistics.
///
/// It is never cloned: burn's copies of a module share their running statistics.
pub(crate) struct Replica<N: Network> {
    network: N,
    layout: Layout,
    device: Device,
    shape: Vec<usize>,
}

impl<N: Network> Replica<N> {
    /// The network with first values from `seed`, for samples of this shape.
    pub(crate) fn new(
        network: N,
        seed: u64,
        device: &Device,
        shape: &[usize],
    ) -> Result<Self, ConfigError> {
        // Before any memory is taken for the values.
        let layout = flat::layout(&network)?;
        Ok(Self {
            network: start::start(network, seed, device, N::first),
            layout,
            device: device.clone(),
            shape: shape.to_vec(),
        })
    }

    /// Brings the running statistics up to date: burn keeps the newest value of each thread apart until it is asked.
    fn refresh_statistics(&self) {
        drop(self.network.valid());
    }
}

impl<N: Network> Model for Replica<N> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn parameters(&self, values: &mut [f32]) {
        flat::read(&self.network, values);
    }

    fn set_parameters(&mut self, values: &[f32]) {
        self.network = flat::write(self.network.clone(), values);
    }

    fn buffers(&self) -> Vec<f32> {
        flat::buffers(&self.network)
    }

    fn set_buffers(&mut self, values: &[f32]) {
        self.network = flat::write_buffers(self.network.clone(), values);
    }

    fn gradient(&mut self, batch: &Batch, seed: u64, gradient: &mut [f32]) -> Score {
        let input = N::Input::feed(batch, &self.shape, &self.device);
        let features = self.network.features(input, &Noise::seeded(seed));
        let Some((features, targets)) = counting(features, &batch.targets) else {
            self.refresh_statistics();
            gradient.fill(0.0);
            return Score::default();
        };
        let logits = self.network.head(features);
        let shape = logits.shape();
        let mut slopes = host(logits.clone());
        let score = loss::score(&mut slopes, &targets, true);
        // The sum of logits times constants has these constants as its gradient.
        let slopes = Tensor::from_data(TensorData::new(slopes, shape), &self.device);
        let gradients = (logits * slopes).sum().backward();
        flat::read_gradients(&self.network, gradients, gradient);
        self.refresh_statistics();
        score
    }

    fn evaluate(&mut self, batch: &Batch) -> Score {
        let network = self.network.valid();
        let device = self.device.clone().without_autodiff();
        let input = N::Input::feed(batch, &self.shape, &device);
        let features = network.features(input, &Noise::none());
        match counting(features, &batch.targets) {
            Some((features, targets)) => {
                loss::score(&mut host(network.head(features)), &targets, false)
            }
            None => Score::default(),
        }
    }
}

impl Feed for Tensor<4> {
    fn feed(batch: &Batch, shape: &[usize], device: &Device) -> Self {
        let Input::Pixels(pixels) = &batch.input else {
            panic!("a network for images was given tokens");
        };
        let shape = [batch.len, shape[0], shape[1], shape[2]];
        Tensor::from_data(TensorData::new(pixels.clone(), shape), device)
    }
}

impl Feed for Tensor<2, Int> {
    fn feed(batch: &Batch, shape: &[usize], device: &Device) -> Self {
        let Input::Tokens(tokens) = &batch.input else {
            panic!("a network for text was given images");
        };
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        Tensor::from_data(TensorData::new(tokens, [batch.len, shape[0]]), device)
    }
}

/// The rows whose targets count, and these targets; nothing if there is none.
fn counting(features: Tensor<2>, targets: &[u32]) -> Option<(Tensor<2>, Vec<u32>)> {
    assert_eq!(
        features.dims()[0],
        targets.len(),
        "one target for each answer"
    );
    let rows: Vec<i64> = (0i64..)
        .zip(targets)
        .filter(|&(_, &target)| target != IGNORE)
        .map(|(row, _)| row)
        .collect();
    if rows.is_empty() {
        return None;
    }
    if rows.len() == targets.len() {
        return Some((features, targets.to_vec()));
    }
    let counted = rows.iter().map(|&row| targets[row as usize]).collect();
    let count = rows.len();
    let device = features.device();
    let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [count]), &device);
    Some((features.select(0, rows), counted))
}

fn host(logits: Tensor<2>) -> Vec<f32> {
    logits
        .into_data()
        .try_into_vec()
        .expect("all devices compute in f32")
}
