//! Messages of one sender in the order they were sent.
//!
//! MPI matches them in that order, but a long one that is still being transferred is overtaken by short ones behind it. The
//! table of rounds needs their order, above all that the news of a step given up comes after the messages before it.

use std::collections::VecDeque;

use crate::raw::Arrival;

/// The messages of all senders that were matched and not yet handed out.
#[derive(Debug)]
pub(crate) struct InOrder {
    senders: Vec<VecDeque<Slot>>,
}

#[derive(Debug)]
struct Slot {
    ticket: u64,
    arrival: Option<Arrival>,
}

impl InOrder {
    pub(crate) fn new(senders: u32) -> Self {
        Self {
            senders: (0..senders).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Notes that a message was matched.
    pub(crate) fn expect(&mut self, from: u32, ticket: u64) {
        let arrival = None;
        self.senders[from as usize].push_back(Slot { ticket, arrival });
    }

    /// Takes a message that was matched before.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        let mut slots = self.senders[arrival.from as usize].iter_mut();
        if let Some(slot) = slots.find(|slot| slot.ticket == arrival.ticket) {
            slot.arrival = Some(arrival);
        }
    }

    /// The next message of `from`, if it is here.
    pub(crate) fn next(&mut self, from: u32) -> Option<Arrival> {
        let queue = &mut self.senders[from as usize];
        let arrival = queue.front_mut()?.arrival.take()?;
        queue.pop_front();
        Some(arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(from: u32, ticket: u64) -> Arrival {
        Arrival {
            ticket,
            from,
            tag: 0,
            bytes: Vec::new(),
        }
    }

    #[test]
    fn a_message_waits_for_those_its_sender_sent_before_and_for_no_other() {
        let mut order = InOrder::new(2);
        for (from, ticket) in [(0, 1), (1, 2), (0, 3)] {
            order.expect(from, ticket);
        }
        let next = |order: &mut InOrder, from| order.next(from).map(|arrival| arrival.ticket);
        order.arrive(arrival(0, 3));
        order.arrive(arrival(1, 2));
        assert_eq!(next(&mut order, 0), None);
        assert_eq!(next(&mut order, 1), Some(2));
        order.arrive(arrival(0, 1));
        assert_eq!(next(&mut order, 0), Some(1));
        assert_eq!(next(&mut order, 0), Some(3));
        assert_eq!(next(&mut order, 0), None);
    }
}
