//! `shoal generate`: man pages and completions, from the table of the command; a dashboard.
//!
//! The text behind the options is written in sections, `EXIT STATUS:` and so on. On a terminal
//! they stay as they are; a man page gets a real section for each.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Generator, Shell};
use clap_mangen::Man;

use crate::args::{Cli, GenerateArgs, GenerateWhat, HelperArgs, UmountHelperArgs};
use crate::commands::grafana;
use crate::failure::{Failure, OK, Reason, Result};
use crate::new_file::{Terms, write_whole};

/// Title of the manual in the heads of the pages.
const MANUAL: &str = "Shoal Manual";

/// Writes man pages or completions.
pub(crate) fn run(args: &GenerateArgs) -> Result<u8> {
    let directory = &*args.directory;
    fs::create_dir_all(directory)
        .map_err(|error| Failure::failed(directory.display(), Reason::from(error)))?;
    match args.what {
        GenerateWhat::Man => man_pages(directory),
        GenerateWhat::Completions => completions(directory),
        GenerateWhat::Grafana => {
            let text = grafana::dashboard();
            write(directory, "shoal-dashboard.json", text.as_bytes())
        }
    }
    .map(|()| OK)
}

fn write(directory: &Path, name: &str, contents: &[u8]) -> Result<()> {
    write_whole(&directory.join(name), contents, &Terms::default())
}

fn completions(directory: &Path) -> Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "shoal", &mut text);
        write(directory, &shell.file_name("shoal"), &text)?;
    }
    Ok(())
}

fn man_pages(directory: &Path) -> Result<()> {
    let mut top = Cli::command();
    top.build();
    let commands: Vec<clap::Command> =
        top.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    for command in commands {
        let name = format!("shoal-{}", command.get_name());
        let invoked = format!("shoal {}", command.get_name());
        for inner in command.get_subcommands().cloned() {
            let name = format!("{name}-{}", inner.get_name());
            let invoked = format!("{invoked} {}", inner.get_name());
            page(inner.display_name(&name).bin_name(invoked), &name, "1", directory)?;
        }
        page(command.display_name(&name).bin_name(invoked), &name, "1", directory)?;
    }
    page(top, "shoal", "1", directory)?;
    page(HelperArgs::command(), "mount.shoal", "8", directory)?;
    page(UmountHelperArgs::command(), "umount.shoal", "8", directory)
}

/// Writes one page.
fn page(command: clap::Command, name: &str, section: &str, directory: &Path) -> Result<()> {
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    let source = format!("shoal {}", env!("CARGO_PKG_VERSION"));
    let man =
        Man::new(command).title(name.to_uppercase()).section(section).source(source).manual(MANUAL);
    let mut text = Vec::new();
    let rendered = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text))
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| match has_commands {
            true => man.render_subcommands_section(&mut text),
            false => Ok(()),
        });
    let name = format!("{name}.{section}");
    rendered.map_err(|error| Failure::failed(&name, Reason::from(error)))?;
    text.extend_from_slice(sections(&after).as_bytes());
    write(directory, &name, &text)
}

/// Turns the text behind the options into roff. A line that starts at the margin and ends with a
/// colon opens a section; paragraphs are filled, deeper lines kept as they are.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    let mut kept = false;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let keep = indent > 2 || starts_row(line);
        if kept && !keep {
            roff.push_str(".fi\n.RE\n");
        }
        match line.strip_suffix(':') {
            _ if line.trim().is_empty() => roff.push_str(if keep { "\n" } else { ".PP\n" }),
            Some(title) if indent == 0 => roff.push_str(&format!(".SH \"{title}\"\n")),
            _ if keep => {
                if !kept {
                    roff.push_str(".RS 2\n.nf\n");
                }
                roff.push_str(&escape(line.strip_prefix("  ").unwrap_or(line)));
            }
            _ => roff.push_str(&escape(line.trim_start())),
        }
        kept = keep;
    }
    if kept {
        roff.push_str(".fi\n.RE\n");
    }
    roff
}

/// Returns whether a line is a row of a table of exit statuses: `  16  Wrong usage.`
fn starts_row(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_digit())
        && line.starts_with("  ")
        && line[2 + word.len()..].starts_with("  ")
}

/// Escapes a line of text for roff.
fn escape(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}\n"),
        false => format!("{escaped}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_roff() {
        let text = concat!(
            "NOTES:\n  One\n  two.\n\n  Three.\n\n",
            "EXIT STATUS:\n  0   Good.\n  16  Bad\n      still.\n\n",
            "EXAMPLES:\n  So:\n    shoal -x\n    .dot\n"
        );
        let expected = ".SH \"NOTES\"\nOne\ntwo.\n.PP\nThree.\n.PP\n.SH \"EXIT STATUS\"\n\
                        .RS 2\n.nf\n0   Good.\n16  Bad\n    still.\n.fi\n.RE\n.PP\n\
                        .SH \"EXAMPLES\"\nSo:\n.RS 2\n.nf\n  shoal \\-x\n  .dot\n.fi\n.RE\n";
        assert_eq!(sections(text), expected);
    }

    #[test]
    fn every_page_has_its_sections() {
        let name = format!("shoal-man-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("make a directory");
        man_pages(&directory).expect("write the pages");
        completions(&directory).expect("write the completions");
        let mount = fs::read_to_string(directory.join("shoal-mount.1")).expect("read");
        for part in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT STATUS\"", "sync(2)", "mount.shoal"] {
            assert!(mount.contains(part), "shoal-mount.1 lacks {part}");
        }
        for file in [
            "shoal.1",
            "shoal-fsck.1",
            "shoal-subvolume.1",
            "shoal-subvolume-create.1",
            "mount.shoal.8",
            "umount.shoal.8",
            "shoal.bash",
            "_shoal",
        ] {
            assert!(directory.join(file).exists(), "{file} is missing");
        }
        fs::remove_dir_all(&directory).expect("remove the directory");
    }
}
