//! Path walking with symlinks, dots and search permission, as `path_resolution(7)` describes it.

use super::{Body, Model, Outcome};
use shoal::raw::{Caller, Code, Ino};
use shoal_base::limits::{PATH_MAX, SYMLOOP_MAX};
use std::collections::VecDeque;

impl Model {
    /// Every path that leads to an inode, sorted, found by walking everything.
    pub(crate) fn paths_of(&self, ino: Ino) -> Vec<Vec<u8>> {
        if ino == self.root() {
            return vec![b"/".to_vec()];
        }
        let mut found = Vec::new();
        let mut queue = vec![(self.root(), Vec::new())];
        while let Some((dir, prefix)) = queue.pop() {
            let Ok(entries) = self.entries(dir) else { continue };
            for (name, child) in entries {
                let path = [&prefix[..], b"/", name].concat();
                if *child == ino {
                    found.push(path.clone());
                }
                queue.push((*child, path));
            }
        }
        found.sort();
        found
    }

    /// The inode that `path` leads `who` to from `start`.
    pub(crate) fn resolve(
        &self,
        who: &Caller,
        start: Ino,
        path: &[u8],
        follow: bool,
    ) -> Outcome<Ino> {
        if path.is_empty() {
            return Err(Code::NotFound);
        }
        if path.len() >= PATH_MAX {
            return Err(Code::NameTooLong);
        }
        let mut at = if path[0] == b'/' { self.root() } else { start };
        let mut left: VecDeque<Vec<u8>> = components(path).collect();
        let mut must_be_dir = ends_in_slash(path);
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            self.entries(at)?;
            self.permit(who, at, 1)?;
            let next = match &name[..] {
                b"." => at,
                b".." => self.node(at).ok_or(Code::Stale)?.parent,
                _ => self.lookup(who, at, &name)?,
            };
            let last = left.is_empty();
            match &self.node(next).ok_or(Code::Stale)?.body {
                Body::Link(target) if !last || follow || must_be_dir => {
                    links += 1;
                    if links > SYMLOOP_MAX {
                        return Err(Code::Loop);
                    }
                    if last {
                        must_be_dir |= ends_in_slash(target);
                    }
                    if target[0] == b'/' {
                        at = self.root();
                    }
                    for part in components(target).rev() {
                        left.push_front(part);
                    }
                }
                _ => at = next,
            }
        }
        if must_be_dir {
            self.entries(at)?;
        }
        Ok(at)
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

fn ends_in_slash(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}
