//! Keeps a team's threads off the core of the thread that leads it.
//!
//! Linux likes to wake a parked thread on the core of the thread that wakes it, where it then waits for a leader that
//! waits for it: measured, that trebles the time of a small network that is called now and then. So the members are
//! told to stay away from the leader's core, whichever that is at the start of a run. The leader itself is left free.
use std::{
    cell::RefCell,
    mem,
    sync::{Mutex, OnceLock, PoisonError},
};

use super::parallel_for;
use crate::error::Result;

/// On teams larger than this the members find a core of their own, and telling each would cost more than it saves.
const MOST_MEMBERS: usize = 16;

/// What the members of the current thread's team were told last.
#[derive(Default)]
struct Seats {
    team: usize,
    members: Vec<libc::pid_t>,
    leader: Option<usize>,
}

thread_local! {
    static SEATS: RefCell<Seats> = RefCell::default();
}

/// Tells the members of the team of `threads` threads that the current thread leads to leave its core to it. Does
/// nothing where the user has said where OpenMP's threads belong.
pub(super) fn leave_to_leader(threads: usize) -> Result<()> {
    if threads - 1 > MOST_MEMBERS || decided_by_user() {
        return Ok(());
    }
    SEATS.with_borrow_mut(|seats| {
        if seats.team != threads {
            *seats = Seats {
                team: threads,
                members: members(threads)?,
                leader: None,
            };
        }
        let core = current_core();
        if core != seats.leader {
            seats.leader = core;
            core.into_iter().for_each(|core| keep_off(&seats.members, core));
        }
        Ok(())
    })
}

fn decided_by_user() -> bool {
    static DECIDED: OnceLock<bool> = OnceLock::new();
    let names = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"];
    *DECIDED.get_or_init(|| names.iter().any(|name| std::env::var_os(name).is_some()))
}

/// The kernel's numbers of the team's threads, without the leader's.
fn members(threads: usize) -> Result<Vec<libc::pid_t>> {
    // SAFETY: takes nothing and can't fail.
    let this_thread = || unsafe { libc::gettid() };
    let (leader, found) = (this_thread(), Mutex::new(vec![]));
    parallel_for(threads, 1, |_| {
        found.lock().unwrap_or_else(PoisonError::into_inner).push(this_thread());
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.retain(|&thread| thread != leader);
    Ok(found)
}

fn current_core() -> Option<usize> {
    // SAFETY: takes nothing; -1 where the system can't say.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Failures are ignored: the threads then stay where they were, which costs time alone.
fn keep_off(members: &[libc::pid_t], core: usize) {
    const SIZE: usize = mem::size_of::<libc::cpu_set_t>();
    // SAFETY: all zeros is the empty set, and the kernel writes no more than `SIZE` bytes into it.
    let mut cores: libc::cpu_set_t = unsafe { mem::zeroed() };
    if core >= 8 * SIZE || unsafe { libc::sched_getaffinity(0, SIZE, &mut cores) } != 0 {
        return;
    }
    // SAFETY: `core` lies within the set.
    unsafe { libc::CPU_CLR(core, &mut cores) };
    // SAFETY: reads the set.
    if unsafe { libc::CPU_COUNT(&cores) } == 0 {
        return;
    }
    for &member in members {
        // SAFETY: signal 0 only asks whether the thread is still one of this process; the set is read.
        unsafe {
            if libc::syscall(libc::SYS_tgkill, libc::getpid(), member, 0) == 0 {
                libc::sched_setaffinity(member, SIZE, &cores);
            }
        }
    }
}
