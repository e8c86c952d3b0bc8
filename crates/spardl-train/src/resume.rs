//! How a run goes on from a checkpoint.
//!
//! What becomes of each worker's replica is in `learner/load.rs`. With other workers or another batch size the epoch restarts,
//! unless it was whole: its samples are shared out anew.

use serde::{Deserialize, Serialize};
use spardl::{Rank, Transport};

use crate::TrainError;
use crate::checkpoint::{Checkpointing, PLACE, Place};
use crate::error::Mismatch;
use crate::learner::Learner;
use crate::progress::Progress;
use crate::record::{ByTime, Watch};
use crate::store::{self, Arrays, Checkpoint, Damage, MODEL, Store};

/// What a worker says about the files that it needs of a checkpoint.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Whole,
    Damaged(Damage),
}

/// Goes on from the newest checkpoint that is whole on all workers, in a run of so many epochs.
pub(crate) fn resume<T: Transport>(
    checkpointing: &Checkpointing<'_>,
    learner: &mut Learner<'_, T>,
    epochs: u32,
    watch: &mut dyn Watch,
) -> Result<Progress, TrainError> {
    let store = checkpointing.store();
    let Some(checkpoint) = agree_on_checkpoint(store, learner, watch)? else {
        let dir = store.dir().display().to_string();
        return Err(match store.list()?.is_empty() {
            true => TrainError::NoCheckpoint { dir },
            false => TrainError::AllDamaged { dir },
        });
    };
    let progress = load(checkpointing, &checkpoint, learner)?;
    let done = progress.epochs_begun();
    if done > epochs {
        let (step, cause) = (checkpoint.step(), Mismatch::PastTheEnd { done, epochs });
        return Err(TrainError::Mismatch { step, cause });
    }
    if learner.is_first() {
        for dir in store.set_aside_after(checkpoint.step())? {
            watch.note(&format!("set aside as {}", dir.display()));
        }
        let (step, dir) = (checkpoint.step(), checkpoint.dir().display());
        watch.note(&format!("going on after step {step}: {dir}"));
        if learner.may_lose() {
            watch.note("the method does not keep all that it does not deliver: part of what waits from before will be lost");
        }
    }
    Ok(progress)
}

/// The newest checkpoint of which every worker finds the files it needs whole. One that may be whole but cannot be read,
/// here and now, is not passed over.
fn agree_on_checkpoint<T: Transport>(
    store: &Store,
    learner: &mut Learner<'_, T>,
    watch: &mut dyn Watch,
) -> Result<Option<Checkpoint>, TrainError> {
    let world = learner.world();
    let (rank, workers) = (world.rank().index(), world.size() as usize);
    let mine = serde_json::to_vec(&store.list()?).expect("numbers");
    let all = learner.gather(&mine)?;
    for step in read_said::<Vec<u64>>(Rank::new(0), &all[0])? {
        let checked = store.check(step, |checkpoint| {
            let mut needed = checkpoint.needed_by(rank, workers);
            needed.push(predecessor(checkpoint, rank));
            needed
        });
        let verdict = match &checked {
            Ok(_) => Verdict::Whole,
            Err(damage) => Verdict::Damaged(damage.clone()),
        };
        let all = learner.gather(&serde_json::to_vec(&verdict).expect("words and numbers"))?;
        let mut damages = Vec::new();
        for (rank, said) in (0u32..).map(Rank::new).zip(&all) {
            if let Verdict::Damaged(damage) = read_said(rank, said)? {
                damages.push(damage);
            }
        }
        if let Some(at) = damages.iter().position(|damage| damage.remedy().is_some()) {
            let damage = damages.swap_remove(at);
            return Err(TrainError::Unreadable { damage });
        }
        match (damages.first(), checked) {
            (None, Ok(checkpoint)) => return Ok(Some(checkpoint)),
            (Some(damage), _) if learner.is_first() => {
                watch.note(&format!("{damage}; looking for the one before it"));
            }
            _ => {}
        }
    }
    Ok(None)
}

