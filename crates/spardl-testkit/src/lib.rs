//! Oracles, generators and checks for the tests of the workspace. Not published.

#![forbid(unsafe_code)]

pub mod check;
pub mod configurations;
pub mod generate;
pub mod oracle;
mod trial;

pub use trial::{Sent, Trial};
