//! How what C's side points to is read and written: null pointers and wild sizes are refused by the name of the argument.

use crate::error::{Error, Result};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::mem::{MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

/// A text for C; what stands in the place of a NUL inside shows that there was one.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn null(name: &str) -> Error {
    Error::invalid(format!("the argument `{name}` is NULL")).expected("an address")
}

/// A text of C's.
///
/// # Safety
/// The address is null, or that of a text that ends with NUL and stays as it is for `'a`.
///
/// # Errors
/// If it is null or not UTF-8.
pub unsafe fn text<'a>(address: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: as the caller says.
    let bytes = unsafe { optional(address) }.ok_or_else(|| null(name))?;
    bytes
        .to_str()
        .map_err(|_| Error::invalid(format!("the argument `{name}` is not UTF-8")))
}

/// A path.
///
/// # Safety
/// As [`text`].
///
/// # Errors
/// If it is null.
pub unsafe fn path<'a>(address: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: as the caller says.
    let bytes = unsafe { optional(address) }.ok_or_else(|| null(name))?;
    Ok(Path::new(OsStr::from_bytes(bytes.to_bytes())))
}

/// A text of C's, which may be left out.
///
/// # Safety
/// As [`text`].
pub unsafe fn optional<'a>(address: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller says.
    (!address.is_null()).then(|| unsafe { CStr::from_ptr(address) })
}

/// Numbers that stand one behind the other; there may be none behind a null pointer.
///
/// # Safety
/// The address is null, or that of so many elements that stay as they are for `'a`.
///
/// # Errors
/// If it is null and there are some, it is not aligned, or there are more than `most`.
pub unsafe fn elements<'a, T>(address: *const T, count: usize, most: usize, name: &str) -> Result<&'a [T]> {
    if count > most {
        return Err(Error::invalid(format!("the argument `{name}` has too many elements"))
            .expected(format!("at most {most}"))
            .got(count.to_string()));
    }
    match count {
        0 => Ok(&[]),
        _ if address.is_null() => Err(null(name)),
        _ if !address.is_aligned() => Err(unaligned(name, address.addr(), align_of::<T>())),
        // SAFETY: not null, aligned, and the caller vouches for the elements.
        _ => Ok(unsafe { slice::from_raw_parts(address, count) }),
    }
}

/// An address that is no multiple of what it must be.
pub fn unaligned(name: &str, address: usize, alignment: usize) -> Error {
    Error::invalid(format!("the address of `{name}` is not aligned"))
        .expected(format!("a multiple of {alignment}"))
        .got(format!("{address:#x}"))
}

/// Writes a result.
///
/// # Safety
/// The address is null, or that of a place for the value.
///
/// # Errors
/// If it is null or not aligned.
pub unsafe fn write<T>(address: *mut T, name: &str, value: T) -> Result<()> {
    match address {
        address if address.is_null() => Err(null(name)),
        address if !address.is_aligned() => Err(unaligned(name, address.addr(), align_of::<T>())),
        address => {
            // SAFETY: not null, aligned, and the caller vouches for the place.
            unsafe { address.write(value) };
            Ok(())
        }
    }
}

/// A structure of the header, which begins with its size.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, and zeros are one.
pub unsafe trait Versioned: Copy {
    /// What the header calls it.
    const NAME: &str;
}

/// No structure of any version is larger.
const LARGEST: usize = 1 << 12;

/// How many bytes the caller's structure has.
///
/// # Safety
/// The address is null, or that of a structure that begins with its size.
unsafe fn size_of_theirs<T: Versioned>(address: *const T) -> Result<usize> {
    if address.is_null() {
        return Err(null(T::NAME));
    }
    if !address.is_aligned() {
        return Err(unaligned(T::NAME, address.addr(), align_of::<T>()));
    }
    // SAFETY: not null, aligned, and the caller vouches for the first field.
    let size = unsafe { address.cast::<usize>().read() };
    if !(size_of::<usize>()..=LARGEST).contains(&size) {
        return Err(Error::invalid(format!("the size of a `{}` makes no sense", T::NAME))
            .expected(format!("struct_size = sizeof({})", T::NAME))
            .got(size.to_string())
            .hint(format!("begin with {}_INIT", T::NAME.to_uppercase())));
    }
    Ok(size)
}

