//! Which instruction set a kernel uses.

use std::sync::OnceLock;

/// Instruction set used by the kernels.
///
/// Levels are ordered: a CPU that runs one level runs every lower one. Every level gives the same bits, so the choice is
/// only ever about speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, whatever the compiler makes of it for the baseline of the target. Always available.
    Portable,
    /// x86-64 with AVX2, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// What [`Level::Avx2`] needs, and AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// The highest level this CPU can run. Detected once per process; no environment variable changes it.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(detect)
    }

    /// Every level this CPU can run, [`Level::Portable`] first.
    pub fn available() -> Vec<Level> {
        [Level::Portable, Level::Avx2, Level::Avx512]
            .into_iter()
            .filter(|level| level.is_available())
            .collect()
    }

    /// The name in reports: `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// The level to run when this one is asked for: itself, or portable if the CPU cannot.
    ///
    /// All dispatch goes through here; it is what makes the calls of `target_feature` functions sound.
    pub(crate) fn usable(self) -> Level {
        if self.is_available() {
            self
        } else {
            Level::Portable
        }
    }

    fn is_available(self) -> bool {
        self <= Level::best()
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        (false, _) => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn portable_is_always_available_and_best_is_the_last_available() {
        let available = Level::available();
        assert_eq!(available.first(), Some(&Level::Portable));
        assert_eq!(available.last(), Some(&Level::best()));
    }

    #[test]
    fn a_level_the_cpu_lacks_falls_back_to_portable() {
        for level in [Level::Portable, Level::Avx2, Level::Avx512] {
            let expected = if Level::available().contains(&level) {
                level
            } else {
                Level::Portable
            };
            assert_eq!(level.usable(), expected);
        }
    }
}
