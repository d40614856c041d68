//! Each engine, in a folder of its own: created, opened again, counted, looked up; refused.

use crate::create::create_all;
use crate::engine::{Batch, Engine, Kind};
use crate::engines::ENGINES;
use crate::error::{PeerError, Result};
use crate::records::{FILES_PER_DIR, NewFile};
use crate::resources::{Scratch, folder_bytes, now_ns};
use crate::verify::verify;

const FILES: u64 = 300;

/// Runs a test with each engine in an empty folder.
fn each(name: &str, test: impl Fn(&Kind, &Scratch) -> Result<()>) {
    for kind in &ENGINES {
        let folder = format!("shoal-peers-test-{}-{name}-{}", kind.name, std::process::id());
        let scratch = Scratch::new(&std::env::temp_dir(), &folder).expect("a folder");
        test(kind, &scratch).unwrap_or_else(|e| panic!("{}: {e}", kind.name));
    }
}

fn batch(files: &[NewFile]) -> Batch<'_> {
    Batch { dir: 0, files, now_ns: now_ns() }
}

fn files_are_there_after_a_close(kind: &Kind, scratch: &Scratch, size: u64) -> Result<()> {
    let mut engine = (kind.open)(scratch.path())?;
    let since_ns = now_ns();
    // Old times, so that the creates are seen to change them.
    engine.make_dirs(1, 0)?;
    let latency = create_all(engine.as_mut(), FILES, size)?;
    assert!(!latency.is_empty());
    engine.close()?;
    assert!(folder_bytes(scratch.path())? > FILES * 100);

    let engine = (kind.open)(scratch.path())?;
    verify(engine.as_ref(), FILES, 1, since_ns)?;
    assert!(verify(engine.as_ref(), FILES - 1, 1, since_ns).is_err(), "one file too many");
    assert_eq!(engine.child(0, &NewFile::of(FILES).name)?, None);
    engine.close()
}

#[test]
fn single_files_are_there_after_a_close() {
    each("single", |kind, scratch| files_are_there_after_a_close(kind, scratch, 1));
}

#[test]
fn batches_are_there_after_a_close() {
    each("batches", |kind, scratch| files_are_there_after_a_close(kind, scratch, 100));
}

#[test]
fn a_name_that_exists_is_refused_with_its_batch() {
    each("exists", |kind, scratch| {
        let mut engine = (kind.open)(scratch.path())?;
        engine.make_dirs(1, now_ns())?;
        let [first, second, third] = [0, 1, 2].map(NewFile::of);
        engine.create(&batch(&[first]))?;
        let ino = engine.child(0, &first.name)?;
        assert!(ino.is_some());

        let again = NewFile { ino: second.ino, ..first };
        for refused in [vec![again], vec![third, again], vec![third, third]] {
            let error = engine.create(&batch(&refused)).expect_err("the name exists");
            assert!(matches!(error, PeerError::Exists(_)), "{}: {error}", kind.name);
        }
        assert_eq!(engine.count(0)?, 1);
        assert_eq!(engine.child(0, &first.name)?, ino);
        assert_eq!(engine.child(0, &third.name)?, None);
        engine.create(&batch(&[second, third]))?;
        engine.close()?;

        let engine = (kind.open)(scratch.path())?;
        verify(engine.as_ref(), 3, 1, 0)?;
        engine.close()
    });
}

#[test]
fn batches_end_where_a_directory_ends() {
    each("ends", |kind, scratch| {
        let mut engine: Box<dyn Engine> = (kind.open)(scratch.path())?;
        engine.make_dirs(2, now_ns())?;
        let files = FILES_PER_DIR + 1;
        assert_eq!(create_all(engine.as_mut(), files, 300)?.len(), 5);
        verify(engine.as_ref(), files, 7, 0)?;
        engine.close()
    });
}
