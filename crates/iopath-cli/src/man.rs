//! `iopath man`: one manual page of all commands.

use crate::args::Cli;
use crate::output;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io;

pub(crate) fn write() -> anyhow::Result<()> {
    output::print(&page()?)
}

/// The page in roff: a section for each command, with its options.
fn page() -> anyhow::Result<String> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut page = String::from_utf8(page)?;
    for subcommand in command.get_subcommands() {
        page += &section(subcommand)?;
    }
    let mut version = Vec::new();
    man.render_version_section(&mut version)?;
    Ok(page + &String::from_utf8(version)?)
}

/// The section of a command. The sections of its own page become subsections.
fn section(command: &Command) -> anyhow::Result<String> {
    let man = Man::new(command.clone());
    let mut body = Vec::new();
    let mut render = |part: fn(&Man, &mut dyn io::Write) -> io::Result<()>| part(&man, &mut body);
    render(Man::render_description_section)?;
    render(Man::render_synopsis_section)?;
    if command.get_arguments().next().is_some() {
        render(Man::render_options_section)?;
    }
    let body = String::from_utf8(body)?;
    let body = body.replace(".SH ", ".SS ");
    let name = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
    let nested: Result<Vec<String>, _> = command.get_subcommands().map(section).collect();
    Ok(format!(".SH {}\n{body}{}", name.to_uppercase(), nested?.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_every_command_is_on_the_page() {
        let page = page().unwrap().replace("\\-", "-");
        for command in Cli::command().get_subcommands() {
            assert!(page.contains(&format!(".SH IOPATH {}", command.get_name().to_uppercase())), "{page}");
            for long in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{long}")), "{long} of {}", command.get_name());
            }
        }
    }
}
