//! A call and its answer in one page, as an ioctl on an open file of a mount carries them.
//!
//! ```text
//! question := version 4 | number of the row 2 | 0 2 | umask 4 | length 4 | arguments
//! answer   := version 4 | 0: result, 1: error 4 | 0 4 | length 4 | result, or error
//! ```
//!
//! The open file is the only node ([`Node::TOP`]). Only rows of [`ROWS`] are answered: those about
//! the volume, its server or that file, which open nothing. The rest is for sessions.

use crate::calls::{Calls, Node, number};
use crate::client::Link;
use crate::gate::Gate;
use crate::hello::VERSION;
use crate::kept::Asked;
use crate::nodes::Nodes;
use crate::serve::{answer_plain, is_for_owner, may_change};
use crate::wire::{Put, Reader, Take, Writer};
use shoal_engine::{Caller, Code, Error, Result};

/// Bytes of a page: as many as the number of an ioctl can hold, in eights.
pub const PAGE: usize = 16_376;
/// Bytes of the head.
pub const HEAD: usize = 16;

const _: () = assert!(PAGE.is_multiple_of(8) && PAGE < 1 << 14);
const _: () = assert!(crate::about::PART_BYTES < PAGE - HEAD);

/// Numbers of the rows that are answered.
pub const ROWS: &[u16] = &[
    number::remove_tree,
    number::share,
    number::revoke_tokens,
    number::read_only_reason,
    number::make_subvolume,
    number::delete_subvolume,
    number::set_quota,
    number::quota,
    number::remove_quota,
    number::links,
    number::subvolumes,
    number::quotas,
    number::metrics,
    number::operations,
    number::facts,
    number::loads,
    number::trace,
    number::orphans,
    number::trim,
    number::scrub,
    number::set_label,
    number::remount,
];

/// A client: `F` carries a page to the server, and its answer back.
pub struct ByPage<F>(pub F);

impl<F> std::fmt::Debug for ByPage<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByPage")
    }
}

impl<F: Fn(&mut [u8; PAGE]) -> Result<()> + Send + Sync> Link for ByPage<F> {
    fn call<T>(
        &self,
        number: u16,
        who: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
        take: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut arguments = Vec::new();
        put(&mut Writer::new(&mut arguments));
        let mut page = [0; PAGE];
        let room = page[HEAD..].get_mut(..arguments.len()).ok_or(Code::NameTooLong)?;
        room.copy_from_slice(&arguments);
        let head = (((VERSION, number), 0u16), (who.umask, arguments.len() as u32));
        put_head(&mut page, &head);
        (self.0)(&mut page)?;
        let mut reader = Reader::new(&page);
        let (((version, failed), _), len): (((u32, u32), u32), u32) = Take::take(&mut reader)?;
        if version != VERSION {
            return Err(strange(version));
        }
        let mut result = Reader::new(reader.bytes(len as usize)?);
        if failed != 0 {
            return Err(Error::take(&mut result)?);
        }
        let taken = take(&mut result)?;
        result.end()?;
        Ok(taken)
    }

    fn room(&self) -> usize {
        PAGE - HEAD
    }

    fn close(&self, _: u64) -> bool {
        // The server has nothing open.
        true
    }
}

fn strange(version: u32) -> Error {
    let message = format!(
        "its server speaks version {version} of calls, this program version {VERSION}: mount it \
         again, or use the program of its server"
    );
    Error::refused(Code::NotSupported, message)
}

fn put_head(page: &mut [u8], head: &impl Put) {
    let mut bytes = Vec::with_capacity(HEAD);
    head.put(&mut Writer::new(&mut bytes));
    page[..HEAD].copy_from_slice(&bytes);
}

/// A question that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Question<'p> {
    /// Number of the row.
    pub number: u16,
    umask: u32,
    arguments: &'p [u8],
}

