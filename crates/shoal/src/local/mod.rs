//! The calls on a volume that this process has open, for front ends: the rest of this library and
//! what serves a volume to other processes. This module may change more often than the rest.
//!
//! | module | subject |
//! | --- | --- |
//! | `about` | the volume as its owner sees it |
//! | `batch` | what a batch touches |
//! | `find` | paths, and inodes that stay while a call needs them |
//! | `open` | opening files and directories; whole files |
//! | `names` | adding, removing and moving names |
//! | `inodes` | attributes, contents, listings |
//! | `metrics` | counters and gauges |

mod about;
mod batch;
mod copies;
mod find;
mod inodes;
pub(crate) mod metrics;
mod names;
mod open;

use shoal_engine::{
    self as raw, Attr, BatchOp, Caller, Change, ChangeMark, Code, Fallocate, Fields, Freshness,
    Generation, Handle, Ino, Listing, QuotaLimits, RenameFlags, Result, Rights, RootInfo, Seek,
    SetAttr, Stat, StatFs, Token, Totals, TotalsScan, TreeChange, TreeChanged, TreeCheck,
    XattrFlags,
};
use shoal_session::{
    Calls, ChangeFeed, Changed, Control, CopyWish, EachEntry, Fact, FeedReader, HardLinks, How,
    Load, Metric, Node, Opened, Operation, ScrubStep, Told, Trace, TreeWatch,
};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The calls of the library on an open volume.
///
/// A [`Node`] is an inode number. One that a call has opened is counted by
/// [`raw::References::hold`] until [`Calls::close`]; the top directory is never counted. Calls on
/// an open node check no permissions to its path, and calls on the contents of a file check
/// nothing: who makes them must know that the node is open, and for what.
pub struct Local {
    volume: Arc<raw::Volume>,
    told: Option<Arc<dyn Told>>,
    control: Option<Arc<dyn Control>>,
    /// The directory from which paths are told: the volume's top, or that of a subvolume.
    top: Ino,
    /// Open nodes are not counted.
    uncounted: bool,
}

impl Local {
    /// The calls on a volume.
    pub fn new(volume: Arc<raw::Volume>) -> Local {
        Local { volume, told: None, control: None, top: Ino::ROOT, uncounted: false }
    }

    /// Shows the subvolume with this top alone.
    #[must_use]
    pub fn of_subvolume(self, top: Ino) -> Local {
        Local { top, ..self }
    }

    /// Counts no open nodes: of a view of a volume that another process owns, in which nothing is
    /// freed.
    #[must_use]
    pub fn of_view(self) -> Local {
        Local { uncounted: true, ..self }
    }

    /// Answers for the server of the volume, too.
    #[must_use]
    pub fn of_server(self, control: Arc<dyn Control>) -> Local {
        Local { control: Some(control), ..self }
    }

    /// Tells a listener of each change that a call makes.
    #[must_use]
    pub fn telling(self, told: Arc<dyn Told>) -> Local {
        Local { told: Some(told), ..self }
    }

    /// Holds an inode that a process before this one has had open, until [`Calls::close`].
    ///
    /// # Errors
    /// `ESTALE` if it has been freed since.
    pub fn hold_again(&self, ino: Ino, generation: Generation) -> Result<Node> {
        let held = self.hold_new(ino)?;
        let attr = self.volume.attributes().getattr(ino)?;
        match attr.generation == generation {
            true => Ok(held.opened(attr).node),
            false => Err(Code::Stale.into()),
        }
    }

    /// Tells the listener of a change that a process before this one has made.
    pub fn tell_again(&self, changed: Changed<'_>) {
        match changed {
            Changed::Name(dir, path) => {
                let who = Caller::root();
                let Ok((dir, name)) = self.place(&who, ino_of(dir), path) else { return };
                let found = self.volume.namespace().lookup(&who, dir, name);
                self.tell_gone(dir, name, found.ok().map(|found| found.ino));
            }
            Changed::Inode(ino) => self.tell(|told| told.data(ino, 0, 0)),
        }
    }

