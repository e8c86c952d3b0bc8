//! What every transport must do, as scenarios that any transport can run.
//!
//! A scenario is a function that every worker of a world runs on its own transport; it panics when the transport breaks a
//! rule. Transports inside one process write `transport_suite!(endpoints)` in a test file, where `endpoints(size)` gives
//! the endpoints of all workers. Transports between processes run [`SCENARIOS`] in each process.

mod failures;
mod rounds;
mod toy;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub use failures::{
    a_barrier_holds_everybody_and_names_who_is_missing, a_peer_that_leaves_is_noticed,
    a_peer_that_never_answers_is_named, a_step_works_after_an_abandoned_one,
    the_last_words_of_a_peer_arrive_and_no_more_is_waited_for,
};
pub use rounds::{
    a_late_peer_is_waited_for, early_messages_are_kept_in_order,
    eight_overlapped_buckets_do_not_mix, payloads_of_every_size_arrive_whole,
    wrong_rounds_are_refused,
};
pub use toy::Toy;

use crate::transport::{Connect, Transport};
use crate::workers::run_on;

/// The world sizes to run scenarios with.
pub const SIZES: [u32; 6] = [1, 2, 3, 4, 5, 8];

/// A deadline that only a broken transport reaches.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One thing that every transport must do.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What it must do.
    pub name: &'static str,
    /// One worker's part; all workers of a world run it at the same time.
    pub run: fn(Box<dyn Transport>),
    /// Does a worker leave before the end? Engines that end the whole job then cannot run it.
    pub leaves: bool,
}

macro_rules! scenarios {
    ($($name:ident $leaves:literal,)*) => {
        &[$(Scenario { name: stringify!($name), run: $name, leaves: $leaves },)*]
    };
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = scenarios![
    payloads_of_every_size_arrive_whole false,
    eight_overlapped_buckets_do_not_mix false,
    a_late_peer_is_waited_for false,
    early_messages_are_kept_in_order false,
    wrong_rounds_are_refused false,
    a_peer_that_never_answers_is_named false,
    a_barrier_holds_everybody_and_names_who_is_missing false,
    a_step_works_after_an_abandoned_one false,
    a_peer_that_leaves_is_noticed true,
    the_last_words_of_a_peer_arrive_and_no_more_is_waited_for true,
];

/// Runs one scenario for all [`SIZES`], with a thread per worker.
///
/// # Panics
/// When the transport breaks a rule, or hangs.
pub fn check<C, E>(endpoints: E, scenario: fn(Box<dyn Transport>))
where
    C: Connect,
    C::Transport: 'static,
    E: Fn(u32) -> Vec<C> + Send + 'static,
{
    let (report, results) = mpsc::channel();
    thread::spawn(move || {
        for size in SIZES {
            let result = run_on(endpoints(size), |transport| scenario(Box::new(transport)));
            if report.send((size, result)).is_err() {
                return;
            }
        }
    });
    for size in SIZES {
        let (size, result) = results
            .recv_timeout(2 * PATIENCE)
            .unwrap_or_else(|_| panic!("{size} workers hang"));
        if let Err(error) = result {
            panic!("{size} workers: {error}");
        }
    }
}

/// Makes a test of each conformance scenario; takes a function from the number of workers to their endpoints.
#[macro_export]
macro_rules! transport_suite {
    ($endpoints:expr) => {
        $crate::transport_suite! {
            @tests $endpoints;
            payloads_of_every_size_arrive_whole
            eight_overlapped_buckets_do_not_mix
            a_late_peer_is_waited_for
            early_messages_are_kept_in_order
            wrong_rounds_are_refused
            a_peer_that_never_answers_is_named
            a_barrier_holds_everybody_and_names_who_is_missing
            a_step_works_after_an_abandoned_one
            a_peer_that_leaves_is_noticed
            the_last_words_of_a_peer_arrive_and_no_more_is_waited_for
        }
    };
    (@tests $endpoints:expr; $($scenario:ident)*) => {
        $(
            #[test]
            fn $scenario() {
                $crate::conformance::check($endpoints, $crate::conformance::$scenario);
            }
        )*

        #[test]
        fn the_suite_has_every_scenario() {
            let names = [$(stringify!($scenario)),*];
            assert!($crate::conformance::SCENARIOS.iter().map(|s| s.name).eq(names));
        }
    };
}
