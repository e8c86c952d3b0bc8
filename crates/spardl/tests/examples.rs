//! Every example runs.

#[path = "../examples/overlap.rs"]
mod overlap;
#[path = "../examples/save_restore.rs"]
mod save_restore;
#[path = "../examples/threads.rs"]
mod threads;

#[test]
fn workers_in_threads_agree() {
    threads::main().expect("it ends well");
}

#[test]
fn buckets_overlap_and_a_step_is_decided_about_at_its_end() {
    overlap::main().expect("it ends well");
}

#[test]
fn a_restored_run_goes_on_bit_for_bit() {
    save_restore::main().expect("it ends well");
}