    /// Tells the listener, if there is one.
    #[inline]
    fn tell(&self, what: impl FnOnce(&dyn Told)) {
        if let Some(told) = &self.told {
            what(&**told);
        }
    }

    /// Lets the listener write what it alone has of a file's data.
    #[inline]
    fn before_data(&self, ino: Ino) -> Result<()> {
        self.told.as_ref().map_or(Ok(()), |told| told.before_data(ino))
    }

    /// Tells the listener that attributes have changed, and passes the result on.
    #[inline]
    fn changed<T>(&self, ino: Ino, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.tell(|told| told.attributes(ino));
        }
        done
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Local")
    }
}

/// The inode of a node.
#[inline]
fn ino_of(node: Node) -> Ino {
    Ino(node.0)
}

impl Calls for Local {
    #[inline]
    fn find(&self, who: &Caller, dir: Node, path: &[u8], follow: bool) -> Result<Attr> {
        self.find_at(who, ino_of(dir), path, follow)
    }
    #[inline]
    fn attr(&self, _: &Caller, node: Node) -> Result<Attr> {
        self.volume.attributes().getattr(ino_of(node))
    }
    fn open_dir(&self, who: &Caller, dir: Node, path: &[u8]) -> Result<Opened> {
        self.directory(who, ino_of(dir), path)
    }
    fn open_file(&self, who: &Caller, dir: Node, path: &[u8], how: How) -> Result<Opened> {
        let mut attr = open::nothing();
        let held = self.file(who, ino_of(dir), path, &how, &mut attr)?;
        Ok(held.opened(attr))
    }
    fn open_handle(
        &self,
        who: &Caller,
        _: Node,
        handle: Handle,
        how: Option<How>,
    ) -> Result<Opened> {
        self.of_handle(who, handle, how)
    }
    fn open_token(&self, _: &Caller, token: Token) -> Result<Opened> {
        self.of_token(&token)
    }
    #[inline]
    fn close(&self, _: &Caller, node: Node) -> Result<()> {
        self.let_go(ino_of(node));
        Ok(())
    }

