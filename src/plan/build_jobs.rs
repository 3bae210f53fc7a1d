//! What takes long to build (compilations, plans of libraries), built for many kernels in parallel before the first is needed.

use crate::threads::on_threads;
use std::collections::BTreeMap;

/// A compilation, or a plan of a library. Its result, or its failure, is found in a cache by whoever finishes the kernel, or
/// built by him if it did not run.
pub struct BuildJob {
    /// Jobs of equal keys are one.
    pub key: String,
    /// Whether its result is kept on disk, for other processes.
    pub is_kept: bool,
    run: Box<dyn Fn() + Send + Sync>,
}

impl BuildJob {
    /// A compilation, whose result is kept on disk.
    pub fn compilation(key: String, run: impl Fn() + Send + Sync + 'static) -> Self {
        let run = Box::new(run);
        Self {
            key,
            is_kept: true,
            run,
        }
    }

    /// A plan of a library, which lasts as long as the process.
    pub fn plan(key: String, run: impl Fn() + Send + Sync + 'static) -> Self {
        let run = Box::new(run);
        Self {
            key,
            is_kept: false,
            run,
        }
    }
}

/// Runs jobs in parallel, each key once. What interrupts them is seen by the next poll.
pub fn run(jobs: impl IntoIterator<Item = BuildJob>) {
    let jobs: BTreeMap<String, BuildJob> = jobs.into_iter().map(|job| (job.key.clone(), job)).collect();
    let jobs: Vec<BuildJob> = jobs.into_values().collect();
    match &jobs[..] {
        [] => {}
        [alone] => (alone.run)(),
        _ => _ = on_threads(jobs.len(), |at| (jobs[at].run)()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_runs_once_for_each_key() {
        let (done, seen) = channel();
        let job = |key: &'static str| {
            let done = done.clone();
            BuildJob::plan(key.into(), move || done.send(key).unwrap())
        };
        run(["a", "b", "b"].map(job));
        run(["a"].map(job));
        run([]);
        let mut seen: Vec<_> = seen.try_iter().collect();
        seen.sort();
        assert_eq!(seen, ["a", "a", "b"]);
    }
}
