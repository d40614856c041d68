//! Tokens that open a file without its path: parsed from bytes and text, and refused by a volume
//! that has not made them.

use shoal::{Credentials, Rights, Token, Volume};
use std::sync::OnceLock;
use std::time::Duration;

/// A volume, and a token that it has made.
fn volume() -> &'static (Volume, Token) {
    static VOLUME: OnceLock<(Volume, Token)> = OnceLock::new();
    VOLUME.get_or_init(|| {
        let volume = Volume::options().size(64 << 20).in_memory().expect("a volume in memory");
        let root = volume.root(Credentials::root());
        root.write("file", b"contents").expect("a file");
        let token = root.share("file", Rights::READ, Duration::from_secs(1 << 30));
        (volume, token.expect("a token"))
    })
}

/// Bytes and text of a token; then the input as changes of a valid one.
pub fn token(data: &[u8]) {
    let (volume, valid) = volume();
    let refused = |token: &Token| {
        let opened = volume.open_token(token).map_err(|e| e.errno());
        assert_eq!(opened.map(|file| file.ino()).err(), Some(13), "{token}");
    };
    if let Ok(token) = Token::from_bytes(data) {
        assert_eq!(token.to_bytes(), data);
        assert_eq!(token.to_string().parse::<Token>().ok(), Some(token));
        refused(&token);
    }
    if let Some(token) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Token>().ok())
    {
        // Each token has one text.
        assert_eq!(token.to_string().as_bytes(), data);
        refused(&token);
    }
    let mut bytes = valid.to_bytes();
    bytes.iter_mut().zip(data).for_each(|(byte, change)| *byte ^= change);
    match Token::from_bytes(&bytes) {
        Ok(same) if same == *valid => assert!(volume.open_token(&same).is_ok()),
        Ok(changed) => refused(&changed),
        Err(e) => assert_eq!(e.errno(), 13),
    }
}
