//! The commands. One file for each, or for a group of close relatives; each has functions that take
//! its arguments and return the exit status, or the failure that ended it.

pub mod acl;
pub mod bench;
pub mod cat;
pub mod change;
pub mod changes;
pub mod copy;
pub mod end;
pub mod find;
pub mod fsck;
pub mod generate;
pub mod info;
pub mod keeper;
pub mod link;
pub mod list;
pub mod logdump;
pub mod mkdir;
pub mod mkfs;
pub mod mount;
pub mod orphans;
pub mod parents;
pub mod quota;
pub mod remove;
pub mod rename;
pub mod scrub;
pub mod serve;
pub mod share;
pub mod stat;
pub mod stats;
pub mod subvolume;
pub mod sync;
pub mod tar;
pub mod trim;
pub mod usage;
pub mod xattr;
