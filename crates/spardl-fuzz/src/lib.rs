//! Fuzz targets of spardl: bytes from a peer give an error or a valid result, never a panic.
//!
//! A target is a function of a slice of bytes that panics if a law is broken; it takes its parameters
//! from the first bytes. The file of the same name in `tests/` runs it on random bytes, as an ordinary
//! bounded test on stable Rust; `PROPTEST_CASES=100000000 cargo test -p spardl-fuzz` runs longer. Any
//! fuzzer can drive it in one line: `fuzz_target!(|data: &[u8]| spardl_fuzz::codec::list(data))`.
//!
//! [`soak`] runs all of them for a set time: `cargo run --release -p spardl-fuzz --bin soak -- 3600`.
//!
//! Not `bolero`: its derive crate demands `indexmap` 2.11.2 exactly, and so does then the whole workspace.

#![forbid(unsafe_code)]

pub mod codec;
pub mod resume;
pub mod soak;
pub mod state;