    fn make_dir(&self, who: &Caller, dir: Node, path: &[u8], mode: u32) -> Result<Opened> {
        // Removed by another call before it is held, it is made again.
        find::unless_stale(|| {
            let attr = self.new_dir(who, ino_of(dir), path, mode)?;
            self.hold_open(attr)
        })
    }
    fn make_dirs(&self, who: &Caller, dir: Node, path: &[u8], mode: u32) -> Result<Opened> {
        self.new_dirs(who, ino_of(dir), path, mode)
    }
    fn make_node(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Attr> {
        self.new_node(who, ino_of(dir), path, mode, device)
    }
    fn make_temporary(&self, who: &Caller, dir: Node, path: &[u8], mode: u32) -> Result<Opened> {
        self.on_found(who, ino_of(dir), path, true, |dir| {
            // It has one reference.
            let attr = self.volume.namespace().tmpfile(who, dir.ino, mode)?;
            Ok(Opened { node: Node(attr.ino.0), attr })
        })
    }
    fn symlink(&self, who: &Caller, dir: Node, path: &[u8], target: &[u8]) -> Result<Attr> {
        self.new_symlink(who, ino_of(dir), path, target)
    }
    fn link(&self, who: &Caller, dir: Node, path: &[u8], to: Node, to_path: &[u8]) -> Result<Attr> {
        self.new_link(who, (ino_of(dir), path), (ino_of(to), to_path))
    }
    fn unlink(&self, who: &Caller, dir: Node, path: &[u8]) -> Result<()> {
        self.remove_file(who, ino_of(dir), path)
    }
    fn remove_dir(&self, who: &Caller, dir: Node, path: &[u8]) -> Result<()> {
        self.remove_empty(who, ino_of(dir), path)
    }
    fn remove_tree(&self, who: &Caller, dir: Node, path: &[u8], check: TreeCheck) -> Result<()> {
        self.remove_whole(who, ino_of(dir), path, check)
    }
    fn rename(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        to: Node,
        to_path: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.move_name(who, (ino_of(dir), path), (ino_of(to), to_path), flags)
    }
    fn read_link(&self, who: &Caller, dir: Node, path: &[u8]) -> Result<Vec<u8>> {
        let read = |attr: &Attr| self.volume.namespace().readlink(attr.ino);
        self.on_found(who, ino_of(dir), path, false, read)
    }

    fn access(&self, who: &Caller, dir: Node, path: &[u8], mask: u32) -> Result<()> {
        let may = |attr: &Attr| self.volume.attributes().access(who, attr.ino, mask);
        self.on_found(who, ino_of(dir), path, true, may)
    }
    fn set_attr(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        follow: bool,
        set: SetAttr,
    ) -> Result<Attr> {
        self.set_attributes(who, ino_of(dir), path, follow, &set)
    }
    fn xattr(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        follow: bool,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let get = |attr: &Attr| self.volume.attributes().getxattr(who, attr.ino, name);
        self.on_found(who, ino_of(dir), path, follow, get)
    }
    fn xattrs(&self, who: &Caller, dir: Node, path: &[u8], follow: bool) -> Result<Vec<u8>> {
        let list = |attr: &Attr| self.volume.attributes().listxattr(who, attr.ino);
        self.on_found(who, ino_of(dir), path, follow, list)
    }
    fn set_xattr(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        self.on_found(who, ino_of(dir), path, follow, |attr| {
            let set = self.volume.attributes().setxattr(who, attr.ino, name, value, flags);
            self.changed(attr.ino, set)
        })
    }
    fn remove_xattr(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        follow: bool,
        name: &[u8],
    ) -> Result<()> {
        self.on_found(who, ino_of(dir), path, follow, |attr| {
            let removed = self.volume.attributes().removexattr(who, attr.ino, name);
            self.changed(attr.ino, removed)
        })
    }

    fn set_size(&self, who: &Caller, file: Node, size: u64) -> Result<()> {
        self.cut(who, ino_of(file), size)
    }
    #[inline]
    fn write(&self, who: &Caller, file: Node, at: u64, bytes: &[u8]) -> Result<(u64, u64)> {
        self.write_some(who, ino_of(file), at, bytes)
    }
    fn allocate(&self, _: &Caller, file: Node, mode: Fallocate, at: u64, len: u64) -> Result<()> {
        self.before_data(ino_of(file))?;
        self.volume.files().fallocate(ino_of(file), mode, at, len)?;
        self.tell(|told| told.data(ino_of(file), at, len));
        Ok(())
    }
    fn seek(&self, _: &Caller, file: Node, at: u64, what: Seek) -> Result<u64> {
        self.before_data(ino_of(file))?;
        self.volume.files().seek(ino_of(file), at, what)
    }
    fn fsync(&self, _: &Caller, node: Node, data_only: bool) -> Result<()> {
        self.volume.files().fsync(ino_of(node), data_only)
    }
    fn sync(&self, _: &Caller) -> Result<()> {
        self.volume.sync()
    }
    fn put(&self, who: &Caller, dir: Node, path: &[u8], how: How, bytes: &[u8]) -> Result<()> {
        self.write_whole(who, ino_of(dir), path, how, bytes)
    }

    fn share(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        rights: Rights,
        lifetime: Duration,
    ) -> Result<Token> {
        self.on_found(who, ino_of(dir), path, true, |attr| {
            let file = Handle { ino: attr.ino, generation: attr.generation };
            self.volume.tokens().issue(who, file, rights, lifetime)
        })
    }
    fn revoke_tokens(&self, who: &Caller) -> Result<()> {
        self.whole()?;
        self.volume.tokens().revoke(who)
    }

    fn statfs(&self, _: &Caller) -> Result<StatFs> {
        raw::check_process(&self.volume)?;
        Ok(self.volume.statfs())
    }
    fn read_only_reason(&self, _: &Caller) -> Result<Option<String>> {
        Ok(self.volume.read_only_reason().map(|why| why.to_string()))
    }
    fn space_at(&self, who: &Caller, dir: Node, path: &[u8]) -> Result<StatFs> {
        raw::check_process(&self.volume)?;
        let of = |attr: &Attr| Ok(self.volume.statfs_of(attr.ino));
        self.on_found(who, ino_of(dir), path, true, of)
    }
    fn links(&self, _: &Caller, file: Node, ino: Option<Ino>, from: u64) -> Result<HardLinks> {
        self.hard_links(ino_of(file), ino, from)
    }
    fn totals(&self, who: &Caller, dir: Node, subvolumes: bool) -> Result<Totals> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let scan = TotalsScan { threads, subvolumes, ..TotalsScan::of(ino_of(dir)) };
        self.volume.bulk().totals(who, scan)
    }

