//! Workers as processes of an MPI job: the transport between machines.
//!
//! [`Mpi::init`] starts MPI (or joins one that runs), [`Mpi::transport`] makes a transport on a communicator of its own.
//! `mpiexec` or `srun` start the ranks; this crate builds against Open MPI and MPICH, whichever `mpicc` (or `MPICC`) is.
//! It needs libmpi, so the workspace's default build leaves it out: `cargo build -p spardl-mpi`.
//!
//! ```no_run
//! # use spardl_core::{Algorithm, Input, Layout};
//! # use spardl_drive::Driver;
//! # fn train(algorithm: &dyn Algorithm, gradient: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
//! let mpi = spardl_mpi::Mpi::init()?;
//! let mut driver = Driver::for_layouts(mpi.transport()?, algorithm, &[Layout::flat(3)])?;
//! driver.all_reduce(&[Input::new(gradient, 1, 0)])?;
//! # Ok(()) }
//! ```
//!
//! # How a job ends
//!
//! A transport that is dropped says goodbye to its peers, waits for its own sends and a little for the others. When the last user of MPI is gone, MPI
//! is finalized, which waits for all ranks as in every MPI program. A job that cannot end like that is aborted, after the
//! errors were returned and printed: when MPI itself failed, when the rank panics, and when the transport's last step failed
//! and some peer does not say goodbye either within [`MpiTransport::set_grace`]. A rank that dies ends the job at once:
//! the launcher sees to that. The deadlines are for ranks that hang.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mpi`] | MPI, initialised |
//! | [`transport`] | the transport |
//! | [`yardsticks`] | MPI's own sum and the time of a message, to compare with |
//! | [`bare`] | a bare loop of messages, to compare with |
//! | [`error`] | why MPI could not be used |
//! | `envelope` | what goes with every message |
//! | `order` | messages of one sender in the order they were sent |
//! | `idle` | what a rank does while there is nothing to do |
//! | `watchdog` | a deadline for calls that block |
//! | `raw` | all `unsafe` |

#![deny(unsafe_code)]

pub mod bare;
mod envelope;
pub mod error;
mod idle;
pub mod mpi;
mod order;
#[expect(unsafe_code, reason = "the one place where MPI is called")]
mod raw;
pub mod transport;
mod watchdog;
pub mod yardsticks;

pub use error::MpiError;
pub use mpi::Mpi;
pub use transport::MpiTransport;
pub use yardsticks::Yardsticks;
