//! The gate of a session: its clients' nodes become those of the volume on the way in, and the
//! other way round on the way out. Nothing else that a client says is a place in the volume.

use crate::about::{Fact, HardLinks, Load, Metric, Operation, ScrubStep, Trace};
use crate::calls::{AT_END, Calls, How, Node, Opened, number};
use crate::kept::{Asked, NodeEntry};
use crate::nodes::{Nodes, Open, close, release};
use shoal_engine::{
    Attr, ChangeMark, Code, Fallocate, Handle, Ino, OrphanInfo, Quota, QuotaLimits, RenameFlags,
    Result, Rights, RootInfo, ScrubAt, Seek, SetAttr, StatFs, Token, Totals, TreeCheck, XattrFlags,
};
use std::sync::Arc;
use std::time::Duration;

/// A call on its way through.
pub(crate) struct Gate<'s> {
    /// The nodes that the session has open.
    pub nodes: &'s Nodes,
    /// The volume.
    pub calls: &'s dyn Calls,
    /// The directory that is the client's top.
    pub top: Node,
    /// Nothing may be changed.
    pub read_only: bool,
    /// The client may do all that the volume's owner may.
    pub is_owner: bool,
    /// Number of the call.
    pub number: u16,
    /// The call among those of its session.
    pub asked: Asked,
    /// The nodes that it uses: they stay open until it has been made.
    used: [Option<Arc<Open>>; 2],
    /// Use that may be made of a node that the call opens.
    opens: Open,
    /// Its last node is written at the end alone, and may be written.
    appends: bool,
    writes: bool,
}

impl<'s> Gate<'s> {
    /// Lets in a call with this number.
    pub(crate) fn new(
        nodes: &'s Nodes,
        calls: &'s dyn Calls,
        top: Node,
        (read_only, is_owner): (bool, bool),
        (number, asked): (u16, Asked),
    ) -> Gate<'s> {
        let is_new = number == number::make_temporary;
        let opens = Open { node: top, read: is_new, write: is_new, append: false };
        let used = [None, None];
        let (appends, writes) = (false, false);
        Gate { nodes, calls, top, read_only, is_owner, number, asked, used, opens, appends, writes }
    }

    fn node(&mut self, node: Node) -> Result<Node> {
        if node == Node::TOP {
            return Ok(self.top);
        }
        let open = self.nodes.get(node).ok_or(Code::BadHandle)?;
        let may = match self.number {
            number::read | number::seek => open.read,
            number::write | number::set_size | number::allocate => open.write,
            _ => true,
        };
        (self.appends, self.writes) = (open.append, open.write);
        let node = open.node;
        let place = self.used.iter_mut().find(|place| place.is_none());
        *place.expect("no call has three nodes") = Some(open);
        if may { Ok(node) } else { Err(Code::BadHandle.into()) }
    }

    /// Returns whether the last node that was let in is open for writing.
    pub(crate) fn may_write(&self) -> bool {
        self.writes
    }

    /// Takes off what the kernel of a mount vouches for, and a client cannot: that a file is open
    /// for writing, and the time of a change of the inode.
    pub(crate) fn set_by(&self, set: SetAttr) -> SetAttr {
        let ctime = set.ctime.filter(|_| self.is_owner);
        SetAttr { by_handle: false, ctime, ..set }
    }

    /// Makes something known to the client that the call has opened.
    pub(crate) fn opened(&mut self, opened: &Opened) -> Result<Node> {
        let node = opened.node;
        let added = self.nodes.add(
            Arc::new(Open { node, ..self.opens }),
            &NodeEntry {
                ino: opened.attr.ino,
                generation: opened.attr.generation,
                rights: 0,
                mark: self.asked.mark(),
            },
        );
        if added.is_err() {
            close(self.calls, node);
        }
        added
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        for open in &mut self.used {
            if let Some(open) = open.take() {
                release(self.calls, open);
            }
        }
    }
}

/// An argument on its way in.
pub(crate) trait Admit: Sized {
    /// Lets it in.
    fn admit(self, _gate: &mut Gate<'_>) -> Result<Self> {
        Ok(self)
    }
}

/// A result on its way out.
pub(crate) trait Grant: Sized {
    /// Lets it out.
    fn grant(self, _gate: &mut Gate<'_>) -> Result<Self> {
        Ok(self)
    }
}

macro_rules! plain {
    ($trait:ident: $($type:ty),*) => {$(impl $trait for $type {})*};
}

plain!(
    Admit: &[u8], bool, u16, u32, Handle, Ino, Option<Ino>, Rights, Duration, XattrFlags,
    RenameFlags, Fallocate, Seek, QuotaLimits, ChangeMark, ScrubAt
);
plain!(
    Grant: (), bool, u64, (u64, u64), Attr, Vec<u8>, Option<String>, Token, StatFs, Totals,
    Vec<RootInfo>, Quota, Option<Quota>, Vec<Quota>, ChangeMark, [u8; 16], HardLinks, Vec<Metric>,
    Vec<Operation>, Vec<Fact>, Vec<Load>, Trace, Vec<OrphanInfo>, ScrubStep
);

impl Admit for Node {
    fn admit(self, gate: &mut Gate<'_>) -> Result<Node> {
        gate.node(self)
    }
}

impl Admit for SetAttr {
    fn admit(self, gate: &mut Gate<'_>) -> Result<SetAttr> {
        Ok(gate.set_by(self))
    }
}

impl Admit for TreeCheck {
    fn admit(self, gate: &mut Gate<'_>) -> Result<TreeCheck> {
        match self {
            // Nobody looks at what is below.
            TreeCheck::Top if !gate.is_owner => Err(Code::NotPermitted.into()),
            check => Ok(check),
        }
    }
}

impl Admit for u64 {
    fn admit(self, gate: &mut Gate<'_>) -> Result<u64> {
        Ok(match gate.number {
            number::write | number::put if gate.appends => AT_END,
            _ => self,
        })
    }
}

impl Admit for How {
    fn admit(self, gate: &mut Gate<'_>) -> Result<How> {
        let changes = self.write || self.append || self.truncate || self.create || self.create_new;
        if changes && gate.read_only {
            return Err(Code::ReadOnly.into());
        }
        gate.opens.read = self.read;
        gate.opens.write = self.write || self.append;
        gate.opens.append = self.append;
        Ok(self)
    }
}

impl Admit for Option<How> {
    fn admit(self, gate: &mut Gate<'_>) -> Result<Option<How>> {
        self.map(|how| how.admit(gate)).transpose()
    }
}

impl Admit for Token {
    fn admit(self, gate: &mut Gate<'_>) -> Result<Token> {
        gate.opens.read = self.rights().contains(Rights::READ);
        gate.opens.write = self.rights().contains(Rights::WRITE) && !gate.read_only;
        Ok(self)
    }
}

impl Grant for Opened {
    fn grant(self, gate: &mut Gate<'_>) -> Result<Opened> {
        Ok(Opened { node: gate.opened(&self)?, ..self })
    }
}