    fn subvolumes(&self, _: &Caller, after: u16) -> Result<Vec<RootInfo>> {
        raw::check_process(&self.volume)?;
        self.some_subvolumes(after)
    }
    fn make_subvolume(&self, who: &Caller, name: &[u8], mode: u32) -> Result<Opened> {
        let attr = self.make_root(who, name, mode)?;
        self.hold_open(attr)
    }
    fn open_subvolume(&self, _: &Caller, name: &[u8]) -> Result<Opened> {
        find::unless_stale(|| {
            let top = self.volume.subvolumes().top(name)?;
            let attr = self.volume.attributes().getattr(top)?;
            self.hold_open(attr)
        })
    }
    fn delete_subvolume(&self, who: &Caller, name: &[u8]) -> Result<()> {
        self.delete_root(who, name)
    }

    fn set_quota(&self, who: &Caller, dir: Node, limits: QuotaLimits) -> Result<raw::Quota> {
        self.volume.quotas().set(who, ino_of(dir), limits)
    }
    fn quota(&self, _: &Caller, dir: Node) -> Result<Option<raw::Quota>> {
        self.quota_at(ino_of(dir))
    }
    fn remove_quota(&self, who: &Caller, dir: Node) -> Result<()> {
        self.volume.quotas().remove(who, ino_of(dir))
    }
    fn quotas(&self, _: &Caller, after: Ino) -> Result<Vec<raw::Quota>> {
        self.some_quotas(after)
    }

    fn metrics(&self, _: &Caller, from: u32) -> Result<Vec<Metric>> {
        raw::check_process(&self.volume)?;
        Ok(self.some_metrics(from))
    }
    fn operations(&self, _: &Caller, from: u32) -> Result<Vec<Operation>> {
        Ok(self.some_operations(from))
    }
    fn facts(&self, _: &Caller, from: u32) -> Result<Vec<Fact>> {
        raw::check_process(&self.volume)?;
        Ok(self.some_facts(from))
    }
    fn loads(&self, _: &Caller, from: u32) -> Result<Vec<Load>> {
        Ok(self.some_loads(from))
    }
    fn trace(&self, _: &Caller, from: u64) -> Result<Trace> {
        self.some_trace(from)
    }
    fn orphans(&self, _: &Caller, after: Ino) -> Result<Vec<raw::OrphanInfo>> {
        raw::check_process(&self.volume)?;
        self.some_orphans(after)
    }
    fn trim(&self, _: &Caller, first: bool) -> Result<u64> {
        self.trim_some(first)
    }
    fn scrub(&self, _: &Caller, run: u32, at: raw::ScrubAt, bytes: u64) -> Result<ScrubStep> {
        self.scrub_some(run, at, bytes)
    }
    fn set_label(&self, _: &Caller, label: &[u8]) -> Result<()> {
        self.label(label)
    }
    fn remount(&self, who: &Caller, read_only: bool, noatime: bool) -> Result<()> {
        let control = self.control.as_ref().ok_or(Code::NotSupported)?;
        control.remount(who, read_only, noatime)
    }

