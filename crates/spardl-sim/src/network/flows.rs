//! Messages that share links: every link divides its bandwidth fairly, and what one message cannot use goes to the others.
//!
//! Max-min fairness: the link that has least to give per message fixes the rate of its messages; the rest is divided again
//! among the others, and so on. When a message begins or ends, only those are looked at again that share a link with it, or
//! with one that does. All numbers are integers: rates in bits per second, what is left of a message in bits times 1e9.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::topology::Route;

/// What is left of a message: bits times 1e9, so that a rate times nanoseconds can be taken off.
type Work = u128;

#[derive(Debug)]
struct Flow<T> {
    route: Route,
    item: T,
    left: Work,
    rate: u64,
    /// When `left` was right.
    since: u64,
    /// Changes with the rate, so that a planned end can be told from an outdated one.
    version: u32,
}

/// All messages on links, each with something that comes along.
#[derive(Debug)]
pub(crate) struct Flows<T> {
    capacities: Vec<u64>,
    flows: Vec<Option<Flow<T>>>,
    free: Vec<u32>,
    on_link: Vec<Vec<u32>>,
    /// When which flow ends, if its version is still that.
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Links whose messages have changed since rates were divided.
    dirty: Vec<u32>,
    versions: u32,
    scratch: Scratch,
}

/// Room for the division, kept between calls.
#[derive(Debug, Default)]
struct Scratch {
    seen_link: Vec<bool>,
    seen_flow: Vec<bool>,
    left: Vec<u64>,
    open: Vec<u32>,
}

impl<T> Flows<T> {
    pub(crate) fn new(capacities: &[u64]) -> Self {
        let links = capacities.len();
        Self {
            capacities: capacities.to_vec(),
            flows: Vec::new(),
            free: Vec::new(),
            on_link: vec![Vec::new(); links],
            ends: BinaryHeap::new(),
            dirty: Vec::new(),
            versions: 0,
            scratch: Scratch {
                seen_link: vec![false; links],
                left: vec![0; links],
                open: vec![0; links],
                ..Scratch::default()
            },
        }
    }

    /// A message begins.
    pub(crate) fn start(&mut self, now: u64, route: Route, bytes: u64, item: T) {
        let flow = Flow {
            route,
            item,
            left: Work::from(bytes) * 8_000_000_000,
            rate: 0,
            since: now,
            version: 0,
        };
        let at = self.free.pop().unwrap_or(self.flows.len() as u32);
        for &link in route.links() {
            self.on_link[link as usize].push(at);
            self.dirty.push(link);
        }
        if at as usize == self.flows.len() {
            self.flows.push(Some(flow));
            self.scratch.seen_flow.push(false);
        } else {
            self.flows[at as usize] = Some(flow);
        }
    }

    /// When the next message ends, if nothing begins before. Call when all that happens at `now` is known.
    pub(crate) fn next_end(&mut self, now: u64) -> Option<u64> {
        if !self.dirty.is_empty() {
            self.divide(now);
        }
        self.first_end()
    }

    /// The next end as rates were divided last.
    pub(crate) fn first_end(&mut self) -> Option<u64> {
        while let Some(&Reverse((end, at, version))) = self.ends.peek() {
            match &self.flows[at as usize] {
                Some(flow) if flow.version == version => return Some(end),
                _ => self.ends.pop(),
            };
        }
        None
    }

    /// Takes out the message that ends at `now`, as [`Flows::next_end`] said.
    pub(crate) fn take_ended(&mut self, now: u64) -> Option<T> {
        let Reverse((end, at, _)) = self.ends.pop()?;
        debug_assert_eq!(end, now, "the next end has come");
        let flow = self.flows[at as usize].take()?;
        self.free.push(at);
        for &link in flow.route.links() {
            let flows = &mut self.on_link[link as usize];
            flows.retain(|&other| other != at);
            if !flows.is_empty() {
                self.dirty.push(link);
            }
        }
        Some(flow.item)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(&self.capacities);
    }

    /// Divides the links again on which something has changed, and those connected with them.
    fn divide(&mut self, now: u64) {
        let (links, flows) = self.connected();
        for &link in &links {
            self.scratch.left[link as usize] = self.capacities[link as usize];
            self.scratch.open[link as usize] = self.on_link[link as usize].len() as u32;
        }
        self.fill(&links, now);
        for link in links {
            self.scratch.seen_link[link as usize] = false;
        }
        for flow in flows {
            self.scratch.seen_flow[flow as usize] = false;
        }
    }

    /// The links that are connected with those that have changed, and the flows on them.
    fn connected(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (seen_link, seen_flow) = (&mut self.scratch.seen_link, &mut self.scratch.seen_flow);
        let (mut links, mut flows) = (Vec::new(), Vec::new());
        for link in self.dirty.drain(..) {
            if !std::mem::replace(&mut seen_link[link as usize], true) {
                links.push(link);
            }
        }
        let mut next = 0;
        while let Some(&link) = links.get(next) {
            next += 1;
            for &at in &self.on_link[link as usize] {
                if std::mem::replace(&mut seen_flow[at as usize], true) {
                    continue;
                }
                flows.push(at);
                let flow = self.flows[at as usize].as_ref();
                for &other in flow.map_or(&[][..], |flow| flow.route.links()) {
                    if !std::mem::replace(&mut seen_link[other as usize], true) {
                        links.push(other);
                    }
                }
            }
        }
        (links, flows)
    }

