//! What takes long to build. A program makes all of its instances before it asks the first one to be ready, and the planner
//! tells what it will time before it does: then what all of them wish for is built at once, on several threads.

use crate::threads::on_threads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Something that is wanted.
pub trait Wish: Send + Sync {
    /// Whether nobody built it yet.
    fn is_open(&self) -> bool;

    /// Builds it, and keeps what goes wrong for who needs it.
    fn build(&self);
}

/// The wishes that nobody asked to be fulfilled yet.
static WISHES: Mutex<Vec<Weak<dyn Wish>>> = Mutex::new(vec![]);
/// Those of the planner, each once.
static EXPECTED: Mutex<BTreeMap<String, Arc<dyn Wish>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a wish down.
pub fn wish(wish: &Arc<impl Wish + 'static>) {
    let wish: Arc<dyn Wish> = wish.clone();
    let mut wishes = lock(&WISHES);
    wishes.retain(|wish| wish.strong_count() > 0);
    wishes.push(Arc::downgrade(&wish));
}

/// Writes down what will be wished for, under what it is known by.
pub fn expect(key: String, wish: Arc<dyn Wish>) {
    lock(&EXPECTED).insert(key, wish);
}

/// Something that is done once, for what it leaves in a cache.
struct Once<F> {
    job: F,
    done: AtomicBool,
}

impl<F: Fn() + Send + Sync> Wish for Once<F> {
    fn is_open(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    fn build(&self) {
        (self.job)();
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Writes down a job that will have to be done: compiling a kernel, say, which the compiler then has.
pub fn expect_job(key: String, job: impl Fn() + Send + Sync + 'static) {
    let done = AtomicBool::new(false);
    expect(key, Arc::new(Once { job, done }));
}

/// Builds what the planner said it will wish for, before the first of it is needed.
pub fn meet_expectations() {
    let expected: Vec<_> = std::mem::take(&mut *lock(&EXPECTED)).into_values().collect();
    build(&expected);
}

/// Builds what is wished for and still wanted; a single wish is left to who asks.
pub fn fulfil() {
    let wishes = std::mem::take(&mut *lock(&WISHES));
    let expected = std::mem::take(&mut *lock(&EXPECTED)).into_values();
    let asked = wishes.iter().filter_map(Weak::upgrade);
    build(&expected.chain(asked).collect::<Vec<_>>());
}

fn build(wishes: &[Arc<dyn Wish>]) {
    let open: Vec<_> = wishes.iter().filter(|wish| wish.is_open()).collect();
    if open.len() > 1 {
        // What ended it stays for the next who polls; a wish that is left out is fulfilled by who asks.
        _ = on_threads(open.len(), |at| open[at].build());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn what_is_expected_is_done_once_for_each_key() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        for key in ["a", "b", "b"] {
            expect_job(key.into(), || _ = DONE.fetch_add(1, Ordering::Relaxed));
        }
        meet_expectations();
        meet_expectations();
        assert_eq!(DONE.load(Ordering::Relaxed), 2);
    }
}
