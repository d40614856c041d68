//! Requests of the kernel, and of programs through the control ioctl: refused with an errno, or taken
//! apart within their bytes.

use shoal_fuse::protocol::control::{Answer, Cursor, Entry, Kind, PAGE, VERSION, entries, parse};
use shoal_fuse::protocol::histogram::words;
use shoal_fuse::protocol::traced::{Facts, NAMES_MAX, names};
use shoal_fuse::protocol::{Opcode, Reply, Request};

/// One request as it is read from the device.
pub fn request(data: &[u8]) {
    for reply_room in [0, 64] {
        let mut buffer = data.to_vec();
        buffer.resize(data.len() + reply_room, 0xAA);
        take_apart(&mut buffer, data.len());
        // As long as it says it is.
        if let Some(len) = buffer.first_chunk_mut::<4>() {
            *len = (data.len() as u32).to_le_bytes();
            take_apart(&mut buffer, data.len());
        }
        // More than the buffer holds.
        let beyond = buffer.len() + 1;
        assert!(Request::split(&mut buffer, beyond).is_err());
    }
}

fn take_apart(buffer: &mut [u8], filled: usize) {
    let whole = buffer.len();
    let Ok((mut request, start)) = Request::split(buffer, filled) else { return };
    assert!((40..=whole).contains(&start));
    let _ = (request.may_block(), request.node(), request.ext_group());
    let _ = (request.arg::<[u8; 8]>(), request.arg::<[u8; 88]>());
    assert!(request.payload().len() <= filled - start);
    for name in [request.name(), request.names().map(|n| n.0), request.names().map(|n| n.1)] {
        let Ok(name) = name else { continue };
        assert!((1..=255).contains(&name.len()) && !name.contains(&0));
    }
    if let Ok((name, target)) = request.name_and_target() {
        assert!(!name.is_empty() && !target.contains(&0));
    }
    if let Some(op) = request.opcode
        && let Some(mut facts) = Facts::of(op, &request)
    {
        assert!(names(op, request.payload()).len() <= request.payload().len());
        let reply = request.payload().to_vec();
        facts.answered(op, &Reply::Body(reply.len()), &reply, |id| id);
    }
    assert_eq!(request.body().len(), whole - start);
    request.body().fill(0);
}

/// One page of the control ioctl, as a request and as an answer; then the same of our version.
pub fn control(data: &[u8]) {
    control_page(data);
    let mut page = data.to_vec();
    if let Some(version) = page.first_chunk_mut::<2>() {
        *version = VERSION.to_le_bytes();
        control_page(&page);
    }
}

fn control_page(page: &[u8]) {
    if let Ok((kind, head, name)) = parse(page) {
        assert_eq!((kind as u16, head.version, head.count), (head.kind, VERSION, 0));
        let is_name =
            (1..=255).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0);
        assert!(match kind {
            Kind::RemoveTree | Kind::MakeSubvolume | Kind::DeleteSubvolume => is_name,
            Kind::SetLabel => name.len() <= 255 && !name.contains(&0),
            _ => name.is_empty(),
        });
    }
    // Entries of a trace, as a client reads them.
    for entry in entries(page) {
        let facts = Facts::from_words(words(entry.texts[0]));
        assert_eq!(Facts::from_words(facts.words().into_iter()), facts);
        assert!(Opcode::ALL.iter().all(|op| names(*op, entry.texts[1]).len() <= NAMES_MAX));
    }
    // What was read can be written again, and reads the same.
    let read: Vec<Entry<'_>> = entries(page).collect();
    let mut room = vec![0xAA; page.len().min(PAGE)];
    let mut answer = Answer::new(&mut room, Kind::Orphans);
    let fits = read.iter().take_while(|entry| answer.push(entry)).count();
    assert_eq!(fits, entries(&page[..page.len().min(PAGE)]).count());
    let next: Option<Cursor> = (fits > 0).then_some([1, 2, 3]);
    let finished = answer.finish(next);
    assert_eq!(finished.is_ok(), page.len() >= 72);
    assert!(entries(&room).eq(read.into_iter().take(fits)));
}
