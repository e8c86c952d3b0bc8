//! Fuzz targets of spardl: bytes from outside give an error or a valid result, never a panic.
//!
//! A target is a function of a slice of bytes that panics if a law is broken; it takes its parameters
//! from the first bytes. The files in `tests/` run them on random bytes, as ordinary
//! bounded tests on stable Rust; `PROPTEST_CASES=100000000 cargo test -p spardl-fuzz` runs longer. Any
//! fuzzer can drive it in one line: `fuzz_target!(|data: &[u8]| { spardl_fuzz::codec::list(data); })`.
//!
//! What reads files and arguments belongs to the command, and so do its targets (`spardl_cli::fuzz`).
//!
//! [`soak`] runs all of them for a set time: `cargo run --profile soak -p spardl-fuzz --bin soak -- 3600`.
//!
//! Not `bolero`: its derive crate demands `indexmap` 2.11.2 exactly, and so does then the whole workspace.

#![forbid(unsafe_code)]

pub mod codec;
pub mod resume;
pub mod soak;
pub mod state;

use std::hash::{DefaultHasher, Hash, Hasher};

/// What came of an input, as a number: an input that ends as none did before it is worth changing further.
pub type Outcome = u64;

/// The outcome of an input that says nothing.
pub const NOTHING: Outcome = 0;

/// The outcome that `what` describes.
pub fn outcome(what: impl Hash) -> Outcome {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A complaint without its numbers and what it quotes, so that there are few of them.
pub fn words(complaint: &str) -> String {
    let unquoted = complaint.split(['\'', '"', '`']).step_by(2);
    let letters = unquoted.map(|part| part.replace(|c: char| !c.is_ascii_alphabetic(), ""));
    letters.collect()
}
