//! Four workers in threads of one process: every step replaces each worker's gradient by the mean of the update.
//!
//! `cargo run --release -p spardl --example threads`
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use spardl::{Reducer, Transport, run_workers};

const ELEMENTS: u32 = 10_000;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let results = run_workers(4, |transport| {
        let rank = transport.world().rank().get();
        let mut reducer = Reducer::builder("spardl")
            .density(0.01)
            .build(transport, ELEMENTS)?;
        let mut parameters = vec![0.0; ELEMENTS as usize];
        let mut reports = Vec::new();
        for step in 0..5 {
            let mut gradient = gradient(rank, step);
            reports.push(reducer.all_reduce(&mut gradient)?);
            for (parameter, update) in parameters.iter_mut().zip(&gradient) {
                *parameter -= 0.1 * update;
            }
        }
        Ok::<_, spardl::Error>((parameters, reports))
    })?;
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (step, report) in results[0].1.iter().enumerate() {
        println!("step {step}: {report}");
    }
    let first = &results[0].0;
    let same = results.iter().all(|(parameters, _)| parameters == first);
    assert!(same, "the same bits everywhere");
    Ok(())
}

/// Stands for a backward pass.
fn gradient(rank: u32, step: u32) -> Vec<f32> {
    let value = |i| ((i * 7 + rank * 13 + step * 29) % 101) as f32 - 50.0;
    (0..ELEMENTS).map(value).collect()
}
