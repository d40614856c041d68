//! Tests of the command: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod acl;
mod attributes;
mod bucket;
mod change;
mod changes;
mod claim;
mod copy;
mod files;
mod find;
mod fsck;
mod habits;
mod helper;
mod in_mount;
mod interface;
mod keeper;
mod label;
mod list;
mod live;
mod monitor;
mod mount;
mod quota;
mod scrub;
mod share;
mod subvolumes;
mod sync;
mod tar;
mod trees;
mod trim;
mod usage;
mod volume;
