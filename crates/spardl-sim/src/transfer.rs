//! Messages on the links of a fabric without workers: how links are shared, to be compared with other simulators.

use spardl_core::Rank;

use crate::network::flows::Flows;
use crate::topology::Fabric;

/// A message that departs at some moment, whatever became of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Nanoseconds.
    pub start: u64,
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// How long the message is.
    pub bytes: u64,
}

/// The way of a message, and when it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Nanoseconds when its last bit has left the links, without the latency of the way.
    pub end: u64,
    /// The links of its way: number, bits per second.
    pub links: Vec<(u32, u64)>,
}

/// When each of these messages has left the links, which they share by max-min fairness.
pub fn carry(fabric: &Fabric, transfers: &[Transfer]) -> Vec<Carried> {
    let capacities = fabric.capacities();
    let way = |transfer: &Transfer| {
        let route = fabric.route(transfer.from, transfer.to);
        let links = route.links().iter();
        let links = links.map(|&link| (link, capacities[link as usize]));
        Carried {
            end: transfer.start,
            links: links.collect(),
        }
    };
    let mut carried: Vec<Carried> = transfers.iter().map(way).collect();
    let mut order: Vec<usize> = (0..transfers.len()).collect();
    order.sort_by_key(|&i| transfers[i].start);
    let (mut waiting, mut flows) = (order.into_iter().peekable(), Flows::new(capacities));
    let mut now = 0;
    loop {
        while let Some(i) = waiting.next_if(|&i| transfers[i].start <= now) {
            let Transfer {
                from, to, bytes, ..
            } = transfers[i];
            flows.start(now, fabric.route(from, to), bytes, i);
        }
        let start = waiting.peek().map(|&i| transfers[i].start);
        match (start, flows.next_end(now)) {
            (Some(start), end) if end.is_none_or(|end| start < end) => now = start,
            (_, Some(end)) => {
                now = end;
                if let Some(i) = flows.take_ended(now) {
                    carried[i].end = now;
                }
            }
            _ => return carried,
        }
    }
}
