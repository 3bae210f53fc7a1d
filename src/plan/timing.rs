//! Times kernels as they will run, and remembers the times on disk.
//!
//! The cache is a text file that only grows: one line per time, each with a checksum, so that a torn or foreign
//! line is skipped. Writers hold a lock while they append. Who may write the file can make builds choose slower kernels, and
//! nothing worse.

use crate::error::Result;
use crate::interrupt;
use crate::network::array::{Buffer, require};
use crate::plan::effort;
use crate::plan::layout::Operand;
use crate::plan::{Call, Form, Instance, Kernel, Prepared, Provider, Request, Settings, Tier};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Times in nanoseconds by key.
pub type Times = BTreeMap<String, u64>;

/// The times that are known, in memory and perhaps in a file.
#[derive(Default)]
pub struct TimingCache {
    path: Option<PathBuf>,
    times: Mutex<Times>,
    fresh: Mutex<Times>,
}

/// A larger file is left alone, neither read nor written.
const MAX_FILE: u64 = 64 << 20;
/// Who can't have the lock for so long leaves the file alone: whoever holds it does not go on.
const PATIENCE: Duration = Duration::from_secs(2);

impl TimingCache {
    /// A cache in memory alone.
    pub fn in_memory(times: Times) -> Self {
        Self {
            times: Mutex::new(times),
            ..Self::default()
        }
    }

    /// A cache over a file, which need not exist. What can't be read is ignored: times can be measured again.
    pub fn open(path: PathBuf) -> Self {
        let times = read(&path).unwrap_or_default();
        Self {
            path: Some(path),
            times: Mutex::new(times),
            fresh: Mutex::default(),
        }
    }

    /// Puts times in the place of all that are known of the same kernels, however often those were timed.
    pub fn put(&self, times: &Times) {
        let mut known = lock(&self.times);
        for key in times.keys().flat_map(|key| effort::alike(key)) {
            known.remove(&key);
        }
        known.extend(times.iter().map(|(key, &time)| (key.clone(), time)));
    }

    /// The time of a key, measured if it is not known yet.
    ///
    /// # Errors
    /// Those of the measurement.
    pub fn time(&self, key: &str, measure: impl FnOnce() -> Result<u64>) -> Result<u64> {
        if let Some(&known) = lock(&self.times).get(key) {
            return Ok(known);
        }
        let measured = measure()?;
        lock(&self.times).insert(key.into(), measured);
        lock(&self.fresh).insert(key.into(), measured);
        Ok(measured)
    }

    /// The known time of a key.
    pub fn known(&self, key: &str) -> Option<u64> {
        lock(&self.times).get(key).copied()
    }

