//! Messages on the links of a fabric: who shares with whom, and what each link carried.

use spardl_core::Rank;

use super::Parcel;
use super::flows::Flows;
use crate::topology::{Fabric, transfer};

/// What happens when messages meet on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// When a link was busy that never was.
const IDLE: i64 = i64::MIN / 2;

/// The messages under way on a fabric.
#[derive(Debug)]
pub(crate) struct Traffic {
    fabric: Fabric,
    sharing: Sharing,
    flows: Flows<Parcel>,
    /// Without sharing: when each worker has sent what it has.
    sent: Vec<u64>,
    /// With a burst: until when each link would have been busy if it had passed nothing at once.
    busy: Vec<i64>,
    /// Who got each worker's last message of this step.
    last: Vec<Option<Rank>>,
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
            busy: vec![IDLE; links],
            last: vec![None; links],
            bytes: vec![0; links],
        }
    }

    /// A message departs now. Returns it with the moment when it will have left the links, if that is known already.
    pub(super) fn depart(&mut self, now: u64, mut parcel: Parcel) -> Option<(u64, Parcel)> {
        let route = self.fabric.route(parcel.from, parcel.to);
        let (bytes, capacities) = (parcel.news_bytes(), self.fabric.capacities());
        let links = route.links().iter();
        let narrowest = links.clone().map(|&link| capacities[link as usize]).min();
        for &link in links {
            self.bytes[link as usize] += bytes;
        }
        let rest = bytes - self.pass_at_once(now, route.links(), bytes);
        let alone = transfer(rest, narrowest.unwrap_or(u64::MAX));
        (parcel.departed, parcel.alone) = (now, alone);
        let again = self.last[parcel.from.index()].replace(parcel.to) == Some(parcel.to);
        parcel.latency = route.latency + self.fabric.overhead(bytes, again);
        match self.sharing {
            Sharing::Fair => {
                self.flows.start(now, route, rest, parcel);
                None
            }
            Sharing::None => {
                let sent = &mut self.sent[parcel.from.index()];
                *sent = (*sent).max(now) + alone;
                Some((*sent, parcel))
            }
        }
    }

    /// Bytes of a message that all links of its way pass at once: what they did not use of their rate before, up to the burst.
    fn pass_at_once(&mut self, now: u64, links: &[u32], bytes: u64) -> u64 {
        let burst = self.fabric.burst();
        if burst == 0 {
            return 0;
        }
        let (now, mut most) = (now as i64, bytes.min(burst));
        for &link in links {
            let capacity = self.fabric.capacities()[link as usize];
            let busy = &mut self.busy[link as usize];
            *busy = (*busy).max(now - transfer(burst, capacity) as i64);
            let unused = u128::from((now - *busy).max(0) as u64) * u128::from(capacity);
            most = most.min((unused / 8_000_000_000) as u64);
            *busy += transfer(bytes, capacity) as i64;
        }
        most
    }

    /// When the next message has left the links, if nothing departs before.
    pub(super) fn next_end(&mut self, now: u64) -> Option<u64> {
        self.flows.next_end(now)
    }

    /// A message that has left the links at `now`.
    pub(super) fn take_ended(&mut self, now: u64) -> Option<Parcel> {
        let is_due = self.flows.first_end() == Some(now);
        is_due.then(|| self.flows.take_ended(now))?
    }

    /// What each link has carried since the last call, at the end of a step; the next one finds the links idle.
    pub(crate) fn take_use(&mut self) -> Vec<LinkUse> {
        self.busy.fill(IDLE);
        self.last.fill(None);
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
        self.busy.fill(IDLE);
        self.last.fill(None);
        self.bytes.fill(0);
    }
}
