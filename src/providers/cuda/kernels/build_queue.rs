//! The queue of slow builds: compilations, and plans of libraries. The planner enqueues those of all forms that it will time, and
//! a program those of all of its instances, before the first is needed; then they run in parallel.

use crate::threads::on_threads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A build that takes long.
pub trait BuildJob: Send + Sync {
    /// Whether it has not run yet.
    fn is_pending(&self) -> bool;

    /// Runs it. A failure is kept, or found again, by whoever needs the result.
    fn build(&self);
}

/// Jobs of instances; one whose instance is gone is dropped.
static OF_INSTANCES: Mutex<Vec<Weak<dyn BuildJob>>> = Mutex::new(vec![]);
/// Jobs of the planner, by key.
static PLANNED: Mutex<BTreeMap<String, Arc<dyn BuildJob>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enqueues the job of an instance; the queue does not keep it alive.
pub fn enqueue(job: &Arc<impl BuildJob + 'static>) {
    let job: Arc<dyn BuildJob> = job.clone();
    let mut jobs = lock(&OF_INSTANCES);
    jobs.retain(|job| job.strong_count() > 0);
    jobs.push(Arc::downgrade(&job));
}

/// Enqueues a job whose result the planner will need. Jobs of equal keys run once.
pub fn enqueue_planned(key: String, job: Arc<dyn BuildJob>) {
    lock(&PLANNED).insert(key, job);
}

/// A closure that runs once, for what it leaves in a cache.
struct Once<F> {
    job: F,
    done: AtomicBool,
}

impl<F: Fn() + Send + Sync> BuildJob for Once<F> {
    fn is_pending(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    fn build(&self) {
        (self.job)();
        self.done.store(true, Ordering::Relaxed);
    }
}

/// As [`enqueue_planned`], for a closure that leaves its result in a cache, as that of the compiler.
pub fn enqueue_planned_fn(key: String, job: impl Fn() + Send + Sync + 'static) {
    let done = AtomicBool::new(false);
    enqueue_planned(key, Arc::new(Once { job, done }));
}

/// Runs the planner's jobs.
pub fn run_planned() {
    let planned: Vec<_> = std::mem::take(&mut *lock(&PLANNED)).into_values().collect();
    run(&planned);
}

/// Runs all jobs.
pub fn run_all() {
    let jobs = std::mem::take(&mut *lock(&OF_INSTANCES));
    let planned = std::mem::take(&mut *lock(&PLANNED)).into_values();
    let jobs = jobs.iter().filter_map(Weak::upgrade);
    run(&planned.chain(jobs).collect::<Vec<_>>());
}

/// Runs the pending jobs in parallel; a single one is left to whoever needs its result.
fn run(jobs: &[Arc<dyn BuildJob>]) {
    let pending: Vec<_> = jobs.iter().filter(|job| job.is_pending()).collect();
    if pending.len() > 1 {
        // What interrupts it is seen by the next poll; whoever needs the result of a job that did not run builds it then.
        _ = on_threads(pending.len(), |at| pending[at].build());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_planned_job_runs_once_for_each_key() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        for key in ["a", "b", "b"] {
            enqueue_planned_fn(key.into(), || _ = DONE.fetch_add(1, Ordering::Relaxed));
        }
        run_planned();
        run_planned();
        assert_eq!(DONE.load(Ordering::Relaxed), 2);
    }
}
