//! Tests of the command: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod acl;
mod bucket;
mod changes;
mod chmod;
mod claim;
mod cp;
mod damaged;
mod du;
mod files;
mod find;
mod fsck;
mod guide;
mod habits;
mod helper;
mod in_mount;
mod interface;
mod keeper;
mod label;
mod live;
mod ls;
mod monitor;
mod mount;
mod new_file;
mod quota;
mod rm;
mod run;
mod scrub;
mod serve;
mod share;
mod subvolume;
mod sync;
mod tar;
mod trim;
mod umount;
mod volume;
mod xattr;
