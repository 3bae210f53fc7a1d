//! Work that several threads share.

use std::sync::atomic::{AtomicUsize, Ordering};

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
