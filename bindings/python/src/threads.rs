//! Threads for the pass, shared by all workers of the process that ask for the same number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use spardl_core::parallel::Parallel;

use crate::config;

static POOLS: Mutex<BTreeMap<usize, Arc<dyn Parallel>>> = Mutex::new(BTreeMap::new());

/// The pool of that many threads; none are started before they are asked for.
pub(crate) fn shared(threads: usize) -> PyResult<Arc<dyn Parallel>> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Ok(Arc::clone(pool));
    }
    let pool = spardl_drive::pool(threads).map_err(config)?;
    pools.insert(threads, Arc::clone(&pool));
    Ok(pool)
}