    fn mark(&self, _: &Caller, dir: Node) -> Result<ChangeMark> {
        self.volume.changes().mark(ino_of(dir))
    }
    fn is_newer(&self, _: &Caller, mark: ChangeMark) -> Result<bool> {
        Ok(self.volume.changes().is_newer(&mark))
    }
    fn keep_removed(&self, who: &Caller, keep: bool) -> Result<()> {
        self.volume.changes().keep_removed(who, keep)
    }
    fn stored_in(&self, _: &Caller) -> Result<Option<String>> {
        raw::check_process(&self.volume)?;
        Ok(self.volume.stored_in())
    }
    fn volume_id(&self, _: &Caller) -> Result<[u8; 16]> {
        raw::check_process(&self.volume)?;
        Ok(self.volume.id())
    }

    #[inline]
    fn read(&self, _: &Caller, file: Node, at: u64, into: &mut [u8]) -> Result<usize> {
        self.before_data(ino_of(file))?;
        self.volume.files().read(ino_of(file), at, into)
    }
    fn get(&self, who: &Caller, dir: Node, path: &[u8], into: &mut Vec<u8>) -> Result<Attr> {
        self.read_whole(who, ino_of(dir), path, into)
    }
    fn list(
        &self,
        who: &Caller,
        _: Node,
        _: &[u8],
        ino: Ino,
        listing: &Listing,
        each: &mut EachEntry<'_>,
    ) -> Result<()> {
        self.list_part(who, ino, listing, each)
    }
    fn stat_many(
        &self,
        who: &Caller,
        dir: Node,
        names: &[&[u8]],
        want: Fields,
        freshness: Freshness,
    ) -> Result<Vec<Result<Stat>>> {
        Ok(self.attributes_of_names(who, ino_of(dir), names, want, freshness))
    }
    fn batch(&self, who: &Caller, dir: Node, changes: &[BatchOp<'_>]) -> Result<()> {
        let mut touched = self.touched(who, ino_of(dir), changes);
        if self.told.is_some() {
            // Once more: before the names were announced, they may have changed.
            self.before_batch(&touched)?;
            touched = self.touched(who, ino_of(dir), changes);
        }
        self.volume.batch(who, ino_of(dir), changes)?;
        touched.append(&mut self.touched(who, ino_of(dir), changes));
        self.tell_touched(touched);
        Ok(())
    }
    fn inodes(&self, who: &Caller, after: Ino, at_most: usize) -> Result<Vec<Attr>> {
        self.scan(who, after, at_most)
    }
    fn changes(&self, who: &Caller, dir: Node, since: Option<ChangeMark>) -> Result<ChangeFeed> {
        let reader = self.volume.changes().since(who, ino_of(dir), since.as_ref())?;
        let (mark, has_all_removed) = (reader.mark(), reader.has_all_removed());
        Ok(ChangeFeed { mark, has_all_removed, reader: FeedReader::Here(Box::new(reader)) })
    }
    fn next_changes(
        &self,
        _: &Caller,
        feed: &mut ChangeFeed,
        at_most: usize,
    ) -> Result<Vec<Change>> {
        match &mut feed.reader {
            FeedReader::Here(reader) => self.volume.changes().next(reader, at_most),
            FeedReader::Remote(_) => Err(Code::BadHandle.into()),
        }
    }
    fn end_changes(&self, _: &Caller, _: &ChangeFeed) -> Result<()> {
        Ok(())
    }
    fn change_tree(
        &self,
        who: &Caller,
        dir: Node,
        change: &TreeChange,
        watch: &TreeWatch<'_>,
    ) -> Result<TreeChanged> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        self.volume.tree_changes().change_tree(who, ino_of(dir), change, threads, watch)
    }
    fn copies(
        &self,
        who: &Caller,
        dir: Node,
        path: &[u8],
        names: &[&[u8]],
        wish: &CopyWish,
        into: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        self.copy_trees(who, (ino_of(dir), path), names, wish, into)
    }
    fn entry(&self, _: &Caller, _: Node, _: &[u8], ino: Ino) -> Result<Attr> {
        self.volume.attributes().getattr(ino)
    }
}
