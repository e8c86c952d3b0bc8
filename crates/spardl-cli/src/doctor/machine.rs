//! This machine, as the system describes it.

use std::{env, fs, thread};

/// The name of this machine; `None` where the system does not say.
pub(crate) fn name() -> Option<String> {
    let file = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = file
        .or_else(|| env::var("HOSTNAME").ok())?
        .trim()
        .to_owned();
    (!name.is_empty()).then_some(name)
}

/// The cores of the machine, not only those that this process is bound to: launchers bind each rank to one.
pub(super) fn cores() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let count = online.and_then(|list| count(list.trim()));
    count.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into))
}

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(part).sum()
}

/// What tells machines apart whose ranks may have names of their own, as in namespaces: when the system was started.
pub(super) fn boot(host: &str) -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| host.to_owned(), |id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8"), Some(5));
        assert_eq!(count("0-1,4-5"), Some(4));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }
}
