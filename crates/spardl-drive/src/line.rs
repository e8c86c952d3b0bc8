//! Alpha and beta of a transport: what messages between its workers take.

use std::time::Duration;

use spardl_core::{Line, Payload, Rank, Round};

use crate::error::TransportError;
use crate::gather::{finish, gather_open};
use crate::time::Deadline;
use crate::transport::{BucketId, Transport};

/// A message that is short wherever it is: what it takes is the latency.
const SHORT: usize = 32;
/// Lengths of long messages: the next one is tried while one takes less than [`LONG_ENOUGH`].
const LONG: [usize; 3] = [1 << 16, 1 << 19, 1 << 22];
/// From here on a long message says enough about the bandwidth.
const LONG_ENOUGH: Duration = Duration::from_millis(2);
/// How often each is repeated: short ones take little, and the median of some is what counts.
const SHORT_ROUNDS: usize = 48;
const LONG_ROUNDS: usize = 5;

/// What messages take between the workers of a transport, the same numbers on all of them; all must call it, with nothing in
/// flight.
///
/// All workers send at once, each to the worker 1, 2, 4, .. ranks on, as the rounds of the methods do: workers that share a core
/// or a link share it here too. The median of each length counts, on the worker for which it is longest, and of all distances
/// the mean. It takes tens of milliseconds, and about 0.4 s at 100 Mbit/s with four workers.
///
/// ```
/// use std::time::Duration;
/// use spardl_drive::{measure_line, run_workers};
///
/// let lines = run_workers(3, |mut transport| measure_line(&mut transport, Duration::from_secs(60)))?;
/// let lines: Vec<_> = lines.into_iter().collect::<Result<_, _>>()?;
/// assert!(lines[0].bandwidth > 0 && lines.iter().all(|line| *line == lines[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a peer is lost, or later than `limit`; the transport has moved on then.
pub fn measure_line<T: Transport + ?Sized>(
    transport: &mut T,
    limit: Duration,
) -> Result<Line, TransportError> {
    let measured = measure(transport, limit);
    finish(transport, measured)
}

fn measure<T: Transport + ?Sized>(
    transport: &mut T,
    limit: Duration,
) -> Result<Line, TransportError> {
    let size = transport.world().size();
    let gaps: Vec<u32> = (0..32)
        .map(|i| 1 << i)
        .take_while(|gap| *gap < size)
        .collect();
    if gaps.is_empty() {
        return Ok(Line {
            latency: 0,
            bandwidth: u64::MAX,
        });
    }
    let mut time = |bytes: usize, rounds: usize| {
        let mut sum = 0;
        for &gap in &gaps {
            sum += slowest(transport, gap, bytes, rounds, limit)?;
        }
        Ok::<u64, TransportError>(sum / gaps.len() as u64)
    };
    let latency = time(SHORT, SHORT_ROUNDS)?;
    let (mut bytes, mut long) = (0, 0);
    for length in LONG {
        if long > LONG_ENOUGH.as_nanos() as u64 {
            break;
        }
        (bytes, long) = (length, time(length, LONG_ROUNDS)?);
    }
    let transfer = u128::from(long.saturating_sub(latency).max(1));
    let bits = (bytes - SHORT) as u128 * 8_000_000_000;
    Ok(Line {
        latency,
        bandwidth: u64::try_from(bits / transfer).unwrap_or(u64::MAX).max(1),
    })
}

/// Nanoseconds of a message to the worker `gap` ranks on, where they are longest.
fn slowest<T: Transport + ?Sized>(
    transport: &mut T,
    gap: u32,
    bytes: usize,
    rounds: usize,
    limit: Duration,
) -> Result<u64, TransportError> {
    let mut times = Vec::with_capacity(rounds);
    // Made before the clock runs: what making a message costs belongs to the methods.
    let mut payloads: Vec<_> = (0..=rounds).map(|_| vec![0u8; bytes]).collect();
    let mut turn = |payload| shift(transport, gap, payload, limit);
    // The first one finds cold caches and sleeping peers.
    turn(payloads.pop().unwrap_or_default())?;
    for payload in payloads {
        times.push(turn(payload)?.as_nanos() as u64);
    }
    times.sort_unstable();
    let mine = times[times.len() / 2];
    let all = gather_open(transport, &mine.to_le_bytes(), limit)?;
    let all = all
        .iter()
        .filter_map(|said| said.as_slice().try_into().ok());
    Ok(all.map(u64::from_le_bytes).max().unwrap_or(mine))
}

/// Sends to the worker `gap` ranks on and waits for the message of the one `gap` ranks before.
fn shift<T: Transport + ?Sized>(
    transport: &mut T,
    gap: u32,
    payload: Vec<u8>,
    limit: Duration,
) -> Result<Duration, TransportError> {
    let world = transport.world();
    let (rank, size) = (world.rank().get(), world.size());
    let (to, from) = ((rank + gap) % size, (rank + size - gap) % size);
    let most = payload.len();
    let round = Round::new()
        .send(Rank::new(to), Payload::from_wire(payload))
        .expect(Rank::new(from), most);
    let clock = transport.clock();
    let began = clock.now();
    transport.submit(BucketId::GATHER, round)?;
    transport.wait_any(Deadline::after(began, limit))?;
    Ok(clock.now().since(began))
}
