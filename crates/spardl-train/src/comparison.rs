//! Have all workers the same?

use spardl::{Rank, Transport};

use crate::TrainError;
use crate::data::Fingerprint;
use crate::learner::Learner;

/// Have all workers the same data?
pub(crate) fn compare_data<T: Transport>(
    learner: &mut Learner<'_, T>,
    data: &Fingerprint,
) -> Result<(), TrainError> {
    let Fingerprint { train, test } = data;
    let ranks = unlike_first(learner, format!("{train}{test}").as_bytes())?;
    match ranks.is_empty() {
        true => Ok(()),
        false => Err(TrainError::OtherData { ranks }),
    }
}

/// Have all workers the same parameters, bit for bit?
pub(crate) fn compare_replicas<T: Transport>(
    learner: &mut Learner<'_, T>,
) -> Result<(), TrainError> {
    let hash = learner.hash();
    let ranks = unlike_first(learner, hash.as_bytes())?;
    let step = learner.step();
    match ranks.is_empty() {
        true => Ok(()),
        false => Err(TrainError::Diverged { step, ranks }),
    }
}

/// The workers that do not say the same as rank 0.
fn unlike_first<T: Transport>(
    learner: &mut Learner<'_, T>,
    mine: &[u8],
) -> Result<Vec<Rank>, TrainError> {
    let all = learner.gather(mine)?;
    let ranks = (0u32..).map(Rank::new).zip(&all);
    let unlike = ranks.filter(|(_, said)| **said != all[0]);
    Ok(unlike.map(|(rank, _)| rank).collect())
}
