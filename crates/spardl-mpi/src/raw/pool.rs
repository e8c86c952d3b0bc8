//! Requests in flight: sends, and receives of messages that a probe has matched.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use mpi_sys as ffi;
use spardl_core::BufferPool;

use super::{Comm, Lent, check, count};
use crate::error::MpiError;

/// What a request does.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    Send { to: u32 },
    Receive { from: u32, tag: i32, ticket: u64 },
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The number it was matched under.
    pub(crate) ticket: u64,
    pub(crate) from: u32,
    pub(crate) tag: i32,
    pub(crate) bytes: Vec<u8>,
}

/// The sends and receives in flight on one communicator.
#[derive(Debug)]
pub(crate) struct Pool {
    comm: Comm,
    /// `requests[i]` works on `lent[i]`.
    requests: Vec<ffi::MPI_Request>,
    lent: Vec<(Transfer, Lent)>,
    indices: Vec<c_int>,
    statuses: Vec<ffi::MPI_Status>,
    tickets: u64,
    spares: BufferPool,
}

impl Pool {
    pub(crate) fn new(comm: Comm) -> Self {
        Self {
            comm,
            requests: Vec::new(),
            lent: Vec::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            tickets: 0,
            spares: BufferPool::default(),
        }
    }

    pub(crate) const fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Takes a buffer to receive into later.
    pub(crate) fn keep(&mut self, buffer: Vec<u8>) {
        self.spares.keep(buffer);
    }

    /// Is nothing in flight?
    pub(crate) const fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The receivers of the sends in flight.
    pub(crate) fn sending_to(&self) -> impl Iterator<Item = u32> {
        self.lent.iter().filter_map(|(transfer, _)| match transfer {
            Transfer::Send { to } => Some(*to),
            Transfer::Receive { .. } => None,
        })
    }

    /// Starts to send; the message counts as in flight until [`Pool::complete`] finds it done.
    pub(crate) fn send(&mut self, to: u32, tag: i32, bytes: Vec<u8>) -> Result<(), MpiError> {
        let count = count("bytes", bytes.len(), c_int::MAX as usize)?;
        let lent = Lent::new(bytes);
        // SAFETY: the communicator is live; the buffer has `len` written bytes and is neither changed nor freed until the
        // request is complete (`Lent` has no destructor, `complete` reclaims it). A refused send leaks it.
        let request = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Isend(
                lent.start.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                tag,
                self.comm.handle,
                &mut request,
            );
            check("MPI_Isend", code)?;
            request
        };
        self.requests.push(request);
        self.lent.push((Transfer::Send { to }, lent));
        Ok(())
    }

    /// Starts to receive the next message of anybody, if one is announced: its sender and the ticket it will arrive under.
    /// Tickets of one sender rise in the order it sent.
    pub(crate) fn match_next(&mut self) -> Result<Option<(u32, u64)>, MpiError> {
        let (mut flag, mut count) = (0, 0);
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the communicator is live; all pointers are to live variables. `status` is plain data, zeroed, and written
        // by MPI when `flag` is set. The matched message is received once, into a buffer with room for at least its `count`
        // bytes that is neither read, moved nor freed until the request is complete.
        unsafe {
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let code = ffi::MPI_Improbe(
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                self.comm.handle,
                &mut flag,
                &mut message,
                status.as_mut_ptr(),
            );
            check("MPI_Improbe", code)?;
            if flag == 0 {
                return Ok(None);
            }
            let status = status.assume_init();
            let code = ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count);
            check("MPI_Get_count", code)?;
            let len = usize::try_from(count).map_err(|_| MpiError::TooLong {
                what: "bytes",
                len: usize::MAX,
                max: c_int::MAX as usize,
            })?;
            let lent = Lent::new(self.spares.take(len));
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Imrecv(
                lent.start.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                &mut message,
                &mut request,
            );
            check("MPI_Imrecv", code)?;
            self.tickets += 1;
            let (from, ticket) = (status.MPI_SOURCE as u32, self.tickets);
            let transfer = Transfer::Receive {
                from,
                tag: status.MPI_TAG,
                ticket,
            };
            self.requests.push(request);
            self.lent.push((transfer, Lent { len, ..lent }));
            Ok(Some((from, ticket)))
        }
    }

    /// Moves everything in flight on and adds the messages that are now here; true when any request was completed.
    pub(crate) fn complete(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool, MpiError> {
        let in_flight = self.requests.len();
        if in_flight == 0 {
            return Ok(false);
        }
        self.indices.resize(in_flight, 0);
        // SAFETY: `MPI_Status` is plain data for which zeros are valid.
        self.statuses
            .resize(in_flight, unsafe { MaybeUninit::zeroed().assume_init() });
        let mut found = 0;
        // SAFETY: the three arrays have `in_flight` elements and the requests are all active.
        let code = unsafe {
            ffi::MPI_Testsome(
                in_flight as c_int,
                self.requests.as_mut_ptr(),
                &mut found,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        // A negative count is MPI_UNDEFINED: nothing was active.
        let found = usize::try_from(found).unwrap_or(0);
        if code != ffi::MPI_SUCCESS as c_int {
            let failed = self.statuses[..found].iter().map(|s| s.MPI_ERROR);
            let cause = failed.into_iter().find(|&e| e != ffi::MPI_SUCCESS as c_int);
            return check("MPI_Testsome", cause.unwrap_or(code)).map(|()| false);
        }
        let done = &mut self.indices[..found];
        // From the back, so that swap_remove leaves the positions before alone.
        done.sort_unstable_by(|a, b| b.cmp(a));
        for &index in &*done {
            self.requests.swap_remove(index as usize);
            let (transfer, lent) = self.lent.swap_remove(index as usize);
            let len = lent.len;
            // SAFETY: the request is complete, so MPI is done with the buffer; a send did not change it, and a matched
            // receive wrote all `len` bytes of its message.
            let bytes = unsafe { lent.reclaim(len) };
            match transfer {
                Transfer::Send { .. } => self.spares.keep(bytes),
                Transfer::Receive { from, tag, ticket } => arrivals.push(Arrival {
                    ticket,
                    from,
                    tag,
                    bytes,
                }),
            }
        }
        Ok(found > 0)
    }
}
