//! Contents of regular files.

use super::attr::drop_set_ids;
use super::{Body, Content, Model, Outcome};
use shoal::raw::{Code, Fallocate, FileKind, Ino, Seek};
use shoal_base::limits::FILE_SIZE_MAX;

impl Model {
    /// Bytes of a regular file.
    pub(crate) fn read(&self, ino: Ino, offset: u64, len: u64) -> Outcome<Vec<u8>> {
        Ok(self.content(ino)?.read(offset, len))
    }

    /// The target of a symlink.
    pub(crate) fn readlink(&self, ino: Ino) -> Outcome<&[u8]> {
        match &self.node(ino).ok_or(Code::Stale)?.body {
            Body::Link(target) => Ok(target),
            _ => Err(Code::Invalid),
        }
    }

    /// Writes.
    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill_priv: bool,
    ) -> Outcome<()> {
        self.content(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(Code::FileTooBig);
        }
        self.change(ino, kill_priv, |content| content.write(offset, data));
        Ok(())
    }

    /// Writes at the end; returns where.
    pub(crate) fn append(&mut self, ino: Ino, data: &[u8], kill_priv: bool) -> Outcome<u64> {
        let offset = self.content(ino)?.size();
        self.write(ino, offset, data, kill_priv)?;
        Ok(offset)
    }

    /// Allocates, punches or zeroes.
    pub(crate) fn fallocate(
        &mut self,
        ino: Ino,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Outcome<()> {
        if len == 0 {
            return Err(Code::Invalid);
        }
        self.content(ino)?;
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Code::FileTooBig)?;
        self.change(ino, false, |content| {
            let keep_size = match mode {
                Fallocate::Allocate { keep_size } => keep_size,
                Fallocate::PunchHole => true,
                Fallocate::ZeroRange { keep_size } => keep_size,
            };
            if !matches!(mode, Fallocate::Allocate { .. }) {
                content.zero(offset, end.min(content.size()).max(offset));
            }
            if !keep_size && end > content.size() {
                content.resize(end);
            }
        });
        Ok(())
    }

    /// How many bytes `copy_range` may copy at most; then [`Model::copied`] does it.
    pub(crate) fn copyable(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Outcome<u64> {
        let source = self.content(from)?;
        self.content(to)?;
        let ends = (from_offset.checked_add(len), to_offset.checked_add(len));
        if ends.0.is_none() || ends.1.is_none() {
            return Err(Code::Overflow);
        }
        // Cut at the end first: only what would be copied can overlap.
        let most = len.min(source.size().saturating_sub(from_offset));
        if from == to && from_offset < to_offset + most && to_offset < from_offset + most {
            return Err(Code::Invalid);
        }
        if most > 0 && to_offset + most > FILE_SIZE_MAX {
            return Err(Code::FileTooBig);
        }
        Ok(most)
    }

    /// Copies exactly `len` bytes, checked before.
    pub(crate) fn copied(
        &mut self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) {
        let Ok(source) = self.content(from) else { return };
        let data = source.read(from_offset, len);
        if !data.is_empty() {
            self.change(to, false, |content| content.write(to_offset, &data));
        }
    }

    /// Returns whether `answer` is one of the right answers to a seek: where holes begin is up to
    /// the volume, but they must read as zeros, and data must not be skipped.
    pub(crate) fn seek_is_right(
        &self,
        ino: Ino,
        offset: u64,
        what: Seek,
        answer: Outcome<u64>,
    ) -> std::result::Result<(), String> {
        let content = self.content(ino).map_err(|code| code.name().to_string())?;
        let size = content.size();
        let right = match (what, answer) {
            _ if offset >= size => answer == Err(Code::NoDevice),
            (Seek::Data, Err(code)) => code == Code::NoDevice && content.is_zero(offset, size),
            (Seek::Data, Ok(at)) => at >= offset && at < size && content.is_zero(offset, at),
            (Seek::Hole, Err(_)) => false,
            // A hole inside the file must begin with a zero byte, unless it is the end.
            (Seek::Hole, Ok(at)) => {
                at >= offset && at <= size && (at == size || content.is_zero(at, at + 1))
            }
        };
        if right {
            Ok(())
        } else {
            Err(format!("seek {what:?} from {offset} of {size}: {answer:?}"))
        }
    }

    fn content(&self, ino: Ino) -> Outcome<&Content> {
        let node = self.node(ino).ok_or(Code::Stale)?;
        match (&node.body, node.kind) {
            (Body::File(content), _) => Ok(content),
            (_, FileKind::Directory) => Err(Code::IsDirectory),
            _ => Err(Code::Invalid),
        }
    }

    fn change(&mut self, ino: Ino, kill_priv: bool, edit: impl FnOnce(&mut Content)) {
        let node = self.nodes.get_mut(&ino).expect("checked");
        if let Body::File(content) = &mut node.body {
            edit(content);
        }
        if kill_priv {
            // A writer's groups are not known to the volume.
            drop_set_ids(&mut node.perm, true);
        }
        self.touch_contents(ino);
    }
}
