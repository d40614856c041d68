//! Operations as text: what a failing run is printed as.

use super::Op;
use crate::memory::Refusal;
use crate::text::elided;
use std::fmt;

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Op::Create { who, at, mode } | Op::Mkdir { who, at, mode } => {
                write!(f, " {at} {mode:#o} by {who:?}")
            }
            Op::Mknod { who, at, mode, rdev } => {
                write!(f, " {at} {mode:#o} device {rdev:#x} by {who:?}")
            }
            Op::Symlink { who, at, target } => {
                write!(f, " {at} -> {} by {who:?}", elided(target))
            }
            Op::Link { who, from, at } => write!(f, " {from} as {at} by {who:?}"),
            Op::Unlink { who, at }
            | Op::Rmdir { who, at }
            | Op::RemoveTree { who, at }
            | Op::Lookup { who, at } => write!(f, " {at} by {who:?}"),
            Op::Rename { who, from, to, flags } => {
                write!(f, " {from} to {to} by {who:?}")?;
                f.write_str(super::way(*flags))
            }
            Op::Tmpfile { who, dir, mode, slot } => {
                write!(f, " in {dir} {mode:#o} as open#{slot} by {who:?}")
            }
            Op::Batch { who, start, changes } => {
                write!(f, " of {} in {start} by {who:?}", changes.len())?;
                changes.iter().try_for_each(|change| write!(f, "; {change}"))
            }
            Op::Open { file, slot } => write!(f, " {file} as open#{slot}"),
            Op::Close { slot } => write!(f, " open#{slot}"),
            Op::Chmod { who, file, mode } => write!(f, " {file} {mode:#o} by {who:?}"),
            Op::Chown { who, file, uid, gid } => write!(f, " {file} {uid:?}:{gid:?} by {who:?}"),
            Op::ChangeTree { who, top, change } => {
                write!(f, " {top} to {change:?} by {who:?}")
            }
            Op::Utimes { who, file, atime, mtime } => {
                write!(f, " {file} {atime:?} {mtime:?} by {who:?}")
            }
            Op::Truncate { who, file, size, by_handle } => {
                let how = if *by_handle { "open" } else { "by path" };
                write!(f, " {file} to {size} ({how}) by {who:?}")
            }
            Op::Write { file, offset, data, kill_priv } => {
                write!(f, " {file} at {offset}: {data}{}", privileges(*kill_priv))
            }
            Op::Append { file, data, kill_priv } => {
                write!(f, " {file}: {data}{}", privileges(*kill_priv))
            }
            _ => self.fmt_rest(f),
        }
    }
}

fn privileges(kill: bool) -> &'static str {
    if kill { " dropping set-id" } else { "" }
}

impl Op {
    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Fallocate { file, mode, offset, len } => {
                write!(f, " {file} {mode:?} at {offset}, {len} bytes")
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                write!(f, " {from} at {from_offset} to {to} at {to_offset}, {len} bytes")
            }
            Op::SetXattr { who, file, name, data, flags } => {
                write!(f, " {file} {} = {data} by {who:?}", elided(name))?;
                f.write_str(if flags.create { " create" } else { "" })?;
                f.write_str(if flags.replace { " replace" } else { "" })
            }
            Op::RemoveXattr { who, file, name } | Op::GetXattr { who, file, name } => {
                write!(f, " {file} {} by {who:?}", elided(name))
            }
            Op::ListXattr { who, file } => write!(f, " {file} by {who:?}"),
            Op::Getattr { file } | Op::Readlink { file } | Op::Paths { file } => {
                write!(f, " {file}")
            }
            Op::Access { who, file, mask } => write!(f, " {file} {mask} by {who:?}"),
            Op::Resolve { who, start, path, follow } => {
                let how = if *follow { "follow" } else { "nofollow" };
                write!(f, " {} from {start} {how} by {who:?}", elided(path))
            }
            Op::Read { file, offset, len } => write!(f, " {file} at {offset}, {len} bytes"),
            Op::Readdir { dir, page } => write!(f, " {dir} by {page}"),
            Op::Seek { file, offset, what } => write!(f, " {file} {what:?} from {offset}"),
            Op::RootCreate { who, name, mode } => {
                write!(f, " /{} {mode:#o} by {who:?}", elided(name))
            }
            Op::RootDelete { who, name } => write!(f, " /{} by {who:?}", elided(name)),
            Op::Reap { slices: 0 } => f.write_str(" all"),
            Op::Reap { slices } => write!(f, " {slices} slices"),
            Op::Stale { which } => write!(f, " number {which}"),
            Op::Fsync { file, datasync } => {
                write!(f, " {file}{}", if *datasync { " data only" } else { "" })
            }
            Op::Reopen { release } => f.write_str(if *release { " after releasing" } else { "" }),
            Op::NoMemory(Refusal { after, count }) => {
                write!(f, " for {count} allocations of the next call, after {after}")
            }
            Op::Crash { seed } => write!(f, " (seed {seed:#x})"),
            _ => Ok(()),
        }
    }
}
