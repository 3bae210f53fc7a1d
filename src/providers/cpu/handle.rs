//! The safe side of the bridge to oneDNN.
use super::bridge::ffi;

/// The version of the oneDNN library in this process, as "3.2.0".
pub fn onednn_version() -> String {
    ffi::onednn_version()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_is_of_major_version_3() {
        assert!(super::onednn_version().starts_with("3."));
    }
}
