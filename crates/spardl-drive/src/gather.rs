//! What every worker says, on every worker: the small exchanges around training steps.

use std::time::Duration;

use spardl_core::{Payload, Rank, Round};

use crate::error::TransportError;
use crate::time::Deadline;
use crate::transport::{BucketId, Transport};

/// What all workers say, in rank order, on all of them; all must call it, with nothing in flight.
///
/// One round in which everybody sends to everybody: for scores, hashes and other small things. So the error of a late or
/// lost peer names it.
///
/// ```
/// use std::time::Duration;
/// use spardl_drive::{Transport, gather, run_workers};
///
/// let all = run_workers(3, |mut transport| {
///     let mine = [transport.world().rank().get() as u8];
///     gather(&mut transport, &mine, Duration::from_secs(60))
/// })?;
/// for heard in all {
///     assert_eq!(heard?, [[0], [1], [2]]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a peer is lost, or later than `limit`; the transport has moved on then.
pub fn gather<T: Transport + ?Sized>(
    transport: &mut T,
    mine: &[u8],
    limit: Duration,
) -> Result<Vec<Vec<u8>>, TransportError> {
    let all = gather_open(transport, mine, limit);
    finish(transport, all)
}

/// Up to so many workers all hear from all at a barrier.
const MOST_TO_ALL: u32 = 64;

/// Waits until all workers are here; all must call it, with nothing in flight.
///
/// # Errors
/// As [`gather`]. Among more than 64 workers, where messages from all to all would be millions, only rank 0 hears from all: its
/// error names who is late, and the others hear that it gave up.
pub fn barrier<T: Transport + ?Sized>(
    transport: &mut T,
    limit: Duration,
) -> Result<(), TransportError> {
    if transport.world().size() <= MOST_TO_ALL {
        return gather(transport, &[], limit).map(drop);
    }
    let passed = pass_together(transport, limit);
    match passed {
        Ok(()) => transport.complete_step(),
        Err(_) => transport.abandon(),
    }
    passed
}

/// All tell rank 0 that they are here, then it tells all to go on.
fn pass_together<T: Transport + ?Sized>(
    transport: &mut T,
    limit: Duration,
) -> Result<(), TransportError> {
    let (world, first) = (transport.world(), Rank::new(0));
    let (mut here, mut pass) = (Round::new(), Round::new());
    pass.seq = 1;
    let nothing = || Payload::from_wire(Vec::new());
    let mut limit = limit;
    if world.rank() == first {
        for peer in (1..world.size()).map(Rank::new) {
            here = here.expect(peer, 0);
            pass = pass.send(peer, nothing());
        }
    } else {
        here = here.send(first, nothing());
        pass = pass.expect(first, 0);
        // Rank 0 is to be the first whose patience ends: it knows for whom it waits.
        limit = limit.saturating_add(limit / 4);
    }
    let deadline = Deadline::after(transport.clock().now(), limit);
    for round in [here, pass] {
        transport.submit(BucketId::GATHER, round)?;
        transport.wait_any(deadline)?;
    }
    Ok(())
}

/// Ends an exchange of its own: what was sent is done with, or the transport moves on.
pub(crate) fn finish<T: Transport + ?Sized, R>(
    transport: &mut T,
    result: Result<R, TransportError>,
) -> Result<R, TransportError> {
    match result {
        Ok(_) => transport.complete_step(),
        Err(_) => transport.abandon(),
    }
    result
}

/// [`gather`] as a part of a longer exchange.
pub(crate) fn gather_open<T: Transport + ?Sized>(
    transport: &mut T,
    mine: &[u8],
    limit: Duration,
) -> Result<Vec<Vec<u8>>, TransportError> {
    let deadline = Deadline::after(transport.clock().now(), limit);
    let rank = transport.world().rank();
    let ranks = (0..transport.world().size()).map(Rank::new);
    let mut round = Round::new();
    for peer in ranks.filter(|peer| *peer != rank) {
        let payload = Payload::from_wire(mine.to_vec());
        round = round.send(peer, payload).expect(peer, usize::MAX >> 1);
    }
    transport.submit(BucketId::GATHER, round)?;
    let mut all: Vec<Vec<u8>> = Vec::new();
    if let Some((_, inbox)) = transport.wait_any(deadline)? {
        all.extend(inbox.messages().map(<[u8]>::to_vec));
    }
    all.insert(rank.index(), mine.to_vec());
    Ok(all)
}
