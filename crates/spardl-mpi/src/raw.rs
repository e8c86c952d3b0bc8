//! All `unsafe` of the crate: MPI calls behind types whose existence proves what the calls need.
//!
//! - A [`Session`] proves that MPI is initialised, not finalized, and that this is the thread it may be called from
//!   (sessions are not `Send`). Whatever calls MPI holds one.
//! - A [`Comm`] is a live communicator with `MPI_ERRORS_RETURN`. It is never freed: `MPI_Comm_free` is collective, and a
//!   worker that failed could make the others wait in it.
//! - A buffer that MPI may touch is a [`Lent`]: raw parts without a destructor. It becomes a `Vec` again only when its
//!   request is complete; what is still in flight when a [`Pool`] is dropped is leaked, never freed under MPI's hands.
//! - Every receive but one ([`Comm::exchange`]) is a matched probe: the length is known before a buffer is made. A receive posted with a bound is
//!   overrun by Open MPI 4.1 when the message is longer (shared memory with CMA, TCP).

mod pool;

use std::cell::{Cell, OnceCell};
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpi_sys as ffi;

use crate::error::MpiError;
use crate::watchdog::Watchdog;

pub(crate) use self::pool::{Arrival, Pool};

/// Longer than any text of Open MPI (256) and MPICH (8192).
const TEXT_BYTES: usize = 1 << 14;

unsafe extern "C" {
    fn spardl_mpi_in_place() -> *mut c_void;
    fn _exit(code: c_int) -> !;
}

/// Ends the process and runs nothing more of it: another thread may be inside MPI.
pub(crate) fn exit_at_once(code: c_int) -> ! {
    // SAFETY: POSIX allows it at any time, from any thread.
    unsafe { _exit(code) }
}

/// MPI, initialised; finalized (or the job aborted) when the last user is gone.
#[derive(Debug)]
pub(crate) struct Session {
    ours: bool,
    failed: Cell<bool>,
    /// Started when the first blocking call is watched.
    watchdog: OnceCell<Watchdog>,
    not_send: PhantomData<*const ()>,
}

impl Session {
    /// Initialises MPI, or joins one that somebody else initialised and will finalize.
    pub(crate) fn start() -> Result<Self, MpiError> {
        let (mut before, mut after, mut level, mut main) = (0, 0, 0, 0);
        // SAFETY: both may be called at any time, from any thread; the pointers are to live integers.
        unsafe {
            check("MPI_Initialized", ffi::MPI_Initialized(&mut before))?;
            check("MPI_Finalized", ffi::MPI_Finalized(&mut after))?;
        }
        if after != 0 {
            return Err(MpiError::Finalized);
        }
        if before == 0 {
            // SAFETY: MPI is not initialised; null arguments are allowed since MPI 2; `level` is a live integer.
            unsafe {
                let (none, funneled) = (ptr::null_mut(), ffi::RSMPI_THREAD_FUNNELED);
                let code = ffi::MPI_Init_thread(none, ptr::null_mut(), funneled, &mut level);
                check("MPI_Init_thread", code)?;
            }
        } else {
            // SAFETY: MPI is initialised and not finalized; these calls are allowed from any thread.
            let alone = unsafe {
                check("MPI_Query_thread", ffi::MPI_Query_thread(&mut level))?;
                check("MPI_Is_thread_main", ffi::MPI_Is_thread_main(&mut main))?;
                level <= ffi::RSMPI_THREAD_FUNNELED
            };
            if alone && main == 0 {
                return Err(MpiError::WrongThread);
            }
        }
        let session = Self {
            ours: before == 0,
            failed: Cell::new(false),
            watchdog: OnceCell::new(),
            not_send: PhantomData,
        };
        // SAFETY: MPI is initialised and this thread may call it. Some calls report through the handlers of these two
        // and not through the one of the communicator (MPICH's Testsome), and would abort the process.
        unsafe {
            for comm in [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] {
                let code = ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN);
                check("MPI_Comm_set_errhandler", code)?;
            }
        }
        Ok(session)
    }

    /// Notes that MPI cannot be finalized any more (it would wait for a lost peer): the job will be aborted instead.
    pub(crate) fn fail(&self) {
        self.failed.set(true);
    }

    /// Runs a blocking call that ends the process, with these words, when it takes longer than `limit`.
    pub(crate) fn within<R>(
        &self,
        limit: Duration,
        words: impl Fn() -> String + Send + 'static,
        call: impl FnOnce() -> R,
    ) -> Result<R, MpiError> {
        if self.watchdog.get().is_none() {
            let watchdog = Watchdog::start().map_err(MpiError::NoWatchdog)?;
            self.watchdog.get_or_init(|| watchdog);
        }
        let until = Instant::now().checked_add(limit);
        match (self.watchdog.get(), until) {
            (Some(watchdog), Some(until)) => Ok(watchdog.watch(until, Box::new(words), call)),
            // Longer than the clock can count.
            _ => Ok(call()),
        }
    }

    /// The name of this machine, as MPI knows it.
    pub(crate) fn processor_name(&self) -> String {
        // SAFETY: MPI is initialised; `text` gives a buffer longer than MPI_MAX_PROCESSOR_NAME.
        text(|buffer, len| unsafe { ffi::MPI_Get_processor_name(buffer, len) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // SAFETY: MPI is initialised, by us, and this is the last holder on the only thread that calls it.
        unsafe {
            if self.failed.get() || std::thread::panicking() {
                ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1);
                std::process::abort();
            }
            ffi::MPI_Finalize();
        }
    }
}

