//! Tests of the mount: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;

mod control;
mod handles;
mod idmap;
mod mount;
mod overlay;
mod parents;
mod posix_aio;
mod posix_data;
mod posix_differential;
mod posix_dir;
mod posix_killpriv;
mod posix_limits;
mod posix_links;
mod posix_mapped;
mod posix_open;
mod posix_perm;
mod posix_rename;
mod posix_space;
mod posix_times;
mod posix_unlink;
mod posix_xattr;
mod read_only;
mod scrub;
mod sessions;
mod slow_device;
mod tokens;
mod tree;

/// Entry of the server.
#[test]
fn serve_helper() {
    common::serve();
}

/// The second run of all tests, on the other transport.
#[test]
fn everything_through_rings() {
    common::again_through_rings();
}
