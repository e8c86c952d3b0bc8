//! MPI, initialised.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::bare::{BareLoop, Plan};
use crate::error::MpiError;
use crate::raw::{self, Comm, Session};
use crate::transport::MpiTransport;
use crate::yardsticks::Yardsticks;

thread_local! {
    /// The session of this thread, so that two users share it and the last one finalizes.
    static SESSION: RefCell<Weak<Session>> = const { RefCell::new(Weak::new()) };
}

/// MPI, initialised. Finalized when this and all its transports are dropped, unless somebody else initialised it.
///
/// Not `Send`: MPI is asked for `MPI_THREAD_FUNNELED`, so one thread makes all calls.
#[derive(Clone, Debug)]
pub struct Mpi {
    session: Rc<Session>,
}

impl Mpi {
    /// Starts MPI, or joins one that was started in this process.
    ///
    /// # Errors
    /// When MPI cannot start, was already finalized, or belongs to another thread.
    pub fn init() -> Result<Self, MpiError> {
        SESSION.with_borrow_mut(|shared| {
            if let Some(session) = shared.upgrade() {
                return Ok(Self { session });
            }
            let session = Rc::new(Session::start()?);
            *shared = Rc::downgrade(&session);
            Ok(Self { session })
        })
    }

    /// A transport on a new communicator over all ranks. All ranks must call it, in the same order; it waits for them.
    ///
    /// # Errors
    /// When MPI cannot make another communicator (MPICH has room for about 2000 per process).
    pub fn transport(&self) -> Result<MpiTransport, MpiError> {
        let comm = Comm::duplicate_world(Rc::clone(&self.session))?;
        Ok(MpiTransport::new(comm))
    }

    /// A transport on `MPI_COMM_WORLD` itself. Nobody is waited for, so the deadline of its first exchange already holds for a
    /// rank that never comes, and names it. Only where nobody else sends on that communicator, and once.
    ///
    /// # Errors
    /// When MPI fails.
    pub fn world_transport(&self) -> Result<MpiTransport, MpiError> {
        Ok(MpiTransport::new(Comm::world(Rc::clone(&self.session))?))
    }

    /// Measurements of MPI itself, on a communicator of their own. All ranks must call it, as [`Mpi::transport`]; the process
    /// ends when that takes longer than `limit`.
    ///
    /// # Errors
    /// As [`Mpi::transport`].
    pub fn yardsticks(&self, limit: Duration) -> Result<Yardsticks, MpiError> {
        Ok(Yardsticks::new(self.duplicate(limit)?))
    }

    /// A bare loop over these messages, on a communicator of its own. All ranks must call it with the same plan; it waits for
    /// them, and ends the process when that takes longer than `limit`.
    ///
    /// # Errors
    /// As [`Mpi::transport`], and when the plans differ.
    pub fn bare_loop(&self, plan: &Plan, limit: Duration) -> Result<BareLoop, MpiError> {
        BareLoop::new(self.duplicate(limit)?, plan, limit)
    }

    fn duplicate(&self, limit: Duration) -> Result<Comm, MpiError> {
        let words = format!(
            "MPI_Comm_dup: a rank waits for the others longer than the deadline of {limit:?}; look for a rank that hangs, or give \
             more time"
        );
        let duplicate = || Comm::duplicate_world(Rc::clone(&self.session));
        self.session
            .within(limit, move || words.clone(), duplicate)?
    }

    /// The name of this machine, as MPI knows it.
    pub fn processor_name(&self) -> String {
        self.session.processor_name()
    }

    /// The MPI library's name and version. Works without `init`.
    pub fn library_version() -> String {
        raw::library_version()
    }
}
