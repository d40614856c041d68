//! The program as a laboratory calls it.

use std::process::Command;

#[test]
fn it_says_what_it_can_do_and_refuses_the_rest() {
    let run = |arguments: &[&str]| {
        let command = Command::new(env!("CARGO_BIN_EXE_shoal-peers")).args(arguments).output();
        command.expect("the program starts")
    };
    let help = run(&["create", "--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).expect("text");
    assert!(["sqlite", "redb", "fjall"].iter().all(|engine| help.contains(engine)), "{help}");
    assert_eq!(run(&["destroy"]).status.code(), Some(2));
}
