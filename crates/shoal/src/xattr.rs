//! Extended attributes of open files and directories.

/// Gives a type with a method `target` the calls for extended attributes.
macro_rules! xattrs {
    ($type:ty, $what:literal) => {
        /// Extended attributes. Names have their namespace: `user.origin`.
        impl $type {
            /// Sets an attribute, of at most 64 KiB.
            ///
            /// # Errors
            /// `Unsupported` for a namespace that there is not, `ArgumentListTooLong` for a longer
            /// value, `PermissionDenied`, `StorageFull`.
            pub fn set_xattr(
                &self,
                name: impl $crate::AsPath,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                let (name, value) = (name.as_path(), value.as_ref());
                let (calls, who, node) = self.target();
                let flags = $crate::raw::XattrFlags::default();
                let set = self.may_use_xattrs(true);
                let set =
                    set.and_then(|()| calls.set_xattr(who, node, b"", true, name, value, flags));
                $crate::error::Doing::doing(set, "set attribute", name)
            }

            /// The value of an attribute; `None` when there is none of that name.
            ///
            /// # Errors
            /// `Unsupported` for a namespace that there is not, `PermissionDenied`.
            pub fn xattr(&self, name: impl $crate::AsPath) -> $crate::Result<Option<Vec<u8>>> {
                let (name, (calls, who, node)) = (name.as_path(), self.target());
                let may = self.may_use_xattrs(false);
                match may.and_then(|()| calls.xattr(who, node, b"", true, name)) {
                    Err(e) if e.is($crate::raw::Code::NoData) => Ok(None),
                    value => $crate::error::Doing::doing(value.map(Some), "read attribute", name),
                }
            }

            /// The names of all attributes that the caller may see.
            ///
            /// # Errors
            /// Those of the device.
            pub fn xattrs(&self) -> $crate::Result<Vec<Vec<u8>>> {
                let (calls, who, node) = self.target();
                let may = self.may_use_xattrs(false);
                let list = may.and_then(|()| calls.xattrs(who, node, b"", true));
                let list = $crate::error::Doing::done(list, concat!("list attributes of ", $what))?;
                Ok($crate::xattr::split_names(&list))
            }

            /// Removes an attribute.
            ///
            /// # Errors
            /// `ENODATA` when there is none of that name, `PermissionDenied`.
            pub fn remove_xattr(&self, name: impl $crate::AsPath) -> $crate::Result<()> {
                let (name, (calls, who, node)) = (name.as_path(), self.target());
                let may = self.may_use_xattrs(true);
                let removed = may.and_then(|()| calls.remove_xattr(who, node, b"", true, name));
                $crate::error::Doing::doing(removed, "remove attribute", name)
            }
        }
    };
}

pub(crate) use xattrs;

/// Splits names that have a NUL behind each.
pub(crate) fn split_names(list: &[u8]) -> Vec<Vec<u8>> {
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}