    /// Water-filling: the scarcest link first. A flow that is marked as seen has no rate yet.
    fn fill(&mut self, links: &[u32], now: u64) {
        let share = |scratch: &Scratch, link: u32| {
            let open = u64::from(scratch.open[link as usize]);
            scratch.left[link as usize].checked_div(open)
        };
        let shares = links.iter();
        let mut scarcest: BinaryHeap<Reverse<(u64, u32)>> = shares
            .filter_map(|&link| Some(Reverse((share(&self.scratch, link)?, link))))
            .collect();
        while let Some(Reverse((planned, link))) = scarcest.pop() {
            match share(&self.scratch, link) {
                Some(current) if current == planned => {}
                // Others have taken less than their part since.
                Some(current) => {
                    scarcest.push(Reverse((current, link)));
                    continue;
                }
                None => continue,
            }
            for i in 0..self.on_link[link as usize].len() {
                let at = self.on_link[link as usize][i];
                if std::mem::replace(&mut self.scratch.seen_flow[at as usize], false) {
                    self.set_rate(at, planned.max(1), now);
                }
            }
        }
    }

    fn set_rate(&mut self, at: u32, rate: u64, now: u64) {
        let Some(flow) = &mut self.flows[at as usize] else {
            return;
        };
        for &link in flow.route.links() {
            let left = &mut self.scratch.left[link as usize];
            *left = left.saturating_sub(rate);
            self.scratch.open[link as usize] -= 1;
        }
        if flow.rate == rate {
            return;
        }
        let done = Work::from(flow.rate) * Work::from(now - flow.since);
        flow.left = flow.left.saturating_sub(done);
        (flow.rate, flow.since) = (rate, now);
        self.versions = self.versions.wrapping_add(1);
        flow.version = self.versions;
        let takes = flow.left.div_ceil(Work::from(rate));
        let end = now.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
        self.ends.push(Reverse((end, at, flow.version)));
    }
}

#[cfg(test)]
mod tests {
    use spardl_core::{Line, Rank};

    use super::*;
    use crate::topology::{Fabric, Topology};

    /// A byte per nanosecond.
    const LINE: Line = Line {
        latency: 0,
        bandwidth: 8_000_000_000,
    };

    /// When each of these messages (start, sender, receiver, bytes) ends, in the order of their ends.
    fn ends(messages: &[(u64, u32, u32, u64)]) -> Vec<(u64, u32, u32)> {
        let fabric = Fabric::new(Topology::Flat, 8, LINE).unwrap();
        let mut flows = Flows::new(fabric.capacities());
        let (mut waiting, mut now, mut ends) = (messages.iter().peekable(), 0, Vec::new());
        loop {
            while let Some((_, from, to, bytes)) = waiting.next_if(|(start, ..)| *start <= now) {
                let route = fabric.route(Rank::new(*from), Rank::new(*to));
                flows.start(now, route, *bytes, (*from, *to));
            }
            let start = waiting.peek().map(|(start, ..)| *start);
            let end = flows.next_end(now);
            match (start, end) {
                (Some(start), end) if end.is_none_or(|end| start < end) => now = start,
                (_, Some(end)) => {
                    now = end;
                    let (from, to) = flows.take_ended(now).unwrap();
                    ends.push((now, from, to));
                }
                _ => return ends,
            }
        }
    }

    #[test]
    fn a_message_alone_has_the_whole_link() {
        assert_eq!(ends(&[(5, 0, 1, 1000)]), [(1005, 0, 1)]);
    }

    #[test]
    fn what_one_message_cannot_use_goes_to_the_others() {
        // Worker 0 sends three; one of them meets that of worker 4, which takes the two thirds that are left.
        let messages = [
            (0, 0, 1, 1000),
            (0, 0, 2, 1000),
            (0, 0, 3, 1000),
            (0, 4, 3, 1000),
        ];
        let ends = ends(&messages);
        assert_eq!(ends[0], (1500, 4, 3));
        // Rates are whole bits per second, times whole nanoseconds: rounded up.
        assert!(ends[1..].iter().all(|end| (3000..=3001).contains(&end.0)));
    }

    #[test]
    fn a_message_that_comes_later_slows_the_first_down_from_then_on() {
        let messages = [(0, 0, 1, 1000), (500, 2, 1, 1000)];
        assert_eq!(ends(&messages), [(1500, 0, 1), (2000, 2, 1)]);
    }

    #[test]
    fn every_link_is_shared_by_what_crosses_it_and_no_more() {
        let messages = [(0, 0, 1, 700), (0, 2, 3, 900), (0, 4, 5, 800)];
        assert_eq!(ends(&messages), [(700, 0, 1), (800, 4, 5), (900, 2, 3)]);
    }
}
