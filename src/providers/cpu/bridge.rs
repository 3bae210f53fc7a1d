//! The raw bridge to `cpp/cpu`: no checks, no lifetimes. Everything else goes through `handle.rs` and `team.rs`.
use super::team::team_part;

#[cxx::bridge(namespace = "neurenix::cpu")]
pub(super) mod ffi {
    extern "Rust" {
        fn team_part(context: usize, part: usize, parts: usize);
    }

    unsafe extern "C++" {
        include!("cpu/version.h");
        /// oneDNN's version, as "3.2.0".
        fn onednn_version() -> String;

        include!("cpu/team.h");
        /// Sets the size of the calling thread's team and returns what it was.
        fn set_team_size(threads: usize) -> usize;
        /// Calls `team_part` once on each thread of the calling thread's team.
        fn each_member(threads: usize, context: usize);
    }
}
