//! Work that several threads share, and how many there may be.

use crate::error::Result;
use crate::interrupt::{self, Scope};
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
///
/// # Errors
/// If the caller ends the work: jobs that are not begun are left out.
pub fn on_threads(jobs: usize, job: impl Fn(usize) + Sync) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
    let (next, running) = (AtomicUsize::new(0), AtomicUsize::new(threads));
    let (scope, caller) = (interrupt::current(), std::thread::current());
    let work = || {
        let _part = scope.as_ref().map(Scope::join);
        let _last = OnDrop(|| {
            if running.fetch_sub(1, Ordering::Release) == 1 {
                caller.unpark();
            }
        });
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < jobs) {
            if interrupt::poll().is_err() {
                break;
            }
            job(at);
        }
    };
    std::thread::scope(|threads_of| {
        (0..threads).for_each(|_| _ = threads_of.spawn(work));
        let mut asked = Ok(());
        while running.load(Ordering::Acquire) > 0 {
            interrupt::park();
            // What ended the work stays: the threads learn it.
            asked = asked.and_then(|()| interrupt::poll());
        }
        asked
    })
}

/// What jobs give, in the order of their numbers, as [`on_threads`] runs them.
///
/// # Errors
/// As there.
pub fn collect_on_threads<T: Send + Sync>(jobs: usize, job: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    let made: Vec<OnceLock<T>> = (0..jobs).map(|_| OnceLock::new()).collect();
    on_threads(jobs, |at| _ = made[at].set(job(at)))?;
    Ok(made.into_iter().filter_map(OnceLock::into_inner).collect())
}

/// Does something when it goes, after a panic too.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[test]
    fn every_job_is_done_once() {
        let done: Vec<AtomicBool> = (0..9).map(|_| AtomicBool::new(false)).collect();
        on_threads(done.len(), |at| assert!(!done[at].swap(true, Ordering::Relaxed))).unwrap();
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed)));
        on_threads(0, |_| unreachable!()).unwrap();
    }

    #[test]
    fn who_called_ends_what_is_not_begun() {
        const EVERY: Duration = Duration::from_millis(5);
        let done = AtomicUsize::new(0);
        let ended = Scope::new(EVERY, || Err(Error::interrupted("enough"))).run(|| {
            on_threads(1000, |_| {
                std::thread::sleep(EVERY);
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        assert_eq!(ended.unwrap_err().message(), "enough");
        assert!(done.into_inner() < 1000);
    }
}
