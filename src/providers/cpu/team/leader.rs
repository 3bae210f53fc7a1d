//! Which callers lead an OpenMP team of their own.
use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A process that warms up on one thread and serves from another has both lead. More would cost more than it saves:
/// the teams that wait for their next region get in the way of the one that runs.
const MOST: usize = 2;

static LEADERS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Undecided,
    Leader,
    Guest,
}

/// Uncounts a leader when its thread ends.
struct LeaderGuard;

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        if ROLE.replace(Role::Guest) == Role::Leader {
            LEADERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Undecided) };
    static GUARD: LeaderGuard = const { LeaderGuard };
}

/// Whether the current thread leads a team; the first threads that ask do, for as long as they live.
pub(super) fn is_leader() -> bool {
    if ROLE.get() == Role::Undecided {
        let taken = LEADERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < MOST).then_some(n + 1));
        let place = taken.is_ok() && GUARD.try_with(|_| ()).is_ok();
        ROLE.set(if place { Role::Leader } else { Role::Guest });
    }
    ROLE.get() == Role::Leader
}

/// In a forked child: no team is left, and the thread that forked must not touch its old one.
pub(super) fn forget() {
    ROLE.set(Role::Guest);
    LEADERS.store(0, Ordering::Relaxed);
}