/// The library's name and version; may be asked at any time.
pub(crate) fn library_version() -> String {
    // SAFETY: allowed before initialisation; `text` gives a buffer longer than MPI_MAX_LIBRARY_VERSION_STRING.
    text(|buffer, len| unsafe { ffi::MPI_Get_library_version(buffer, len) })
}

/// A communicator over all ranks: one of our own, where nobody else's messages can match ours, or the world.
#[derive(Clone, Debug)]
pub(crate) struct Comm {
    handle: ffi::MPI_Comm,
    rank: u32,
    size: u32,
    session: Rc<Session>,
}

impl Comm {
    /// The world itself; waits for nobody.
    pub(crate) fn world(session: Rc<Session>) -> Result<Self, MpiError> {
        // SAFETY: a handle that MPI defines; the session proves that it may be used.
        Self::of(unsafe { ffi::RSMPI_COMM_WORLD }, session)
    }

    /// Duplicates the world; all ranks must call it.
    pub(crate) fn duplicate_world(session: Rc<Session>) -> Result<Self, MpiError> {
        // SAFETY: the session proves that MPI may be called; the pointer is to a live variable.
        let handle = unsafe {
            let mut handle = ffi::RSMPI_COMM_NULL;
            let code = ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut handle);
            check("MPI_Comm_dup", code)?;
            handle
        };
        Self::of(handle, session)
    }

    fn of(handle: ffi::MPI_Comm, session: Rc<Session>) -> Result<Self, MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the session proves that MPI may be called, the communicator is live, and all pointers are to live variables
        // of the right type.
        unsafe {
            let code = ffi::MPI_Comm_set_errhandler(handle, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Comm_set_errhandler", code)?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(handle, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(handle, &mut size))?;
        }
        Ok(Self {
            handle,
            rank: rank as u32,
            size: size as u32,
            session,
        })
    }

    pub(crate) const fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// What this rank says when a blocking call of all ranks takes too long.
    pub(crate) fn overdue(&self, what: &str, limit: Duration) -> impl Fn() -> String + use<> {
        let words = format!(
            "rank {}: {what}: waits for the other ranks longer than the deadline of {limit:?}; look for a rank that hangs, or \
             give more time",
            self.rank
        );
        move || words.clone()
    }

    /// The sum over all ranks, in place; all ranks must call it with the same length. Blocks.
    pub(crate) fn all_reduce(&self, values: &mut [f32]) -> Result<(), MpiError> {
        let count = count("elements", values.len(), c_int::MAX as usize)?;
        // SAFETY: the communicator is live; MPI reads and writes exactly `count` floats, which are borrowed mutably for
        // the whole blocking call.
        let code = unsafe {
            ffi::MPI_Allreduce(
                spardl_mpi_in_place(),
                values.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_FLOAT,
                ffi::RSMPI_SUM,
                self.handle,
            )
        };
        check("MPI_Allreduce", code)
    }
}

/// The messages that a rank sends and receives at once: peers and buffers.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) sends: Vec<(u32, Vec<u8>)>,
    pub(crate) receives: Vec<(u32, Vec<u8>)>,
}

impl Exchange {
    /// The ranks on the other side, ascending.
    pub(crate) fn peers(&self) -> Vec<u32> {
        let messages = self.receives.iter().chain(&self.sends);
        ascending(messages.map(|(peer, _)| *peer))
    }
}