impl<'p> Question<'p> {
    /// Reads a page; `None` if it is of another version.
    ///
    /// # Errors
    /// `EINVAL` for one that is malformed, or asks for another row.
    pub fn parse(page: &'p [u8]) -> Result<Option<Question<'p>>> {
        let mut reader = Reader::new(&page[..PAGE.min(page.len())]);
        let (version, (number, zero)): (u32, (u16, u16)) = Take::take(&mut reader)?;
        if version != VERSION {
            return Ok(None);
        }
        let (umask, len): (u32, u32) = Take::take(&mut reader)?;
        let arguments = reader.bytes(len as usize)?;
        let is_known = ROWS.contains(&number) && zero == 0 && umask & !0o777 == 0;
        is_known.then_some(Some(Question { number, umask, arguments })).ok_or(Code::Invalid.into())
    }

    /// Returns whether it may change the volume.
    pub fn may_change(&self) -> bool {
        may_change(self.number)
    }

    /// Returns the name that a tree, or a subvolume, is to lose, if the question is for that.
    pub fn removed(&self) -> Option<&'p [u8]> {
        let mut arguments = Reader::new(self.arguments);
        match self.number {
            number::remove_tree => {
                let (_, name): (Node, &[u8]) = Take::take(&mut arguments).ok()?;
                Some(name)
            }
            number::delete_subvolume => Take::take(&mut arguments).ok(),
            _ => None,
        }
    }

    /// Returns whether it is about the opened file, and not about the volume or its server.
    pub fn is_of_file(&self) -> bool {
        matches!(
            self.number,
            number::remove_tree
                | number::share
                | number::set_quota
                | number::quota
                | number::remove_quota
        )
    }

    /// Makes the call for a user, on the file that is open as `top`; returns the bytes of its
    /// result. `is_owner`: the user may do all that the volume's owner may.
    ///
    /// # Errors
    /// Those of the call, `EPERM` for a row that is the owner's.
    pub fn answer(
        &self,
        calls: &dyn Calls,
        top: Node,
        who: &Caller,
        is_owner: bool,
    ) -> Result<Vec<u8>> {
        if is_for_owner(self.number) && !is_owner {
            return Err(Code::NotPermitted.into());
        }
        // Whoever can write the volume itself needs no permission in it.
        let checked = matches!(self.number, number::make_subvolume | number::delete_subvolume);
        let who = match self.number {
            number::revoke_tokens => Caller::root(),
            _ => Caller { umask: self.umask, checked, ..who.clone() },
        };
        let (nodes, mut result) = (Nodes::default(), Vec::new());
        let asked = (self.number, Asked { lane: 0, call: 0 });
        let mut gate = Gate::new(&nodes, calls, top, (false, is_owner), asked);
        let mut arguments = Reader::new(self.arguments);
        let answered = answer_plain(&mut gate, &who, &mut arguments, &mut Writer::new(&mut result));
        drop(gate);
        nodes.close_all(calls);
        answered.map(|()| result)
    }
}

/// Puts an answer into a page; returns its length. A result that does not fit is the error
/// `ENAMETOOLONG`.
///
/// # Errors
/// `EINVAL` if there is no room for an error.
pub fn put_answer(page: &mut [u8], answer: Result<Vec<u8>>) -> Result<usize> {
    let room = page.len().min(PAGE).checked_sub(HEAD).ok_or(Code::Invalid)?;
    let answer = answer.and_then(|result| match result.len() <= room {
        true => Ok(result),
        false => Err(Code::NameTooLong.into()),
    });
    let (failed, bytes) = match answer {
        Ok(result) => (0u32, result),
        Err(error) => {
            let mut bytes = Vec::new();
            error.put(&mut Writer::new(&mut bytes));
            if bytes.len() > room {
                bytes.clear();
                Error::Code(error.code()).put(&mut Writer::new(&mut bytes));
            }
            (1, bytes)
        }
    };
    page[HEAD..].get_mut(..bytes.len()).ok_or(Code::Invalid)?.copy_from_slice(&bytes);
    put_head(page, &(((VERSION, failed), 0u32), bytes.len() as u32));
    Ok(HEAD + bytes.len())
}