fn read_said<'s, V: Deserialize<'s>>(rank: Rank, said: &'s [u8]) -> Result<V, TrainError> {
    serde_json::from_slice(said).map_err(|_| TrainError::VersionMismatch(rank))
}

fn load<T: Transport>(
    checkpointing: &Checkpointing<'_>,
    checkpoint: &Checkpoint,
    learner: &mut Learner<'_, T>,
) -> Result<Progress, TrainError> {
    let step = checkpoint.step();
    let mismatch = |cause: Mismatch| TrainError::Mismatch { step, cause };
    let now = checkpointing.identity();
    let saved = now.of(checkpoint)?;
    let world = learner.world();
    let same_workers = checkpoint.manifest().workers() == world.size() as usize;

    let mut shared = checkpoint.read(MODEL).map_err(|e| mismatch(e.into()))?;
    learner.load_shared(&mut shared).map_err(mismatch)?;
    let old = predecessor(checkpoint, world.rank().index());
    let mut old = checkpoint.read(&old).map_err(|e| mismatch(e.into()))?;
    learner.load_buffers(&mut old).map_err(mismatch)?;
    let place = place(&old).map_err(mismatch)?;
    let mut progress = progress(place, &shared).map_err(mismatch)?;

    let needed = checkpoint.needed_by(world.rank().index(), world.size() as usize);
    let ranks: Vec<String> = needed.into_iter().filter(|name| name != MODEL).collect();
    let mut inherited = learner.inherit(ranks.len());
    for name in ranks {
        let mut arrays = checkpoint.read(&name).map_err(|e| mismatch(e.into()))?;
        learner
            .inherit_from(&mut arrays, &mut inherited)
            .map_err(mismatch)?;
        progress.score += self::place(&arrays).map_err(mismatch)?.score;
    }
    if !same_workers || !now.has_batches_of(&saved) {
        share_out_anew(
            &mut progress,
            saved.steps_per_epoch(),
            now.steps_per_epoch(),
        );
    }
    let same = same_workers && now.has_method_of(&saved);
    learner.restore(place.step, place.warming_up, inherited, same)?;
    Ok(progress)
}

/// Where the old rank was, with the records of rank 0 and no score yet.
fn progress(place: Place, shared: &Arrays<'_>) -> Result<Progress, Mismatch> {
    let entry = |name: &str| shared.metadata.get(name).cloned().unwrap_or_default();
    let unreadable = |error| Mismatch::Contents(format!("its records: {error}"));
    let density: Option<u64> =
        serde_json::from_value(entry("density_by_time")).map_err(unreadable)?;
    let by_time = density.map(|bits| ByTime {
        exchange_ms: 0.0,
        budget_ms: 0.0,
        density: f64::from_bits(bits),
    });
    Ok(Progress {
        by_time,
        epoch: place.epoch,
        step_of_epoch: place.step_of_epoch,
        seconds: place.seconds,
        epoch_began: place.epoch_began,
        totals: serde_json::from_value(entry("totals")).map_err(unreadable)?,
        epochs: serde_json::from_value(entry("epochs")).map_err(unreadable)?,
        ..Progress::default()
    })
}

fn place(arrays: &Arrays<'_>) -> Result<Place, Mismatch> {
    let numbers = arrays.u64(PLACE)?;
    Place::from_numbers(numbers)
        .ok_or_else(|| Mismatch::Contents(format!("{} numbers of the position", numbers.len())))
}

/// Other workers or another batch size: the samples of the epoch are shared out anew. One that was whole, with `before` steps,
/// is not trained again, only closed.
fn share_out_anew(progress: &mut Progress, before: u64, now: u64) {
    match progress.step_of_epoch >= before {
        true => progress.step_of_epoch = now,
        false => progress.restart_epoch(),
    }
}

/// The file of the old rank whose position and running statistics a worker goes on with.
fn predecessor(checkpoint: &Checkpoint, rank: usize) -> String {
    let old = checkpoint.manifest().workers().max(1);
    store::rank_file(rank % old, old)
}
