//! Requests of the kernel: refused with an errno, or taken apart within their bytes.

use shoal_fuse::protocol::Request;

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
    assert_eq!(request.body().len(), whole - start);
    request.body().fill(0);
}
