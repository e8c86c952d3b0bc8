//! A run that is stopped, saved and restored goes on bit for bit.
//!
//! `cargo run --release -p spardl --example save_restore`
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use spardl::{Error, Reducer, Saved, Transport, run_workers};

const ELEMENTS: u32 = 2_000;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let straight = run(0..10, vec![None; 4])?;
    // Each worker writes what only it knows: its residuals and the state of its method, as a safetensors file.
    let files = run(0..4, vec![None; 4])?.into_iter().map(|(_, file)| file);
    let saved = files.map(|file| Saved::from_bytes(&file).map(Some));
    let resumed = run(4..10, saved.collect::<Result<_, _>>()?)?;
    assert!(straight == resumed, "as if it had not been stopped");
    println!("ten steps are four steps, a restore and six more, bit for bit");
    Ok(())
}

/// What a worker has at the end: its last update, and what it keeps as bytes.
type Ended = (Vec<f32>, Vec<u8>);

/// The end of each worker after these steps from these states.
fn run(
    steps: std::ops::Range<u32>,
    states: Vec<Option<Saved>>,
) -> Result<Vec<Ended>, Box<dyn std::error::Error>> {
    let results = run_workers(4, |transport| {
        let rank = transport.world().rank();
        let mut reducer = Reducer::builder("spardl")
            .dense_steps(2)
            .build(transport, ELEMENTS)?;
        if let Some(state) = &states[rank.index()] {
            reducer.restore(state)?;
        }
        let mut update = Vec::new();
        for step in steps.clone() {
            let value = |i| ((i * 31 + rank.get() * 7 + step * 3) % 97) as f32 - 48.0;
            update = (0..ELEMENTS).map(value).collect();
            reducer.all_reduce(&mut update)?;
        }
        Ok::<_, Error>((update, reducer.save().to_bytes()))
    })?;
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}
