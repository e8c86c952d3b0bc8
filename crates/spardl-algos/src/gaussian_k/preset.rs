//! How the published programs correct the threshold.

/// How the threshold is corrected when the first count is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Both ways, into 3k/4..5k/4.
    #[default]
    Vgg,
    /// Down only, with many small steps.
    Lstm,
    /// Down only, and a little further than what triggers it.
    Bert,
    /// Both ways in large steps, a few times.
    Paper,
}

impl Preset {
    /// All presets, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("vgg", Self::Vgg),
        ("lstm", Self::Lstm),
        ("bert", Self::Bert),
        ("paper", Self::Paper),
    ];

    /// Ok-Topk's repository, `GaussianCompressor.compress` in `{VGG,LSTM,BERT/bert}/compression.py`; `None` for the paper's own
    /// loop, which may turn round.
    pub(super) const fn correction(self, k: usize) -> Option<Correction> {
        let (step, steps, enough, too_many) = match self {
            Self::Vgg => (1.02, 20, 3 * k / 4, 5 * k / 4),
            Self::Lstm => (1.012, 50, 3 * k / 4, usize::MAX),
            Self::Bert => (1.012, 20, 5 * k / 6, usize::MAX),
            Self::Paper => return None,
        };
        Some(Correction {
            step,
            steps,
            too_few: 3 * k / 4,
            enough,
            too_many,
        })
    }

    pub(super) fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, preset)| *preset == self);
        named.expect("every preset is in the list").0
    }
}

/// The loops of a preset for one `k`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    pub(super) step: f64,
    pub(super) steps: u32,
    /// A first count below this starts the way down, which ends at `enough`.
    pub(super) too_few: usize,
    pub(super) enough: usize,
    /// A first count above this starts the way up, which ends there.
    pub(super) too_many: usize,
}

/// The counts of the paper's loop, so that the threshold moves at most one time less.
pub(super) const COARSE_COUNTS: usize = 5;

/// Where the paper's loop moves the threshold when `count` is outside 2k/3..4k/3; `None` inside.
pub(super) fn coarse_move(count: usize, k: usize) -> Option<f64> {
    match 3 * count {
        thrice if thrice < 2 * k => Some(0.5),
        thrice if thrice > 4 * k => Some(1.5),
        _ => None,
    }
}
