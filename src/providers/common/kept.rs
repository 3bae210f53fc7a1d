//! Code that was compiled on this machine, kept in the user's cache directory: machine code of GPUs, plans of other compilers.
//!
//! It is run, so only the user may have written it: folder and files are his, nobody else may write there, and each file
//! begins with the digest of its key and its contents.

use crate::knobs;
use crate::replace::Replacement;
use sha2::{Digest, Sha256};
use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One kind of code, in a folder of its own.
pub struct Kept {
    /// The folder's name in the cache directory.
    pub folder: &'static str,
    /// Bytes of all files, of which the oldest go when there are more.
    pub limit: u64,
}

/// A digest of parts, each of which stands for itself whatever its neighbours are.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    /// Adds a part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// The digest as text.
    pub fn text(&self) -> String {
        self.0
            .clone()
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Bytes of the digest that a file begins with.
const SEAL: usize = 32;

impl Kept {
    /// The folder, which is made where it is not there; `None` where nothing is to be kept.
    fn folder(&self) -> Result<Option<PathBuf>, String> {
        let Some(folder) = knobs::cache_dir().ok().flatten().map(|root| root.join(self.folder)) else {
            return Ok(None);
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        let Some(there) = made.and_then(|()| fs::metadata(&folder)).ok() else {
            return Ok(None);
        };
        own(&folder, &there).map(|()| Some(folder))
    }

    /// What was kept under a key; `None` if nothing was.
    ///
    /// # Errors
    /// Why what is there is not to be run, as a sentence.
    pub fn read(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(path) = self.folder()?.map(|folder| folder.join(key)) else {
            return Ok(None);
        };
        let mut options = fs::OpenOptions::new();
        // A pipe would wait for a writer.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(mut file) = options.read(true).custom_flags(flags).open(&path) else {
            return match fs::symlink_metadata(&path) {
                Ok(_) => Err(format!("{} is not a file that can be read", path.display())),
                Err(_) => Ok(None),
            };
        };
        let unread = |e: std::io::Error| format!("{} can't be read: {e}", path.display());
        let there = file.metadata().map_err(unread)?;
        own(&path, &there)?;
        if !there.is_file() {
            return Err(format!("{} is not a file", path.display()));
        }
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(unread)?;
        let damaged = || format!("{} is not what was written there", path.display());
        let (seal, code) = bytes.split_at_checked(SEAL).ok_or_else(damaged)?;
        if sealed(key, code).as_ref() != seal {
            return Err(damaged());
        }
        // The time of the last use tells what is old. Without that it goes sooner, and is compiled again.
        let _ = file.set_modified(std::time::SystemTime::now());
        Ok(Some(code.to_vec()))
    }

    /// Keeps code under a key.
    ///
    /// # Errors
    /// If the disk is full, or the folder is not the user's alone.
    pub fn write(&self, key: &str, code: &[u8]) -> std::io::Result<()> {
        let Some(folder) = self.folder().map_err(std::io::Error::other)? else {
            return Ok(());
        };
        let (replacement, mut file) = Replacement::beside(&folder.join(key), Some(0o600))?;
        let written = write_all(&mut file, key, code).and_then(|()| replacement.commit());
        self.make_room(&folder, key);
        written
    }

    /// Removes what is kept under a key.
    pub fn remove(&self, key: &str) {
        if let Ok(Some(folder)) = self.folder() {
            // What can't be removed is refused again the next time.
            let _ = fs::remove_file(folder.join(key));
        }
    }

    /// Removes the files that were used longest ago until the others are within the limit.
    fn make_room(&self, folder: &Path, but: &str) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let aged = |entry: fs::DirEntry| {
            let there = entry.metadata().ok()?;
            Some((there.modified().ok()?, there.len(), entry.path()))
        };
        let mut files: Vec<_> = entries.filter_map(aged).collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= self.limit {
                return;
            }
            if !path.ends_with(but) && fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }
}

fn sealed(key: &str, code: &[u8]) -> impl AsRef<[u8]> + use<> {
    let mut digest = Key::default();
    digest.add(key).add(code);
    digest.0.finalize()
}

fn write_all(file: &mut File, key: &str, code: &[u8]) -> std::io::Result<()> {
    file.write_all(sealed(key, code).as_ref())?;
    file.write_all(code)
}

/// Refuses what somebody else may have written.
fn own(path: &Path, there: &Metadata) -> Result<(), String> {
    /// Group and others may write.
    const STRANGERS: u32 = 0o022;
    // SAFETY: it only tells a number.
    let user = unsafe { libc::geteuid() };
    if there.uid() != user {
        return Err(format!("{} belongs to another user ({})", path.display(), there.uid()));
    }
    if there.mode() & STRANGERS != 0 {
        return Err(format!(
            "others may write {} (mode {:o})",
            path.display(),
            there.mode() & 0o777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// One test: the cache directory is a variable of the whole process.
    #[test]
    fn only_what_the_user_wrote_is_run() {
        let root = std::env::temp_dir().join(format!("neurenix-kept-{}", std::process::id()));
        // SAFETY: no other thread of these tests reads or writes this variable.
        unsafe { std::env::set_var(knobs::CACHE_DIR.name, &root) };
        let kept = Kept {
            folder: "codes",
            limit: 100,
        };
        assert_eq!(kept.read("key"), Ok(None));
        kept.write("key", b"code").unwrap();
        assert_eq!(kept.read("key"), Ok(Some(b"code".to_vec())));
        let path = root.join("codes/key");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&root.join("codes")), mode(&path)), (0o700, 0o600));

        // Under another name, changed, torn, open to others, a link: nothing of that is run.
        fs::copy(&path, root.join("codes/other")).unwrap();
        assert!(kept.read("other").unwrap_err().contains("not what was written"));
        let whole = fs::read(&path).unwrap();
        for bytes in [[&whole[..], b"!"].concat(), whole[..20].to_vec(), vec![]] {
            fs::write(&path, bytes).unwrap();
            assert!(kept.read("key").is_err());
        }
        fs::write(&path, &whole).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        assert!(kept.read("key").unwrap_err().contains("others may write"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(root.join("codes/other"), &path).unwrap();
        assert!(kept.read("key").is_err());
        kept.remove("key");
        assert_eq!(kept.read("key"), Ok(None));
        fs::set_permissions(root.join("codes"), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(kept.read("other").unwrap_err().contains("others may write"));
        fs::set_permissions(root.join("codes"), PermissionsExt::from_mode(0o700)).unwrap();

        // The oldest goes.
        kept.write("a", &[1; 40]).unwrap();
        kept.remove("other");
        kept.write("b", &[2; 40]).unwrap();
        assert_eq!((kept.read("a"), kept.read("b")), (Ok(None), Ok(Some(vec![2; 40]))));
        fs::remove_dir_all(root).unwrap();
    }
}
