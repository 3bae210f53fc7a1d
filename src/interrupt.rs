//! Lets whoever called end long work: the work polls now and then, and the caller's thread then asks its own side.
//!
//! An answer that ends the work stays: code that goes on where something failed is ended by the next poll, and the answer
//! is what the caller gets.

use crate::error::Error;
use crate::error::Result;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// One piece of work that may be ended, whichever threads do it.
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

struct Inner {
    every: Duration,
    check: Box<dyn Fn() -> Result<()> + Send + Sync>,
    ended: OnceLock<Error>,
}

/// What the current thread is part of.
struct Here {
    scope: Scope,
    /// When the caller's side was last asked; `None` where another thread asks.
    asked: Option<Cell<Instant>>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

impl Scope {
    /// Work of the current thread; `check` fails when it is to end. It is asked no more often than `every` so long.
    pub fn new(every: Duration, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            every,
            check: Box::new(check),
            ended: OnceLock::new(),
        }))
    }

    /// Does the work on the current thread, which is the caller's.
    ///
    /// # Errors
    /// What ended the work, though it may have gone on; else its own.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = {
            let _part = Part::of(self, Some(Cell::new(Instant::now())));
            work()
        };
        match self.0.ended.get() {
            Some(ended) => Err(ended.clone()),
            None => done,
        }
    }

    /// Ends the work.
    pub fn end(&self, why: Error) {
        // What came first counts.
        _ = self.0.ended.set(why);
    }

    /// Makes the current thread a part of the work for as long as the result lives. It does not ask the caller's side.
    pub fn join(&self) -> impl Drop + use<> {
        Part::of(self, None)
    }
}

/// Puts back what the thread was part of before.
struct Part(Option<Here>);

impl Part {
    fn of(scope: &Scope, asked: Option<Cell<Instant>>) -> Self {
        let scope = scope.clone();
        Self(HERE.replace(Some(Here { scope, asked })))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

/// The work that the current thread is part of.
pub fn current() -> Option<Scope> {
    HERE.with_borrow(|here| here.as_ref().map(|here| here.scope.clone()))
}

/// How often who waits on the current thread should poll; `None` where nobody can end that.
pub fn every() -> Option<Duration> {
    HERE.with_borrow(|here| here.as_ref().map(|here| here.scope.0.every))
}

/// Parks the current thread until it is told to go on, or it is time to poll.
pub fn park() {
    every().map_or_else(thread::park, thread::park_timeout);
}

/// Fails when the work that the current thread is part of is to end.
///
/// # Errors
/// What ended it.
pub fn poll() -> Result<()> {
    let due = HERE.with_borrow(|here| {
        let here = here.as_ref()?;
        if let Some(ended) = here.scope.0.ended.get() {
            return Some(Err(ended.clone()));
        }
        let every = here.scope.0.every;
        let asked = here.asked.as_ref().filter(|asked| asked.get().elapsed() >= every)?;
        asked.set(Instant::now());
        Some(Ok(here.scope.clone()))
    });
    // Asked without a borrow: what the caller's side does may be work of ours.
    let Some(scope) = due.transpose()? else {
        return Ok(());
    };
    (scope.0.check)().inspect_err(|why| scope.end(why.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const EVERY: Duration = Duration::from_millis(5);

    fn polled() -> Result<()> {
        thread::sleep(EVERY);
        poll()
    }

    #[test]
    fn without_a_caller_nothing_ends() {
        assert!(polled().is_ok() && current().is_none());
    }

    #[test]
    fn the_answer_stays_though_the_work_goes_on() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let scope = Scope::new(EVERY, move || {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Error::interrupted("enough"))
        });
        let done = scope.run(|| {
            assert!(poll().is_ok(), "asked at once");
            assert!(polled().is_err() && poll().is_err());
            Ok(())
        });
        assert_eq!(done.unwrap_err().message(), "enough");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(current().is_none());
    }

    #[test]
    fn another_thread_learns_it_and_never_asks() {
        let scope = Scope::new(EVERY, || panic!("asked"));
        let there = scope.clone();
        let work = move || {
            let _part = there.join();
            let before = polled();
            there.end(Error::interrupted("from there"));
            (before.is_ok(), poll().is_err())
        };
        assert_eq!(thread::spawn(work).join().unwrap(), (true, true));
        assert_eq!(scope.run(|| Ok(())).unwrap_err().message(), "from there");
    }

    #[test]
    fn work_within_work_has_its_own_caller() {
        let outer = Scope::new(EVERY, || Ok(()));
        let done = outer.run(|| {
            let inner = Scope::new(EVERY, || Err(Error::interrupted("inner")));
            assert!(inner.run(polled).is_err());
            polled()
        });
        assert!(done.is_ok());
    }
}
