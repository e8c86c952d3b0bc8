//! How well all workers do together.

use spardl::{Rank, Transport};

use crate::data::share;
use crate::learner::Learner;
use crate::record::Totals;
use crate::{Data, Score, TrainError};

/// Samples of a test batch; how they are cut has no influence on the score.
const TEST_BATCH: usize = 100;

/// The score of the test set, each worker on its share, with the mean of all workers' running statistics.
pub(crate) fn evaluate<T: Transport>(
    learner: &mut Learner<'_, T>,
    data: &Data,
) -> Result<Score, TrainError> {
    average_buffers(learner)?;
    let world = learner.world();
    let test = &data.test;
    let mine = share(test.len(), world.size() as usize, world.rank().index());
    let samples: Vec<u32> = mine.map(|sample| sample as u32).collect();
    let mut score = Score::default();
    for batch in samples.chunks(TEST_BATCH) {
        score += learner.model().evaluate(&test.batch(batch, None)?);
    }
    sum(learner, score)
}

/// The sum of all workers' scores, added in rank order.
pub(crate) fn sum<T: Transport>(
    learner: &mut Learner<'_, T>,
    mine: Score,
) -> Result<Score, TrainError> {
    let mut sum = Score::default();
    let all = learner.gather(&mine.to_bytes())?;
    for (rank, theirs) in (0u32..).map(Rank::new).zip(&all) {
        sum += Score::from_bytes(theirs).ok_or(TrainError::VersionMismatch(rank))?;
    }
    Ok(sum)
}

/// What each worker counted, in rank order.
pub(crate) fn all_totals<T: Transport>(
    learner: &mut Learner<'_, T>,
    mine: &Totals,
) -> Result<Vec<Totals>, TrainError> {
    let all = learner.gather(&serde_json::to_vec(mine).expect("numbers"))?;
    let ranks = (0u32..).map(Rank::new).zip(&all);
    let read = |(rank, said): (Rank, &Vec<u8>)| {
        serde_json::from_slice(said).map_err(|_| TrainError::VersionMismatch(rank))
    };
    ranks.map(read).collect()
}

/// Running statistics are a worker's own; tested is with their mean, and all go on from it.
fn average_buffers<T: Transport>(learner: &mut Learner<'_, T>) -> Result<(), TrainError> {
    let mine = learner.model().buffers();
    if mine.is_empty() {
        return Ok(());
    }
    let bytes: Vec<u8> = mine.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all = learner.gather(&bytes)?;
    let mut mean = vec![0.0; mine.len()];
    for (rank, theirs) in (0u32..).map(Rank::new).zip(&all) {
        if theirs.len() != bytes.len() {
            return Err(TrainError::VersionMismatch(rank));
        }
        for (sum, value) in mean.iter_mut().zip(theirs.chunks_exact(4)) {
            *sum += f32::from_le_bytes([value[0], value[1], value[2], value[3]]);
        }
    }
    let workers = all.len() as f32;
    mean.iter_mut().for_each(|value| *value /= workers);
    learner.model().set_buffers(&mean);
    Ok(())
}
