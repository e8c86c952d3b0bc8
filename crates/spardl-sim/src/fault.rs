//! What may happen to messages: a closure that decides, or rules that add up.

use std::fmt;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::Rank;
use spardl_drive::BucketId;

/// What happens to a message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It arrives as it is.
    None,
    /// It never arrives.
    Drop,
    /// It arrives with these bytes instead.
    Replace(Vec<u8>),
    /// It departs later, and so many copies of it take up the network and are discarded at its end.
    Late {
        /// How much later.
        by: Duration,
        /// How many copies.
        copies: u32,
    },
}

/// A message on its way, as a fault rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The bucket.
    pub bucket: BucketId,
    /// The round of the step.
    pub round: u32,
    /// The wire bytes.
    pub bytes: &'a [u8],
}

/// What a rule does to the messages it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The link drops it and sends it again after this time, until it gets through.
    Drop {
        /// The time after which a lost message is sent again.
        again: Duration,
    },
    /// It departs that much later.
    Delay(Duration),
    /// A second one is sent, and discarded at the end.
    Duplicate,
    /// It is lost for good.
    Lose,
}

/// After so many losses in a row a dropped message gets through.
const MOST_DROPS: u32 = 16;

/// One rule: what happens, how often, and to which messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// What happens.
    pub effect: Effect,
    /// How often, from 0 to 1.
    pub probability: f64,
    /// Only to messages of this worker.
    pub from: Option<Rank>,
    /// Only to messages for this worker.
    pub to: Option<Rank>,
    /// Only to messages of this round.
    pub round: Option<u32>,
}

impl Rule {
    /// A rule for every message.
    pub const fn always(effect: Effect) -> Self {
        Self {
            effect,
            probability: 1.0,
            from: None,
            to: None,
            round: None,
        }
    }

    /// The same, so often.
    #[must_use]
    pub const fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Can a message be lost for good by it?
    pub const fn loses(&self) -> bool {
        matches!(self.effect, Effect::Lose)
    }

    fn concerns(&self, message: &Message<'_>) -> bool {
        self.from.is_none_or(|from| from == message.from)
            && self.to.is_none_or(|to| to == message.to)
            && self.round.is_none_or(|round| round == message.round)
    }
}

/// Rules that are asked in turn; what they do to a message adds up.
pub struct Rules {
    rules: Vec<Rule>,
    random: ChaCha8Rng,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.rules).finish()
    }
}

impl Rules {
    /// These rules, with chances drawn from a seed.
    pub fn new(rules: &[Rule], seed: u64) -> Self {
        Self {
            rules: rules.to_vec(),
            random: ChaCha8Rng::seed_from_u64(seed ^ 0xfa_17),
        }
    }

    /// What happens to a message.
    pub fn decide(&mut self, message: Message<'_>) -> Fault {
        let (mut late, mut extra) = (Duration::ZERO, 0);
        for rule in self.rules.iter().filter(|rule| rule.concerns(&message)) {
            let mut strikes = || rule.probability > self.random.random_range(0.0..1.0);
            match rule.effect {
                Effect::Drop { again } => {
                    let drops = (0..MOST_DROPS).take_while(|_| strikes()).count();
                    late += again * drops as u32;
                }
                Effect::Delay(by) if strikes() => late += by,
                Effect::Duplicate if strikes() => extra += 1,
                Effect::Lose if strikes() => return Fault::Drop,
                Effect::Delay(_) | Effect::Duplicate | Effect::Lose => {}
            }
        }
        match (late, extra) {
            (Duration::ZERO, 0) => Fault::None,
            (by, copies) => Fault::Late { by, copies },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(rules: &[Rule], from: u32, round: u32) -> Fault {
        Rules::new(rules, 1).decide(Message {
            from: Rank::new(from),
            to: Rank::new(0),
            bucket: BucketId::new(0),
            round,
            bytes: &[],
        })
    }

    #[test]
    fn rules_add_up_and_concern_only_what_they_name() {
        let millisecond = Duration::from_millis(1);
        let mut slow = Rule::always(Effect::Delay(millisecond));
        slow.from = Some(Rank::new(3));
        let rules = [slow, slow, Rule::always(Effect::Duplicate)];
        let late = |by, copies| Fault::Late { by, copies };
        assert_eq!(decide(&rules, 3, 0), late(2 * millisecond, 1));
        assert_eq!(decide(&rules, 2, 0), late(Duration::ZERO, 1));
        let mut lost = Rule::always(Effect::Lose);
        lost.round = Some(5);
        assert_eq!(decide(&[lost], 2, 5), Fault::Drop);
        assert_eq!(decide(&[lost], 2, 4), Fault::None);
        let drop = Rule::always(Effect::Drop { again: millisecond });
        assert_eq!(decide(&[drop], 0, 0), late(16 * millisecond, 0));
        assert_eq!(decide(&[drop.with_probability(0.0)], 0, 0), Fault::None);
    }
}