fn ascending(peers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut peers: Vec<u32> = peers.collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// Proves that all ranks have the same plan of messages, so that what arrives is as long as the plan says.
#[derive(Debug)]
pub(crate) struct SamePlan(());

impl Comm {
    /// Compares a hash over all ranks; all must call it.
    pub(crate) fn same_plan(&self, hash: u64) -> Result<SamePlan, MpiError> {
        let mut bits: Vec<f32> = (0..64).map(|bit| (hash >> bit & 1) as f32).collect();
        self.all_reduce(&mut bits)?;
        let all = self.size as f32;
        if bits.iter().all(|&bit| bit == 0.0 || bit == all) {
            return Ok(SamePlan(()));
        }
        Err(MpiError::PlansDiffer)
    }

    /// Sends and receives the messages of a plan, and nothing else: `MPI_Irecv`, `MPI_Isend`, `MPI_Waitall`. Blocks.
    ///
    /// The only receive of this crate without a probe (see above), which is why it asks for a [`SamePlan`].
    pub(crate) fn exchange(&self, messages: Exchange, _: &SamePlan) -> Result<Exchange, MpiError> {
        const TAG: c_int = 1;
        let mut requests = Vec::new();
        // Lent: an error leaves them to MPI for ever.
        let lend = |messages: Vec<(u32, Vec<u8>)>| -> Vec<(u32, usize, Lent)> {
            let lent = messages.into_iter();
            lent.map(|(peer, bytes)| (peer, bytes.len(), Lent::new(bytes)))
                .collect()
        };
        let (receives, sends) = (lend(messages.receives), lend(messages.sends));
        let starts = receives.iter().map(|receive| (receive, true));
        for ((peer_rank, len, lent), receives) in
            starts.chain(sends.iter().map(|send| (send, false)))
        {
            let count = count("bytes", *len, c_int::MAX as usize)?;
            let (start, peer) = (lent.start.cast::<c_void>(), *peer_rank as c_int);
            // SAFETY: the communicator is live; the buffer has `len` bytes and is left alone until all requests are complete;
            // what arrives is no longer, because sender and receiver follow the same plan.
            let (call, code, request) = unsafe {
                let (of, comm) = (ffi::RSMPI_UINT8_T, self.handle);
                let mut request = ffi::RSMPI_REQUEST_NULL;
                if receives {
                    let code = ffi::MPI_Irecv(start, count, of, peer, TAG, comm, &mut request);
                    ("MPI_Irecv", code, request)
                } else {
                    let code = ffi::MPI_Isend(start, count, of, peer, TAG, comm, &mut request);
                    ("MPI_Isend", code, request)
                }
            };
            check(call, code).map_err(|error| error.with(&[*peer_rank]))?;
            requests.push(request);
        }
        // SAFETY: these are all requests, each started once; a status is zeroed plain data, which MPI overwrites.
        unsafe {
            let mut statuses = vec![MaybeUninit::<ffi::MPI_Status>::zeroed(); requests.len()];
            let (count, statuses) = (requests.len() as c_int, statuses.as_mut_ptr().cast());
            let code = ffi::MPI_Waitall(count, requests.as_mut_ptr(), statuses);
            check("MPI_Waitall", code).map_err(|error| {
                let all = receives.iter().chain(&sends);
                error.with(&ascending(all.map(|(peer, ..)| *peer)))
            })?;
        }
        let reclaim = |lent: Vec<(u32, usize, Lent)>| {
            // SAFETY: the requests are complete, and the buffers had `len` written bytes before.
            let reclaimed = lent
                .into_iter()
                .map(|(peer, len, lent)| (peer, unsafe { lent.reclaim(len) }));
            reclaimed.collect()
        };
        Ok(Exchange {
            sends: reclaim(sends),
            receives: reclaim(receives),
        })
    }
}

/// A buffer that MPI reads or writes: without a destructor, so it cannot be freed by accident.
#[derive(Debug)]
struct Lent {
    start: *mut u8,
    len: usize,
    capacity: usize,
}

impl Lent {
    fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    /// Takes the buffer back, with `len` bytes in it.
    ///
    /// # Safety
    /// MPI must be done with it, and the first `len` bytes must be written.
    unsafe fn reclaim(self, len: usize) -> Vec<u8> {
        debug_assert!(len <= self.capacity);
        // SAFETY: the parts are those of a `Vec<u8>` that was not dropped, and the caller vouches for `len` and for MPI.
        unsafe { Vec::from_raw_parts(self.start, len, self.capacity) }
    }
}

fn count(what: &'static str, len: usize, max: usize) -> Result<c_int, MpiError> {
    let count = c_int::try_from(len).ok();
    count.ok_or(MpiError::TooLong { what, len, max })
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    // SAFETY: `text` gives a buffer longer than MPI_MAX_ERROR_STRING; MPI is initialised wherever a call can fail.
    let text = text(|buffer, len| unsafe { ffi::MPI_Error_string(code, buffer, len) });
    Err(MpiError::Call { call, code, text })
}

/// A text that `write` puts into a buffer, with its length.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut buffer = vec![0u8; TEXT_BYTES];
    let mut len = 0;
    write(buffer.as_mut_ptr().cast(), &mut len);
    buffer.truncate(usize::try_from(len).unwrap_or(0));
    String::from_utf8_lossy(&buffer)
        .trim_end_matches('\0')
        .to_owned()
}
