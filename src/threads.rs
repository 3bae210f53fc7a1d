//! Work that several threads share, and how many there may be.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads a plan uses when nobody says: `NEURENIX_THREADS`, else `OMP_NUM_THREADS`, else as many cores as
/// the affinity mask and the cgroup's quota leave.
pub fn default_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| {
        let said = ["NEURENIX_THREADS", "OMP_NUM_THREADS"]
            .iter()
            .find_map(|name| first_number(name));
        said.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    })
}

/// `OMP_NUM_THREADS` may be a list, one number per nesting level; the first one counts.
fn first_number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    text.split(',')
        .next()?
        .trim()
        .parse()
        .ok()
        .filter(|&threads| threads > 0)
}

/// Runs jobs by their numbers on as many threads as there are processors.
pub fn on_threads(jobs: usize, job: impl Fn(usize) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < jobs) {
            job(at);
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_job_is_done_once() {
        let done: Vec<AtomicBool> = (0..9).map(|_| AtomicBool::new(false)).collect();
        on_threads(done.len(), |at| assert!(!done[at].swap(true, Ordering::Relaxed)));
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed)));
        on_threads(0, |_| unreachable!());
    }
}
