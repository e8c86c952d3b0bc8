//! Batches made ahead, in a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::{DataError, Dataset, Sampler, seed_for};
use crate::Batch;

/// The batches of a worker's steps, in order, made ahead in a thread: at most two that nobody has asked for yet.
///
/// It ends after the last step of the last epoch, or with the first error. Dropping it ends the thread.
#[derive(Debug)]
pub struct Prefetch {
    /// Taken when the thread is to end: that is how it learns that nobody listens.
    receiver: Option<Receiver<Result<Prepared, DataError>>>,
    thread: Option<JoinHandle<()>>,
}

/// A batch and its place in the training.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The epoch, from 0.
    pub epoch: usize,
    /// The step of the epoch, from 0.
    pub step: usize,
    /// What the augmentation was drawn from: [`seed_for`] this worker and step.
    pub seed: u64,
    /// The samples.
    pub batch: Batch,
}

impl Prefetch {
    /// Starts at a step of an epoch and goes on to the end of epoch `epochs - 1`. A `step` past the end of its epoch means the
    /// start of the next.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        dataset: Arc<dyn Dataset>,
        sampler: Sampler,
        (epoch, step): (usize, usize),
        epochs: usize,
    ) -> Result<Self, DataError> {
        // One waits in the channel and one in the thread's hands: two.
        let (sender, receiver) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("data-{}", sampler.rank()))
            .spawn(move || produce(&*dataset, sampler, (epoch, step), epochs, &sender))
            .map_err(|cause| DataError::Thread(cause.to_string()))?;
        Ok(Self {
            receiver: Some(receiver),
            thread: Some(thread),
        })
    }
}

impl Iterator for Prefetch {
    type Item = Result<Prepared, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.receiver.as_ref()?.recv().ok()
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        drop(self.receiver.take());
        if let Some(thread) = self.thread.take() {
            // A panic was caught and reported already.
            let _ = thread.join();
        }
    }
}

fn produce(
    dataset: &dyn Dataset,
    sampler: Sampler,
    (mut epoch, mut step): (usize, usize),
    epochs: usize,
    sender: &SyncSender<Result<Prepared, DataError>>,
) {
    loop {
        if step >= sampler.steps() {
            (epoch, step) = (epoch + 1, 0);
        }
        if epoch >= epochs {
            return;
        }
        // Nothing of the data set is used after a panic, so no half-made state can be seen.
        let made = catch_unwind(AssertUnwindSafe(|| prepare(dataset, sampler, epoch, step)))
            .unwrap_or_else(|panic| Err(DataError::Thread(message(&*panic))));
        let failed = made.is_err();
        if sender.send(made).is_err() || failed {
            return;
        }
        step += 1;
    }
}

fn prepare(
    dataset: &dyn Dataset,
    sampler: Sampler,
    epoch: usize,
    step: usize,
) -> Result<Prepared, DataError> {
    let seed = seed_for(sampler.seed(), epoch, step, sampler.rank());
    let batch = dataset.batch(&sampler.step(epoch, step), Some(seed))?;
    Ok(Prepared {
        epoch,
        step,
        seed,
        batch,
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").replace('\n', " ")
}