    /// Appends what was measured since the last call to the file, if there is one.
    ///
    /// # Errors
    /// If the file can't be written; the times stay in memory.
    pub fn flush(&self) -> Result<()> {
        let fresh = std::mem::take(&mut *lock(&self.fresh));
        let Some(path) = self.path.as_ref().filter(|_| !fresh.is_empty()) else {
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = reasonable(OpenOptions::new().create(true).append(true), path)?;
        let _lock = FileLock::exclusive(&file, PATIENCE)?;
        let lines: String = fresh.iter().map(|(key, time)| line(key, *time)).collect();
        Ok((&file).write_all(lines.as_bytes())?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic elsewhere leaves the map whole: each change is one insertion.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn line(key: &str, time: u64) -> String {
    let body = format!("{time}\t{key}");
    format!("{:016x}\t{body}\n", xxh3_64(body.as_bytes()))
}

/// A file of no more than [`MAX_FILE`] bytes: no pipe, that would wait for somebody, no device, and no link, by which
/// whoever may write the folder could have another file of the user's appended to.
fn reasonable(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let open = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    let file = open.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => std::io::Error::other("it is a link, which is not followed"),
        _ => e,
    })?;
    let there = file.metadata()?;
    let refused = match there.is_file() {
        false => "it is not a file",
        true if there.len() > MAX_FILE => "it is too large; delete it, and it begins anew",
        true => return Ok(file),
    };
    Err(std::io::Error::other(refused))
}

fn read(path: &Path) -> std::io::Result<Times> {
    let mut text = vec![];
    let file = reasonable(OpenOptions::new().read(true), path)?;
    file.take(MAX_FILE).read_to_end(&mut text)?;
    let parse = |line: &str| {
        let (sum, body) = line.split_once('\t')?;
        let (time, key) = body.split_once('\t')?;
        let intact = u64::from_str_radix(sum, 16).ok()? == xxh3_64(body.as_bytes());
        intact.then(|| time.parse().ok().map(|time| (key.to_string(), time)))?
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

struct FileLock<'a>(&'a File);

impl<'a> FileLock<'a> {
    fn exclusive(file: &'a File, patience: Duration) -> std::io::Result<Self> {
        const PAUSE: Duration = Duration::from_millis(5);
        let end = Instant::now() + patience;
        loop {
            // SAFETY: the descriptor is open as long as `file` is borrowed.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Self(file));
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return Err(error);
            }
            if Instant::now() > end {
                return Err(std::io::Error::other(
                    "another process holds its lock and does not go on",
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `exclusive`. A failure leaves the lock to the close of the file.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// The key of a kernel in a form at these operands, on a device.
pub fn key(signature: &str, kernel: &dyn Kernel, form: &Form, inputs: &[Operand], outputs: &[Operand]) -> String {
    let all = |operands: &[Operand]| operands.iter().map(Operand::describe).collect::<Vec<_>>().join(",");
    let name = format!("{}|{}|{}>{}", kernel.identity(), form.tactic, all(inputs), all(outputs));
    named(signature, &name)
}

/// The key of anything that was timed, on devices of this signature.
pub fn named(signature: &str, name: &str) -> String {
    format!("{signature}|{name}").replace(['\n', '\t'], " ")
}

/// The signatures of providers that one time depends on.
pub fn signatures(providers: &[Arc<dyn Provider>], settings: &Settings) -> String {
    let all: Vec<_> = providers.iter().map(|p| p.signature(settings)).collect();
    all.join(" and ")
}

/// The time that stands for a reference implementation, in nanoseconds: longer than any kernel takes. These are not timed.
pub const REFERENCE_TIME: u64 = 1_000_000_000_000;

/// The time of a kernel as `time` measures it, in nanoseconds; [`REFERENCE_TIME`] if it has a reference implementation alone.
///
/// # Errors
/// If the kernel can't serve the shapes in this form, or fails.
pub fn unless_reference(
    provider: &dyn Provider,
    kernel: &dyn Kernel,
    request: &Request,
    time: impl Fn(Prepared) -> Result<u64> + Sync,
) -> Result<u64> {
    interrupt::poll()?;
    let mut found = REFERENCE_TIME;
    provider.run(request.threads, &mut || {
        let prepared = kernel.prepare(request)?;
        if prepared.tier != Tier::Reference {
            found = time(prepared)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// The least time of so many rounds of a few runs, in nanoseconds; [`REFERENCE_TIME`] for a reference implementation.
///
/// # Errors
/// As [`unless_reference`].
pub fn measure(provider: &dyn Provider, kernel: &dyn Kernel, request: &Request, rounds: u32) -> Result<u64> {
    unless_reference(provider, kernel, request, |prepared| {
        let mut instance = prepared.finish()?;
        (0..rounds).try_fold(u64::MAX, |least, _| {
            Ok(least.min(provider.time(&mut instance, request)?))
        })
    })
}

/// The least time of a few runs on the caller's threads, in nanoseconds.
///
/// # Errors
/// If there is too little memory, or the instance fails.
pub fn repeat(instance: &mut Instance, request: &Request) -> Result<u64> {
    /// Enough to see through noise, as long as a run is short.
    const BUDGET: Duration = Duration::from_millis(12);
    const MOST_RUNS: usize = 20;
    const FEWEST_RUNS: usize = 2;
    /// So many runs in a row that are not better, by a hundredth, say that none will be, once so much time was spent.
    const SETTLED_RUNS: usize = 5;
    const BETTER: f64 = 0.99;
    const SETTLED_AFTER: Duration = Duration::from_millis(3);
    let buffers = |operands: &[Operand]| -> Result<Vec<Buffer>> {
        operands.iter().map(|o| Buffer::try_zeroed(o.bytes())).collect()
    };
    let all = request.inputs.iter().chain(request.outputs).map(Operand::bytes).sum();
    require(all)?;
    let (inputs, outputs) = (buffers(request.inputs)?, buffers(request.outputs)?);
    let workspace = Buffer::try_zeroed(instance.workspace)?;
    inputs.iter().for_each(touch);
    let inputs: Vec<_> = inputs.iter().map(|b| (b, b.as_ptr() as *const u8)).collect();
    let outputs: Vec<_> = outputs.iter().map(|b| (b, b.as_ptr())).collect();
    let call = Call {
        inputs: &inputs.iter().map(|(_, p)| *p).collect::<Vec<_>>(),
        outputs: &outputs.iter().map(|(_, p)| *p).collect::<Vec<_>>(),
        workspace: workspace.as_ptr(),
        stream: std::ptr::null_mut(),
    };
    instance.launch(&call)?;
    interrupt::poll()?;
    let start = Instant::now();
    let (mut best, mut better) = (u64::MAX, 0);
    for run in 0..MOST_RUNS {
        let began = Instant::now();
        instance.launch(&call)?;
        let time = began.elapsed().as_nanos() as u64;
        if (time as f64) < best as f64 * BETTER {
            better = run;
        }
        best = best.min(time);
        interrupt::poll()?;
        let spent = start.elapsed();
        let is_settled = run >= better + SETTLED_RUNS && spent > SETTLED_AFTER;
        if run + 1 >= FEWEST_RUNS && (spent > BUDGET || is_settled) {
            break;
        }
    }
    Ok(best)
}

/// Gives each page memory of its own: those that were never written are all one page of zeros, which is always in the cache.
fn touch(buffer: &Buffer) {
    const PAGE: usize = 4096;
    for at in (0..buffer.len()).step_by(PAGE) {
        // SAFETY: within the buffer, which nobody else has yet; a plain write of what is there may be left out.
        unsafe { buffer.as_ptr().add(at).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("neurenix-timing-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn times_survive_in_the_file_and_damage_is_skipped() {
        let path = scratch("damage");
        let cache = TimingCache::open(path.clone());
        cache.time("a", || Ok(1)).unwrap();
        cache.time("b", || Ok(2)).unwrap();
        cache.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap().replace("2\tb", "3\tb") + "torn";
        std::fs::write(&path, text).unwrap();
        let again = TimingCache::open(path);
        assert_eq!((again.known("a"), again.known("b")), (Some(1), None));
    }

    #[test]
    fn two_writers_both_stay() {
        let path = scratch("writers");
        let (one, two) = (TimingCache::open(path.clone()), TimingCache::open(path.clone()));
        one.time("a", || Ok(1)).unwrap();
        two.time("b", || Ok(2)).unwrap();
        one.flush().and(two.flush()).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
    }

    #[test]
    fn a_lock_that_is_never_given_back_does_not_hang() {
        let path = scratch("lock");
        let (held, ours) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        let _lock = FileLock::exclusive(&held, PATIENCE).unwrap();
        let error = FileLock::exclusive(&ours, Duration::from_millis(1)).err().unwrap();
        assert!(error.to_string().contains("does not go on"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_poisoned_cache_is_neither_read_nor_written() {
        let path = scratch("poisoned");
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        let large = TimingCache::open(path.clone());
        large.time("a", || Ok(1)).unwrap();
        assert!(large.flush().unwrap_err().to_string().contains("too large"));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MAX_FILE + 1);
        std::fs::remove_file(path).unwrap();
        let device = TimingCache::open("/dev/zero".into());
        device.time("a", || Ok(1)).unwrap();
        assert!(device.flush().unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn a_known_time_is_not_measured_again() {
        let cache = TimingCache::in_memory(Times::from([("a".into(), 7)]));
        assert_eq!(cache.time("a", || panic!("measured again")).unwrap(), 7);
    }
}
