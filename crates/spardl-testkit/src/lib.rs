//! Oracles, generators and checks for the tests of the workspace. Not published.

#![forbid(unsafe_code)]

pub mod check;
pub mod configurations;
pub mod generate;
