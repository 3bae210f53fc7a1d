//! Replaces files whole: a reader sees the old file or the new one, never a part of either.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Result;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// What temporary files are called, so that those of processes that were killed are known.
const PREFIX: &str = ".neurenix-";
const SUFFIX: &str = ".tmp";
/// A temporary file that nobody wrote to for so long belongs to no process any more.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The rights to read, write and execute.
const RIGHTS: u32 = 0o777;

/// A temporary file beside the one that it will replace; it is removed if it does not come to that.
pub struct Replacement {
    path: PathBuf,
    temporary: PathBuf,
    committed: bool,
}

impl Replacement {
    /// Creates the temporary file, with `mode`, or else with the owner and the rights of the file that is there.
    ///
    /// A link at the path is replaced, and what it points to stays as it is. Removes what killed processes left beside it.
    ///
    /// # Errors
    /// If the folder can't be written.
    pub fn beside(path: &Path, mode: Option<u32>) -> Result<(Self, File)> {
        if let Some(folder) = path.parent() {
            sweep(folder);
        }
        let old = fs::symlink_metadata(path).ok().filter(|there| there.is_file());
        let kept = old.filter(|_| mode.is_none());
        let temporary = temporary_beside(path);
        let created = mode.unwrap_or(if kept.is_some() { 0o600 } else { 0o666 });
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(created)
            .open(&temporary)?;
        let made = Self {
            path: path.into(),
            temporary,
            committed: false,
        };
        if let Some(old) = kept {
            // Only root gives files away; for others the new file is their own.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(Permissions::from_mode(old.mode() & RIGHTS))?;
        }
        Ok((made, file))
    }

    /// The temporary file.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// If it can't be renamed; it is removed then.
    pub fn commit(mut self) -> Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.committed {
            // Where the disk itself fails, a later save sweeps it away.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A name of its own for each save, however long that of the target is.
fn temporary_beside(path: &Path) -> PathBuf {
    static SAVES: AtomicU64 = AtomicU64::new(0);
    let save = SAVES.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos());
    path.with_file_name(format!("{PREFIX}{}-{save}-{nanoseconds}{SUFFIX}", std::process::id()))
}

/// Removes the temporary files that nobody writes to any more.
fn sweep(folder: &Path) {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if name.to_str().is_some_and(ours) && is_abandoned(&entry) {
            // What can't be removed belongs to somebody else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_abandoned(entry: &fs::DirEntry) -> bool {
    let Ok(there) = entry.metadata() else { return false };
    let age = there.modified().ok().and_then(|time| time.elapsed().ok());
    there.is_file() && age.is_some_and(|age| age > ABANDONED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("neurenix-replace-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole_and_its_rights_stay() {
        let folder = folder("rights");
        let path = folder.join("a");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let (replacement, mut file) = Replacement::beside(&path, None).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replacement.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & RIGHTS, 0o640);

        let (replacement, _) = Replacement::beside(&path, Some(0o600)).unwrap();
        replacement.commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & RIGHTS, 0o600);

        drop(Replacement::beside(&path, None).unwrap());
        assert_eq!(names(&folder), ["a"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_killed_processes_left_goes_when_it_is_old() {
        let folder = folder("sweep");
        let old = SystemTime::now() - 2 * ABANDONED;
        for (name, abandoned) in [
            (".neurenix-1-0-1.tmp", true),
            (".neurenix-2-0-1.tmp", false),
            ("other.tmp", true),
        ] {
            let file = File::create(folder.join(name)).unwrap();
            if abandoned {
                file.set_modified(old).unwrap();
            }
        }
        drop(Replacement::beside(&folder.join("a"), None).unwrap());
        assert_eq!(names(&folder), [".neurenix-2-0-1.tmp", "other.tmp"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
