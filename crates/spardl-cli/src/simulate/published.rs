//! The costs that the papers state, beside what the machines do.

use spardl_algos::{Sag, registry};

/// Rounds, and words of 4 bytes on the longest chain, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Published {
    pub(crate) rounds: f64,
    pub(crate) words: (f64, f64),
}

/// What a formula is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) workers: u32,
    pub(crate) elements: u64,
    pub(crate) k: u64,
    pub(crate) teams: u32,
    pub(crate) sag: Sag,
}

/// What the paper of a method says; the comparison tables of SparDL and Ok-Topk for those without a statement of their own.
pub(crate) fn published(method: &str, case: Case) -> Option<Published> {
    let (entry, values) = registry::find(method).ok()?;
    if values.is_some_and(|values| values != spardl_core::ValueType::F32) {
        return None;
    }
    let (p, n, k) = (f64::from(case.workers), case.elements as f64, case.k as f64);
    let log = |x: f64| x.log2().ceil().max(0.0);
    let rest = (p - 1.0) / p;
    let exactly = |rounds, words| Published {
        rounds,
        words: (words, words),
    };
    Some(match entry.name {
        "spardl" => spardl(p, k, case),
        // Eq. 3.
        "ok-topk" => Published {
            rounds: 2.0 * p + 2.0 * log(p),
            words: (2.0 * k * rest, 6.0 * k * rest),
        },
        "topk-a" | "gaussian-k" => exactly(log(p), 2.0 * k * (p - 1.0)),
        "topk-dsa" => Published {
            rounds: p + 2.0 * log(p),
            words: (4.0 * k * rest, (2.0 * k + n) * rest),
        },
        "gtopk" => exactly(2.0 * log(p), 4.0 * k * log(p)),
        "dense" | "dense-rabenseifner" => exactly(2.0 * log(p), 2.0 * n * rest),
        "dense-ring" => exactly(2.0 * (p - 1.0), 2.0 * n * rest),
        _ => return None,
    })
}

fn spardl(p: f64, k: f64, case: Case) -> Published {
    let d = f64::from(case.teams);
    let log = |x: f64| x.log2().ceil().max(0.0);
    let doubles = match case.sag {
        Sag::Auto => case.teams.is_power_of_two(),
        Sag::R => true,
        Sag::B => false,
    };
    let words = if doubles {
        let words = 2.0 * k * (2.0 * p - 2.0 * d + d * log(d)) / p;
        (words, words)
    } else {
        let least = k * (4.0 * p - 2.0 * d - 2.0) / p;
        (least, 2.0 * k * (d * d - 3.0 * d + 2.0 * p) / p)
    };
    Published {
        rounds: 2.0 * log(p / d) + log(d),
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_have_their_known_values() {
        let case = |teams, sag| Case {
            workers: 8,
            elements: 1000,
            k: 16,
            teams,
            sag,
        };
        let of = |method, teams, sag| published(method, case(teams, sag)).unwrap();
        let exactly = |rounds, words| Published {
            rounds,
            words: (words, words),
        };
        assert_eq!(of("spardl", 1, Sag::Auto), exactly(6.0, 56.0));
        assert_eq!(of("spardl", 2, Sag::R), exactly(5.0, 56.0));
        let gathered = of("spardl", 4, Sag::B);
        assert_eq!((gathered.rounds, gathered.words), (4.0, (44.0, 80.0)));
        assert_eq!(of("dense-ring", 1, Sag::Auto), exactly(14.0, 1750.0));
        assert_eq!(published("power-sgd", case(1, Sag::Auto)), None);
        assert_eq!(published("spardl-q4", case(1, Sag::Auto)), None);
    }
}
