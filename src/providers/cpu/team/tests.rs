use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

use super::*;

/// The sum of 0..n, counted by a team.
fn sum(threads: usize, n: usize) -> Result<usize> {
    run(threads, || {
        let total = AtomicUsize::new(0);
        parallel_for(n, 16, |range| {
            total.fetch_add(range.sum(), Relaxed);
        })?;
        Ok(total.into_inner())
    })
}

#[test]
fn ranges_cover_everything_once_and_start_at_multiples_of_the_grain() {
    for (n, grain, parts) in [(0, 1, 2), (1, 1, 4), (100, 16, 3), (64, 64, 2), (1000, 7, 8)] {
        let share = Share {
            n,
            grain,
            body: &|_| (),
            failed: Mutex::new(None),
        };
        let ranges: Vec<_> = (0..parts).map(|part| share.range(part, parts)).collect();
        assert_eq!(
            ranges.iter().cloned().flatten().collect::<Vec<_>>(),
            (0..n).collect::<Vec<_>>()
        );
        assert!(ranges.iter().all(|range| range.start % grain == 0 || range.is_empty()));
    }
}

#[test]
fn sixty_four_callers_share_few_threads() {
    thread::scope(|scope| {
        for caller in 0..64 {
            scope.spawn(move || {
                for round in 0..20 {
                    let n = 1000 + caller * 10 + round;
                    assert_eq!(sum(2, n).unwrap(), n * (n - 1) / 2);
                }
            });
        }
    });
    let ours = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = ours.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let workers = names.filter(|name| name.starts_with("neurenix-team")).count();
    // Other tests start workers of other sizes; a team per caller would be 64 and more.
    assert!(workers <= 4 * default_threads().max(2), "{workers} threads");
}

#[test]
fn work_in_work_runs_in_place() {
    let inner = run(2, || {
        run(3, || Ok((thread::current().id(), size()))).map(|inner| (thread::current().id(), inner))
    });
    let (outer, (inner, threads)) = inner.unwrap();
    assert_eq!((outer, threads), (inner, 2));
}

#[test]
fn alone_stays_on_the_callers_thread_and_restores_it() {
    let before = ffi::set_team_size(7);
    assert_eq!(
        run_alone(|| Ok((thread::current().id(), size()))).unwrap(),
        (thread::current().id(), 1)
    );
    assert_eq!(ffi::set_team_size(before), 7);
}

#[test]
fn a_panic_is_an_error_and_the_team_goes_on() {
    let error = run(2, || -> Result<()> { panic!("first") }).unwrap_err();
    assert_eq!(error.message(), "a CPU kernel panicked: first");
    let error = run(2, || parallel_for(100, 1, |range| assert!(range.start == 0, "second"))).unwrap_err();
    assert_eq!(error.message(), "a CPU kernel panicked: second");
    assert!(run_alone(|| -> Result<()> { panic!("third") }).is_err());
    assert_eq!(sum(2, 1000).unwrap(), 499_500);
}

#[test]
fn a_forked_child_gets_a_team_of_its_own() {
    assert_eq!(sum(2, 1000).unwrap(), 499_500);
    // SAFETY: the child only computes and leaves through `_exit`; the alarm ends it should it hang.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            libc::_exit(if sum(2, 1000).is_ok_and(|sum| sum == 499_500) {
                0
            } else {
                1
            });
        }
        let mut status = -1;
        libc::waitpid(child, &mut status, 0);
        status
    };
    assert_eq!(status, 0);
}

/// Loose bounds: they catch a wait that sleeps where it should not, on a machine that others use too.
#[test]
fn handing_over_is_cheap() {
    let time = |rounds: u32, work: &dyn Fn()| {
        let start = std::time::Instant::now();
        (0..rounds).for_each(|_| work());
        start.elapsed() / rounds
    };
    let alone = time(10_000, &|| run_alone(|| Ok(())).unwrap());
    let shared = time(1000, &|| run(2, || Ok(())).unwrap());
    println!("alone {alone:?}, shared {shared:?}");
    assert!(alone.as_micros() < 5 && shared.as_micros() < 1000);
}
