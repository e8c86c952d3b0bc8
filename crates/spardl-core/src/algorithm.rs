//! A method as the outside sees it: identity, configuration, cost, laws, and the machines it makes.

use std::fmt;
use std::ops::RangeInclusive;

use crate::codec::ValueType;
use crate::collective::{Collective, Machine};
use crate::error::ConfigError;
use crate::feedback::Feedback;
use crate::header::{Fingerprint, HEADER_LEN, MAX_BODY};
use crate::world::World;

/// Configuration and identity of a method; makes the machines.
pub trait Algorithm: fmt::Debug + Send + Sync {
    /// The registry name.
    fn name(&self) -> &'static str;

    /// The whole configuration in one line. Workers refuse messages from a worker whose line differs.
    fn describe(&self) -> String;

    /// How values travel.
    fn value_type(&self) -> ValueType {
        ValueType::default()
    }

    /// One worker's machine for a bucket of this layout.
    ///
    /// # Errors
    /// When the configuration does not fit the world or the layout.
    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError>;

    /// What a step costs a worker. Tests hold every method to it.
    fn cost(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Cost;

    /// What a usual step takes along the longest chain of its messages. By default what it costs at most; methods whose lists
    /// are usually shorter than their cap, or whose busiest worker is not the one that all wait for, say so.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Estimate {
        self.cost(workers, layout, k, step).into()
    }

    /// Why gradients cannot be found at will that make a step send [`Cost::bytes_max`]; `None` when the same full gradient on
    /// all workers does, and then tests hold the bound to what is sent.
    fn loose_bound(&self) -> Option<&'static str> {
        match self.laws().support {
            Support::FourK | Support::FourKPerWorker => {
                Some("as many entries as the cap would have to clear the threshold")
            }
            _ => None,
        }
    }

    /// What the method promises. Tests hold every method to it.
    fn laws(&self) -> Laws;

    /// Refuses a step of `k` entries that has to send a message of more than `limit` bytes: of the messages of a step, one is
    /// at least as long as their mean. Longer ones that this does not see are refused in the step itself.
    ///
    /// # Errors
    /// [`ConfigError::MessageTooLong`] with the limit.
    fn check_messages(
        &self,
        workers: u32,
        layout: &Layout,
        k: usize,
        limit: usize,
    ) -> Result<(), ConfigError> {
        // What a message can hold at most: all elements of all workers, with index, value and tags.
        const ENTRY: u64 = 16;
        let most = u64::from(layout.len()).saturating_mul(ENTRY * u64::from(workers));
        if most <= limit as u64 || self.loose_bound().is_some() {
            return Ok(());
        }
        let cost = self.cost(workers, layout, k, 0);
        match cost.bytes_max.checked_div(cost.messages) {
            Some(mean) if mean > limit as u64 => Err(ConfigError::MessageTooLong {
                bytes: usize::try_from(mean).unwrap_or(usize::MAX),
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// One worker's collective for a bucket of this layout.
    ///
    /// # Errors
    /// As [`Algorithm::machine`], and when a step must send a message that is longer than its header can say, whatever k is.
    fn collective(&self, world: World, layout: &Layout) -> Result<Collective, ConfigError> {
        self.check_messages(world.size(), layout, 0, HEADER_LEN + MAX_BODY)?;
        let machine = self.machine(world, layout)?;
        let len = layout.len();
        let feedback = if self.laws().keeps_residual {
            Feedback::new(len as usize)
        } else {
            Feedback::without_residual(len as usize)
        };
        let fingerprint = Fingerprint::new(&self.describe(), world.size(), layout);
        Ok(Collective::new(world, fingerprint, feedback, machine))
    }
}

/// What one step costs the busiest worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Rounds; a single number where the schedule is fixed.
    pub rounds: RangeInclusive<u32>,
    /// The most messages a worker sends.
    pub messages: u64,
    /// The most bytes a worker sends, headers included, with the method's own coding of indices.
    pub bytes_max: u64,
}

/// What a step takes on a network where messages do not meet: `rounds` times the latency of a message and `bytes` at the rate
/// of a worker's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Messages of the longest chain.
    pub rounds: u32,
    /// Bytes of these messages, headers included.
    pub bytes: u64,
}

/// The busiest worker with full lists, as if all waited for it.
impl From<Cost> for Estimate {
    fn from(cost: Cost) -> Self {
        Self {
            rounds: *cost.rounds.end(),
            bytes: cost.bytes_max,
        }
    }
}

/// What a method promises about every step, and what tests must know of it. The default promises all there is to promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laws {
    /// Nothing is lost: inputs + residuals = update + next residuals, per element.
    pub conserves: bool,
    /// Does a worker keep a residual between steps?
    pub keeps_residual: bool,
    /// How many entries the update may have.
    pub support: Support,
    /// With `k >= n` the update is the full sum (up to value rounding).
    pub lossless_when_full: bool,
    /// Multiplying all inputs by a power of two does the same to update and residuals.
    pub scales: bool,
    /// Entries as large as the k-th are sent too; otherwise nothing is when all are equal.
    pub sends_ties: bool,
    /// Every index travels with a value; otherwise lists of indices travel alone, too.
    pub pairs: bool,
}

