//! Texts of messages.

/// A name to read: printable, and long ones cut.
pub fn elided(name: &[u8]) -> String {
    if name.len() <= 40 {
        return name.escape_ascii().to_string();
    }
    format!("{}...({} bytes)", name[..16].escape_ascii(), name.len())
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?").to_string()
}
