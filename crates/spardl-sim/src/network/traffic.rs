//! Messages on the links of a fabric: who shares with whom, and what each link carried.

use super::Parcel;
use super::flows::Flows;
use crate::path::{Hop, Spent};
use crate::topology::{Fabric, transfer};

/// What happens when messages meet on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// They share it fairly, by max-min fairness.
    #[default]
    Fair,
    /// Nothing: a worker sends one message after the other, and each has the links of its way to itself.
    None,
}

/// What a link carried in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkUse {
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds that these take at the link's full rate.
    pub busy: u64,
}

/// The messages under way on a fabric.
#[derive(Debug)]
pub(crate) struct Traffic {
    fabric: Fabric,
    sharing: Sharing,
    flows: Flows<Parcel>,
    /// Without sharing: when each worker has sent what it has.
    sent: Vec<u64>,
    bytes: Vec<u64>,
}

impl Traffic {
    pub(crate) fn new(fabric: Fabric, sharing: Sharing) -> Self {
        let links = fabric.capacities().len();
        Self {
            flows: Flows::new(fabric.capacities()),
            fabric,
            sharing,
            sent: vec![0; links],
            bytes: vec![0; links],
        }
    }

    /// A message departs now. Returns it with its arrival when that is known already.
    pub(super) fn depart(&mut self, now: u64, mut parcel: Parcel) -> Option<(u64, Parcel)> {
        let route = self.fabric.route(parcel.from, parcel.to);
        let (bytes, capacities) = (parcel.news_bytes(), self.fabric.capacities());
        let links = route.links().iter();
        let narrowest = links.clone().map(|&link| capacities[link as usize]).min();
        let alone = transfer(bytes, narrowest.unwrap_or(u64::MAX));
        for &link in links {
            self.bytes[link as usize] += bytes;
        }
        (parcel.departed, parcel.alone) = (now, alone);
        parcel.latency = route.latency;
        match self.sharing {
            Sharing::Fair => {
                self.flows.start(now, route, bytes, parcel);
                None
            }
            Sharing::None => {
                let sent = &mut self.sent[parcel.from.index()];
                *sent = (*sent).max(now) + alone;
                let end = *sent;
                Some(arrive(end, parcel))
            }
        }
    }

    /// When the next message has left the links, if nothing departs before.
    pub(super) fn next_end(&mut self, now: u64) -> Option<u64> {
        self.flows.next_end(now)
    }

    /// A message that has left the links at `now`, with its arrival.
    pub(super) fn take_ended(&mut self, now: u64) -> Option<(u64, Parcel)> {
        let is_due = self.flows.first_end() == Some(now);
        let parcel = is_due.then(|| self.flows.take_ended(now))??;
        Some(arrive(now, parcel))
    }

    /// What each link has carried since the last call.
    pub(crate) fn take_use(&mut self) -> Vec<LinkUse> {
        let capacities = self.fabric.capacities();
        let carried = self.bytes.iter_mut().zip(capacities);
        carried
            .map(|(bytes, &capacity)| {
                let bytes = std::mem::take(bytes);
                let busy = transfer(bytes, capacity);
                LinkUse { bytes, busy }
            })
            .collect()
    }

    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.sent.fill(0);
        self.bytes.fill(0);
    }
}

/// The last bit has left the links: notes where the time went.
fn arrive(end: u64, mut parcel: Parcel) -> (u64, Parcel) {
    let (took, round) = (end - parcel.departed, parcel.round());
    let path = &mut parcel.path;
    path.add(Spent::Transfer, parcel.alone.min(took));
    path.add(Spent::Contention, took.saturating_sub(parcel.alone));
    path.add(Spent::Latency, parcel.latency);
    path.hop(Hop {
        nanos: took + parcel.latency,
        from: parcel.from.get(),
        to: parcel.to.get(),
        round,
    });
    (end + parcel.latency, parcel)
}
