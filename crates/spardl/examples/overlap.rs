//! Buckets that are reduced while the backward pass computes the next ones, and a step that is decided about at its end.
//!
//! `cargo run --release -p spardl --example overlap`
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use spardl::{Layout, OnNonFinite, Outcome, Reducer, Transport, Update, run_workers};

/// The tensors of a network, the last layer first: its gradient is there first.
const LAYERS: [(&str, [usize; 2]); 3] = [
    ("head", [10, 64]),
    ("middle", [64, 64]),
    ("first", [64, 784]),
];

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let results = run_workers(3, |transport| {
        let rank = transport.world().rank().get();
        let layouts = LAYERS.map(|(name, shape)| Layout::new([(name, shape.to_vec())]));
        let layouts = layouts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut reducer = Reducer::builder("spardl")
            .density(0.02)
            .on_non_finite(OnNonFinite::SkipStep)
            .build_for(transport, layouts)?;
        let mut lines = Vec::new();
        for step in 0..4 {
            for bucket in 0..reducer.buckets() {
                // Each bucket is on its way while the next one is computed.
                let gradient = backward(rank, step, reducer.range(bucket).len());
                reducer.begin(bucket, &gradient)?;
            }
            let report = reducer.wait()?;
            let entries = (0..reducer.buckets()).map(|bucket| match reducer.update(bucket) {
                Update::Sparse(sparse) => sparse.nnz(),
                Update::Dense(dense) => dense.len(),
            });
            lines.push(format!(
                "{report}, by bucket {:?}",
                entries.collect::<Vec<_>>()
            ));
            // A loss scaler would look at the outcome here; the residuals of all buckets follow the decision.
            match report.outcome {
                Outcome::Updated => reducer.commit()?,
                Outcome::Skipped(_) => reducer.discard(),
            }
        }
        Ok::<_, spardl::Error>(lines)
    })?;
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    for line in &results[0] {
        println!("{line}");
    }
    assert!(
        results[0][2].starts_with("skipped"),
        "the third step had a NaN"
    );
    Ok(())
}

/// Stands for the backward pass of one layer; on rank 1 the third step goes wrong.
fn backward(rank: u32, step: u32, len: usize) -> Vec<f32> {
    let value = |i| ((i * 31 + rank * 7 + step * 3) % 97) as f32 - 48.0;
    let mut gradient: Vec<f32> = (0..len as u32).map(value).collect();
    if (rank, step) == (1, 2) {
        gradient[0] = f32::NAN;
    }
    gradient
}