impl Default for Laws {
    fn default() -> Self {
        Self {
            conserves: true,
            keeps_residual: true,
            support: Support::Any,
            lossless_when_full: true,
            scales: true,
            sends_ties: true,
            pairs: true,
        }
    }
}

/// A bound on the entries of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// At most `k`.
    K,
    /// At most `k` from each worker.
    KPerWorker,
    /// At most four times `k`, the cap of threshold methods.
    FourK,
    /// At most four times `k` from each worker.
    FourKPerWorker,
    /// Anything up to the length of the bucket.
    Any,
}

impl Support {
    /// The bound in entries.
    pub fn bound(self, workers: u32, len: u32, k: usize) -> usize {
        let workers = workers as usize;
        let bound = match self {
            Self::K => k,
            Self::KPerWorker => k.saturating_mul(workers),
            Self::FourK => k.saturating_mul(4).max(workers),
            Self::FourKPerWorker => k.saturating_mul(4 * workers).max(workers),
            Self::Any => len as usize,
        };
        bound.min(len as usize)
    }
}

/// The tensors that make up a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    len: u32,
    parts: Vec<Part>,
}

/// One tensor of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its shape; the product is its length.
    pub shape: Vec<usize>,
    /// Where it begins in the bucket.
    pub offset: u32,
}

impl Part {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Has it no elements?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Layout {
    /// A bucket of `len` elements without known structure: one part of one dimension.
    pub fn flat(len: u32) -> Self {
        let part = Part {
            name: "bucket".to_owned(),
            shape: vec![len as usize],
            offset: 0,
        };
        Self {
            len,
            parts: vec![part],
        }
    }

    /// A bucket of these tensors, one after the other.
    ///
    /// # Errors
    /// When they hold 2^32 elements or more.
    pub fn new<S: Into<String>>(
        tensors: impl IntoIterator<Item = (S, Vec<usize>)>,
    ) -> Result<Self, ConfigError> {
        let (mut parts, mut total) = (Vec::new(), 0u64);
        for (name, shape) in tensors {
            let offset =
                u32::try_from(total).map_err(|_| ConfigError::BucketTooLarge { len: total })?;
            total = shape
                .iter()
                .try_fold(1u64, |product, &side| product.checked_mul(side as u64))
                .and_then(|len| total.checked_add(len))
                .unwrap_or(u64::MAX);
            parts.push(Part {
                name: name.into(),
                shape,
                offset,
            });
        }
        let len = u32::try_from(total).map_err(|_| ConfigError::BucketTooLarge { len: total })?;
        Ok(Self { len, parts })
    }

    /// The number of elements.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Has the bucket no elements?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tensors in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}
