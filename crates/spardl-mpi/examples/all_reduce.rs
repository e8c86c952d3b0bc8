//! Every rank of an MPI job replaces its gradient by the mean of the update, in two buckets.
//!
//! `mpiexec -n 4 cargo run --release -p spardl-mpi --example all_reduce`
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use spardl::{Layout, Reducer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mpi = spardl_mpi::Mpi::init()?;
    let layouts = vec![Layout::flat(8_000), Layout::flat(2_000)];
    let mut reducer = Reducer::builder("spardl")
        .density(0.01)
        .build_for(mpi.transport()?, layouts)?;
    let rank = reducer.world().rank().get();
    let value = |i: u32| ((i * 7 + rank * 13) % 101) as f32 - 50.0;
    let mut gradient: Vec<f32> = (0..10_000).map(value).collect();
    let report = reducer.all_reduce(&mut gradient)?;
    // All ranks show the same bits.
    let bytes: Vec<u8> = gradient.iter().flat_map(|v| v.to_le_bytes()).collect();
    let all = reducer.gather(&bytes)?;
    assert!(
        all.iter().all(|theirs| *theirs == bytes),
        "the same bits everywhere"
    );
    if rank == 0 {
        println!("{} ranks: {report}", all.len());
    }
    Ok(())
}
