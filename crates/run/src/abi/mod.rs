//! The functions of the C library that the library of `shoal run` has in its place.
//!
//! Each is a row: its names (a second one for large files, as old programs have it, and one that
//! checks lengths, as distributions compile with), its arguments, and its body, which asks a
//! session and then the function of the same name that comes next, the C library's. What a program
//! gives is believed as the C library believes it: a path is a string with a NUL, a buffer has as
//! many bytes as are said.

#![allow(
    unsafe_op_in_unsafe_fn,
    dead_code,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the contract of each function is that of the C library's function of its name"
)]

use crate::answer::Answer;
use crate::kernel::set_errno;
use std::ffi::{CStr, c_char, c_int};

/// Makes functions with the names of the C library's, and `next::NAME` for those.
macro_rules! interpose {
    ($(
        fn $name:ident $(| $alias:ident)* ($($arg:ident : $type:ty),* $(,)?)
            $(-> $result:ty)? $body:block
    )*) => {
        /// The functions that come after those of this library.
        pub(super) mod next {
            #[allow(unused_imports, reason = "not every group of functions needs all")]
            use super::*;
            $(
                #[inline]
                pub(in super::super) unsafe fn $name($($arg: $type),*) $(-> $result)? {
                    static AT: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    let name = std::ffi::CStr::from_bytes_with_nul_unchecked(name);
                    let function = crate::kernel::resolve(&AT, name);
                    // The function of the C library with this name has this type.
                    let function: unsafe extern "C" fn($($type),*) $(-> $result)? =
                        std::mem::transmute(function);
                    function($($arg),*)
                }
            )*
        }
        $(
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? $body
            aliases! { [$($alias)*] $name [$($arg: $type),*] [$(-> $result)?] }
        )*
    };
}

/// Further names of a function.
macro_rules! aliases {
    ([] $name:ident $arguments:tt $result:tt) => {};
    (
        [$alias:ident $($more:ident)*] $name:ident [$($arg:ident : $type:ty),*] [$(-> $result:ty)?]
    ) => {
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $alias($($arg: $type),*) $(-> $result)? {
            $name($($arg),*)
        }
        aliases! { [$($more)*] $name [$($arg: $type),*] [$(-> $result)?] }
    };
}

mod attributes;
mod contents;
mod dirs;
mod names;
mod process;
mod system;

/// Returns the bytes of a path; `None`: there is none.
unsafe fn bytes<'p>(path: *const c_char) -> Option<&'p [u8]> {
    if path.is_null() { None } else { Some(CStr::from_ptr(path).to_bytes()) }
}

/// The result of a function that has failed.
trait Failed {
    const FAILED: Self;
}
impl Failed for c_int {
    const FAILED: c_int = -1;
}
impl Failed for isize {
    const FAILED: isize = -1;
}
impl Failed for i64 {
    const FAILED: i64 = -1;
}
/// The result of a function that has nothing to say.
trait Done: Failed {
    fn done() -> Self;
}
impl Done for c_int {
    fn done() -> c_int {
        0
    }
}

/// Asks a session if that may be now. A panic, which would be a mistake of ours, lets the kernel
/// answer: no program ends by this library.
#[inline]
fn ask<T>(call: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let _inside = crate::state::enter()?;
    let errno = crate::kernel::KeepErrno::here();
    let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or(None);
    drop(errno);
    answered
}

/// Returns what a session has answered, or what `otherwise` does.
#[inline]
fn or<T: Failed>(answered: Answer<T>, otherwise: impl FnOnce() -> T) -> T {
    match answered {
        Some(Ok(value)) => value,
        Some(Err(errno)) => {
            set_errno(errno);
            T::FAILED
        }
        None => otherwise(),
    }
}

/// The same for an answer without a value.
#[inline]
fn done_or<T: Done>(answered: Answer<()>, otherwise: impl FnOnce() -> T) -> T {
    or(answered.map(|done| done.map(|()| T::done())), otherwise)
}

/// Makes a descriptor the mount's before the kernel is asked about it. If that cannot be, the
/// kernel says that it is not open for this.
#[inline]
fn settle(fd: c_int) {
    if crate::files::is_file(fd) {
        let inside = crate::state::enter();
        let _ = crate::files::settle(fd);
        drop(inside);
    }
}

/// Returns an open file's descriptor for a call of the kernel's.
#[inline]
fn settled(fd: c_int) -> c_int {
    settle(fd);
    fd
}
