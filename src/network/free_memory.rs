//! How much memory is left: Linux promises more than it has, and ends the process that takes it at its word.

use std::fs::read_to_string;

/// The bytes that a new buffer may have: what the machine has left, or the cgroup where that is less; `None` where
/// nobody says.
pub fn bytes() -> Option<usize> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    [machine, group()].into_iter().flatten().min()
}

/// `MemAvailable` of `/proc/meminfo` (proc(5)).
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// What the control group that the process sees as its root may still take (cgroups(7), version 2).
fn group() -> Option<usize> {
    let number = |file: &str| -> Option<usize> {
        read_to_string(format!("/sys/fs/cgroup/memory.{file}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    // Pages of files count as used, though they are given up first.
    let cached = read_to_string("/sys/fs/cgroup/memory.stat").ok()?;
    let cached = cached
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some(number("max")?.saturating_sub(number("current")?.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_stands_in_meminfo() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    12 kB\n"), Some(12 * 1024));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
