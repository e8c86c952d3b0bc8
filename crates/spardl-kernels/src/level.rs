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
    /// x86-64 with AVX2, F16C, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// What [`Level::Avx2`] needs, and AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// Every level there is, lowest first.
    const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The level that everything uses: the highest this CPU can run, or the lower one that [`Level::VARIABLE`] asks for.
    ///
    /// Decided once per process. A variable that cannot be followed is as good as none: a library has nobody to complain to.
    /// A command asks [`Level::asked`] first.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::asked().ok().flatten().unwrap_or_else(detected))
    }

    /// The environment variable that forces a lower level, so that every level can be measured on one machine.
    pub const VARIABLE: &'static str = "SPARDL_LEVEL";

    /// The level that [`Level::VARIABLE`] names; `None` when it is not set.
    ///
    /// # Errors
    ///
    /// One line that says what was expected, when the name is none of a level or the CPU lacks it.
    pub fn asked() -> Result<Option<Level>, String> {
        match std::env::var_os(Level::VARIABLE) {
            Some(name) => Level::named(&name.to_string_lossy()).map(Some),
            None => Ok(None),
        }
    }

    fn named(name: &str) -> Result<Level, String> {
        let known = Level::ALL.into_iter().find(|level| level.name() == name);
        match known.filter(|level| level.is_available()) {
            Some(level) => Ok(level),
            None => {
                let names: Vec<_> = Level::available().into_iter().map(Level::name).collect();
                let (variable, names) = (Level::VARIABLE, names.join(", "));
                let what = if known.is_some() {
                    "the CPU lacks"
                } else {
                    "there is no"
                };
                Err(format!("{variable}: {what} '{name}': use {names}"))
            }
        }
    }

    /// Every level this CPU can run, [`Level::Portable`] first, whatever [`Level::VARIABLE`] asks for.
    pub fn available() -> Vec<Level> {
        let all = Level::ALL.into_iter();
        all.filter(|level| level.is_available()).collect()
    }

    /// The name in reports and in [`Level::VARIABLE`]: `portable`, `avx2` or `avx512`.
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
        self <= detected()
    }
}

/// The highest level this CPU can run, found out once.
fn detected() -> Level {
    static DETECTED: OnceLock<Level> = OnceLock::new();
    *DETECTED.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("f16c")
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
    fn portable_is_always_available_and_the_best_is_the_last_or_the_one_asked_for() {
        let available = Level::available();
        assert_eq!(available.first(), Some(&Level::Portable));
        let last = available.last().copied();
        let asked = Level::asked().ok().flatten();
        assert_eq!(asked.or(last), Some(Level::best()));
    }

    #[test]
    fn levels_are_asked_for_by_name_and_what_cannot_be_is_said_in_one_line() {
        for level in Level::available() {
            assert_eq!(Level::named(level.name()), Ok(level));
        }
        let error = Level::named("sse9").unwrap_err();
        assert!(error.starts_with("SPARDL_LEVEL: there is no 'sse9': use portable"));
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
