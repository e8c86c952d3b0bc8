//! What every transport must do, as tests that any transport can run.
//!
//! A scenario is a function that every worker of a world runs on its own transport; it panics when the transport breaks a
//! rule.

mod toy;

pub use toy::Toy;
