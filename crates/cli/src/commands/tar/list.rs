//! `shoal tar -t`, and the lines of `-v`.

use shoal::raw::Time;
use shoal_tar::{Kind, Member, Reader};

use super::names::{Wanted, quoted};
use super::stream;
use crate::args::TarArgs;
use crate::clock;
use crate::exclude::is_left_out;
use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::text::{permissions_text, printable};

/// Width of owner, group and size in a line, at the beginning.
const WIDTH: usize = 19;

/// Lines that describe members.
pub(super) struct Lines {
    is_long: bool,
    numeric: bool,
    width: usize,
}

impl Lines {
    /// Names, or with `is_long` attributes, too.
    pub(super) fn new(args: &TarArgs, is_long: bool) -> Lines {
        Lines { is_long, numeric: args.numeric_owner, width: WIDTH }
    }

    /// Returns the line of a member, as GNU tar prints it, with its end.
    pub(super) fn line(&mut self, member: &Member) -> Vec<u8> {
        let mut line = Vec::new();
        if self.is_long {
            let name_or = |name: &[u8], id: u32| match name.is_empty() || self.numeric {
                true => id.to_string().into_bytes(),
                false => name.to_vec(),
            };
            let user = name_or(&member.user, member.uid);
            let group = name_or(&member.group, member.gid);
            let (major, minor) = member.device;
            let size = match member.kind {
                Kind::CharDevice | Kind::BlockDevice => format!("{major},{minor}"),
                _ => member.size.to_string(),
            };
            let taken = user.len() + 1 + group.len() + 1;
            self.width = self.width.max(taken + size.len());
            line.push(letter(member.kind));
            line.extend_from_slice(permissions_text(member.mode).as_bytes());
            line.push(b' ');
            line.extend_from_slice(&user);
            line.push(b'/');
            line.extend_from_slice(&group);
            let (sec, nsec) = member.mtime;
            let time = clock::minutes(Time { sec, nsec });
            let width = self.width - taken;
            line.extend_from_slice(format!(" {size:>width$} {time} ").as_bytes());
        }
        line.extend_from_slice(&quoted(&member.name));
        let arrow: &[u8] = match member.kind {
            Kind::Symlink => b" -> ",
            Kind::HardLink => b" link to ",
            _ => b"",
        };
        if self.is_long && !arrow.is_empty() {
            line.extend_from_slice(arrow);
            line.extend_from_slice(&quoted(&member.link));
        }
        line.push(b'\n');
        line
    }
}

fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'-',
        Kind::HardLink => b'h',
        Kind::Symlink => b'l',
        Kind::CharDevice => b'c',
        Kind::BlockDevice => b'b',
        Kind::Directory => b'd',
        Kind::Fifo => b'p',
        Kind::Other(_) => b'?',
    }
}

/// Lists an archive.
pub(super) fn run(args: &TarArgs) -> Result<u8> {
    let mut wanted = Wanted::new(args)?;
    let mut reader = Reader::new(stream::open(args)?);
    let mut lines = Lines::new(args, args.verbose > 0);
    let (mut out, mut progress) = (Out::new(), Progress::counting());
    let listed = loop {
        match reader.next_member() {
            Ok(Some(member)) => {
                if wanted.takes(&member.name) && !is_left_out(&args.exclude, &member.name) {
                    out.text(&lines.line(&member))?;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    out.flush()?;
    end(args, listed, wanted, &mut progress)
}

/// Reports how reading an archive has ended; returns the exit status.
pub(super) fn end(
    args: &TarArgs,
    read: shoal_tar::Result<()>,
    wanted: Wanted,
    progress: &mut Progress,
) -> Result<u8> {
    if let Err(error) = read {
        progress.finish();
        return Err(Failure::failed(stream::label(args), error));
    }
    for name in wanted.missing() {
        progress.failure(printable(&name), "is not in the archive");
    }
    Ok(progress.finish())
}
