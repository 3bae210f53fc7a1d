//! The raw bridge to `cpp/cpu`: no checks, no lifetimes. Everything else goes through `handle.rs`.

#[cxx::bridge(namespace = "neurenix::cpu")]
pub(super) mod ffi {
    unsafe extern "C++" {
        include!("cpu/version.h");
        /// oneDNN's version, as "3.2.0".
        fn onednn_version() -> String;
    }
}
