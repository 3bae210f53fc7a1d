//! How much memory is left: Linux promises more than it has, and ends the process that takes it at its word.

use std::fs::read_to_string;

/// So much under a limit of the process is left to what is too small to be asked for.
const SMALL_ONES: usize = 64 << 20;

/// The bytes that a new buffer may have: what the machine has left, or the cgroup or the limits of the process where
/// that is less; `None` where nobody says.
pub fn bytes() -> Option<usize> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    [machine, group(), process()].into_iter().flatten().min()
}

/// `MemAvailable` of `/proc/meminfo` (proc(5)).
fn available(meminfo: &str) -> Option<usize> {
    Some(number(meminfo, "MemAvailable:")? * 1024)
}

/// The number behind a name in a file of `/proc` (proc(5)), in kibibytes or, of limits, in bytes; `None` for `unlimited`.
fn number(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
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

/// What the limits of the process leave (getrlimit(2), RLIMIT_AS and RLIMIT_DATA): behind them an allocation fails.
fn process() -> Option<usize> {
    let (limits, used) = (
        read_to_string("/proc/self/limits").ok()?,
        read_to_string("/proc/self/status").ok()?,
    );
    let left = |limit, name| Some(number(&limits, limit)?.saturating_sub(number(&used, name)? * 1024));
    let ends = [left("Max address space", "VmSize:"), left("Max data size", "VmData:")];
    Some(ends.into_iter().flatten().min()?.saturating_sub(SMALL_ONES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_process_stand_in_its_files() {
        let limits = "Max data size             unlimited            unlimited            bytes\n\
                      Max address space         12884901888          unlimited            bytes\n";
        assert_eq!(number(limits, "Max address space"), Some(12 << 30));
        assert_eq!(number(limits, "Max data size"), None);
        assert_eq!(number("VmPeak:\t 9 kB\nVmSize:\t  3760 kB\n", "VmSize:"), Some(3760));
    }

    #[test]
    fn what_is_left_stands_in_meminfo() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    12 kB\n"), Some(12 * 1024));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
