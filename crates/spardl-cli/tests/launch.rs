//! How spardl behaves under launchers; without MPI, so that it runs everywhere. With MPI: scripts/test-mpi.

use std::process::{Command, Output};

use serde_json::Value;

/// Whatever launched the test itself must not count.
const VARIABLES: [&str; 8] = [
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_STEP_ID",
    "SLURM_JOB_ID",
    "SLURM_NTASKS",
];

fn run(arguments: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spardl"));
    command.args(arguments.split_whitespace());
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.envs(environment.iter().copied());
    command.output().expect("the binary runs")
}

#[cfg(not(feature = "mpi"))]
fn refused(arguments: &str, environment: &[(&str, &str)]) -> String {
    let output = run(arguments, environment);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    assert!(output.stdout.is_empty(), "{arguments}");
    String::from_utf8(output.stderr).expect("text")
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_says_so_and_how_to_get_one() {
    let complaint = refused("bench --transport mpi", &[]);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("built without MPI"), "{complaint}");
    assert!(complaint.contains("--features mpi"), "{complaint}");

    let four = [("OMPI_COMM_WORLD_SIZE", "4")];
    let complaint = refused("bench", &four);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    let words = "started 4 ranks (OMPI_COMM_WORLD_SIZE=4) but this spardl was built without MPI";
    assert!(complaint.contains(words), "{complaint}");

    // The other ranks leave the words to rank 0.
    let other = [("PMI_SIZE", "4"), ("PMI_RANK", "2")];
    assert_eq!(refused("bench", &other), "");
}

#[test]
fn threads_run_under_a_launcher_when_asked_for() {
    let small = "bench --transport threads --elements 100 --iterations 1 --warmup 0 --workers 2";
    let output = run(small, &[("OMPI_COMM_WORLD_SIZE", "4")]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("workers as threads"));
}

#[test]
fn the_engine_has_no_row_without_mpi() {
    let output = run("bench --methods dense,mpi-allreduce", &[]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("mpi-allreduce needs MPI"), "{complaint}");
}

#[test]
fn a_log_has_what_was_done() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/log");
    let small = "bench --elements 100 --iterations 1 --warmup 0 --workers 2 --methods spardl";
    let output = run(&format!("{small} --log-dir {folder}"), &[]);
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(format!("{folder}/rank-0.log")).expect("a log");
    assert!(log.contains("spardl, P = 2, n = 100"), "{log}");
    for place in [
        format!("{folder}/rank-0.log"),
        format!("{folder}/rank-0.log/below"),
    ] {
        let output = run(&format!("{small} --log-dir {place}"), &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains("--log-dir"), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
}

#[test]
fn the_doctor_says_what_is_here() {
    let output = run("doctor", &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    for word in ["launcher   none", "MPI", "cores", "SIMD", "warnings   none"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let output = run("doctor --format json", &[]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["cores"].as_u64() > Some(0), "{found}");
    assert_eq!(found["launcher"], Value::Null, "{found}");

    let script = [
        ("SLURM_JOB_ID", "77"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_PROCID", "0"),
    ];
    let output = run("doctor", &script);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("without srun"), "{text}");
}

#[cfg(not(feature = "mpi"))]
#[test]
fn the_doctor_warns_of_ranks_without_mpi() {
    let output = run("doctor", &[("OMPI_COMM_WORLD_SIZE", "4")]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("mpiexec of Open MPI (OMPI_COMM_WORLD_SIZE=4)"));
    assert!(
        text.contains("warning") && text.contains("built without MPI"),
        "{text}"
    );
}
