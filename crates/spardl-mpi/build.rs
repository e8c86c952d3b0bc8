//! Compiles `src/in_place.c` with the same MPI that `mpi-sys` finds (`MPICC` picks one).

fn main() {
    println!("cargo:rerun-if-changed=src/in_place.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    let library = build_probe_mpi::probe().unwrap_or_else(|errors| {
        panic!(
            "no MPI found ({} places searched): install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev",
            errors.len()
        )
    });
    let mut build = cc::Build::new();
    match library.mpicc {
        Some(mpicc) => build.compiler(mpicc),
        None => build.includes(library.include_paths),
    };
    build.file("src/in_place.c").compile("spardl_mpi_in_place");
}
