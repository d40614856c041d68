//! What all requests of one mount share: the volume, and who checks what.

use shoal::Volume;
use std::sync::Arc;

/// One mount's worth of state. There is no table of nodes or handles: a node id is an inode
/// number, and open files need nothing of us.
pub struct Session {
    /// The volume served.
    pub volume: Arc<Volume>,
    /// Who checks what.
    pub rules: Rules,
}

/// Division of labour between the kernel and us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// The kernel checks permissions (`default_permissions`): the volume must not check again.
    pub kernel_checks: bool,
    /// OPEN is answered ENOSYS, once: from then on neither OPEN nor RELEASE is sent. Only where
    /// nothing would be checked at open anyway.
    pub no_open: bool,
    /// Extended attributes are answered ENOSYS: none are asked for any more.
    pub no_xattr: bool,
}
