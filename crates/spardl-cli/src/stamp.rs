//! Where numbers come from: version, commit, machine, date.

use std::fs;
#[cfg(feature = "train")]
use std::time::{SystemTime, UNIX_EPOCH};

use spardl_kernels::Level;

/// The version, and the commit where the build knew it.
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("SPARDL_COMMIT") {
        Some(commit) => format!("{version}, commit {commit}"),
        None => version.to_owned(),
    }
}

/// The processor, its cores, the level of the kernels and the system's kernel, as far as the system says.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, Into::<usize>::into);
    let mut words = vec![format!("{cores} cores")];
    words.extend(processor(
        &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
    ));
    words.push(Level::best().name().to_owned());
    if let Ok(kernel) = fs::read_to_string("/proc/sys/kernel/osrelease") {
        words.push(format!("Linux {}", kernel.trim()));
    }
    words.join(", ")
}

/// The name of the processor, and the numbers that tell generations apart: in a virtual machine they may share a name.
fn processor(cpuinfo: &str) -> Option<String> {
    let find = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(other, _)| other.trim() == name);
        found.map(|(_, value)| value.trim())
    };
    let name = find("model name")?;
    Some(match (find("cpu family"), find("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    })
}

/// Now, in UTC: `2026-11-18 01:44`.
#[cfg(feature = "train")]
pub(crate) fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    at(now.map_or(0, |since| since.as_secs()))
}

/// So many seconds after the beginning of 1970.
#[cfg(feature = "train")]
fn at(seconds: u64) -> String {
    let (mut days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_named_with_its_generation() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        let named = processor(cpuinfo);
        assert_eq!(named.as_deref(), Some("AMD EPYC (family 26, model 2)"));
        assert_eq!(processor("model name : Arm"), Some("Arm".to_owned()));
        assert_eq!(processor(""), None);
    }

    #[cfg(feature = "train")]
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(1_709_251_199), "2024-02-29 23:59");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00");
    }
}