/// Reads a structure that an older or newer header made: what it lacks is zero.
///
/// # Safety
/// The address is null, or that of a structure with as many bytes as its first field says.
///
/// # Errors
/// If it is null, its size makes no sense, or it has something that this library does not know.
pub unsafe fn read<T: Versioned>(address: *const T) -> Result<T> {
    // SAFETY: as the caller says.
    let size = unsafe { size_of_theirs(address) }?;
    // SAFETY: the caller vouches for so many bytes.
    let theirs = unsafe { slice::from_raw_parts(address.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if theirs[known..].iter().any(|&byte| byte != 0) {
        return Err(
            Error::unsupported(format!("a `{}` has something that this library does not know", T::NAME))
                .expected(format!("at most {} bytes, or zeros", size_of::<T>()))
                .got(format!("{size} bytes"))
                .hint("the program was compiled for a newer Neurenix: install that one"),
        );
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both have so many bytes, and zeros are a value of the type.
    unsafe {
        std::ptr::copy_nonoverlapping(theirs.as_ptr(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Writes a structure, as much of it as the caller's header knows. Its size stays; what ours lacks becomes zero.
///
/// # Safety
/// As [`read`], and the structure may be written to.
///
/// # Errors
/// If it is null, or its size makes no sense.
pub unsafe fn fill<T: Versioned>(address: *mut T, value: T) -> Result<()> {
    // SAFETY: as the caller says.
    let size = unsafe { size_of_theirs(address.cast_const()) }?;
    let (first, known) = (size_of::<usize>(), size.min(size_of::<T>()));
    // SAFETY: the caller vouches for `size` bytes there, of which `known` are in ours too.
    unsafe {
        let theirs = address.cast::<u8>();
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(&value).cast::<u8>().add(first),
            theirs.add(first),
            known - first,
        );
        std::ptr::write_bytes(theirs.add(known), 0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Ours {
        size: usize,
        a: u32,
        b: u32,
    }

    // SAFETY: as the trait asks.
    unsafe impl Versioned for Ours {
        const NAME: &str = "ours";
    }

    /// 16 bytes of Ours and 8 that only a newer header has.
    fn theirs(size: usize, newer: u64) -> [u64; 3] {
        [size as u64, 1 | 2 << 32, newer]
    }

    #[test]
    fn structures_of_older_and_newer_headers_are_read() {
        let read = |size, newer| {
            let theirs = theirs(size, newer);
            // SAFETY: it has the 24 bytes that it may claim.
            unsafe { read(theirs.as_ptr().cast::<Ours>()) }
        };
        assert!(matches!(read(24, 0), Ok(Ours { a: 1, b: 2, .. })));
        assert!(matches!(read(12, 7), Ok(Ours { a: 1, b: 0, .. })));
        assert!(read(24, 7).is_err_and(|e| e.message().contains("does not know")));
        assert!(read(0, 0).is_err() && read(4, 0).is_err() && read(LARGEST + 1, 0).is_err());
    }

    #[test]
    fn as_much_is_written_as_there_is_room() {
        let mut theirs = theirs(12, 7);
        let value = Ours { size: 0, a: 3, b: 4 };
        let address = theirs.as_mut_ptr().cast::<Ours>();
        // SAFETY: it has the bytes that it claims.
        unsafe { fill(address, value) }.unwrap();
        assert_eq!(theirs, [12, 3 | 2 << 32, 7]);
        theirs[0] = 24;
        // SAFETY: as above.
        unsafe { fill(theirs.as_mut_ptr().cast::<Ours>(), value) }.unwrap();
        assert_eq!(theirs, [24, 3 | 4 << 32, 0]);
    }
}
