//! `iopath man`: the manual page of each command, and of the program. The prose is in `man/verbs.rs`, the examples are
//! those of `iopath help TASK`.

mod verbs;

use crate::args::{Cli, ManArgs};
use crate::output;
use crate::tasks::TASKS;
use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use iopath_bench::own_file::replace_named;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use verbs::Verb;

/// Exit codes of every command.
const CODES: [(&str, &str); 3] = [
    ("0", "success"),
    ("1", "a failure: the line on stderr names the object, the value and the remedy"),
    ("2", "invalid arguments"),
];

/// Environment variables of every command.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("COLUMNS", "the width of tables and text; default: that of the terminal, or 80"),
    ("NO_COLOR", "if it is set and not empty, no colours and no progress bars"),
    ("TMPDIR", "the directory of temporary files"),
];

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let program = program();
    if let Some(directory) = &args.output {
        return write_all(&program, directory);
    }
    match args.command.as_deref() {
        None | Some("iopath") => output::print(&program_page(&program)?),
        Some(name) => {
            let command = program.find_subcommand(name).ok_or_else(|| unknown(&program, name))?;
            output::print(&page(command)?)
        }
    }
}

/// The program with complete names of its commands.
fn program() -> Command {
    let mut program = Cli::command();
    program.build();
    program
}

fn unknown(program: &Command, name: &str) -> clap::Error {
    let known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
    let message = format!("there is no command `{name}`; commands: {}", known.join(", "));
    clap::Error::raw(ErrorKind::InvalidSubcommand, message)
}

/// Writes all pages to a directory, which it creates if necessary.
fn write_all(program: &Command, directory: &Path) -> anyhow::Result<()> {
    let cannot = |path: &Path| format!("cannot write manual pages to {}", path.display());
    fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    let mut pages = vec![("iopath.1".to_owned(), program_page(program)?)];
    for command in program.get_subcommands() {
        pages.push((format!("iopath-{}.1", command.get_name()), page(command)?));
    }
    let mut names = String::new();
    for (name, page) in pages {
        let file = directory.join(name);
        replace_named(&file, page.as_bytes()).with_context(|| cannot(&file))?;
        let _ = writeln!(names, "{}", file.display());
    }
    output::print(&names)
}

/// The page of the program: its commands, tasks, exit codes and variables.
fn program_page(program: &Command) -> anyhow::Result<String> {
    let man = Man::new(program.clone()).manual("iopath manual");
    let mut page =
        rendered(&man, &[Man::render_title, Man::render_name_section, Man::render_synopsis_section])?;
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "iopath is a block I/O path in user space, and a benchmark lab for any I/O path. Each command has a page of its own, \
         and iopath help TASK answers a question with examples.",
    )]);
    roff.control("SH", ["COMMANDS"]);
    let name_of = |command: &Command| format!("iopath {}", command.get_name());
    let commands = program.get_subcommands().map(|command| (name_of(command), about(command)));
    list(&mut roff, commands);
    roff.control("SH", ["TASKS"]);
    let tasks =
        TASKS.iter().map(|task| (format!("iopath help {}", task.name), format!("{}?", task.question)));
    list(&mut roff, tasks);
    page += &roff.to_roff();
    page += &rendered(&man, &[Man::render_options_section])?;
    let see = program.get_subcommands().map(|command| format!("iopath-{}(1)", command.get_name()));
    Ok(page
        + &ending(&codes_of_commands(), &see.collect::<Vec<_>>().join(", "))
        + &rendered(&man, &[Man::render_version_section])?)
}

/// The exit codes that some commands have besides those of all, each once, with the commands.
fn codes_of_commands() -> Vec<(&'static str, String)> {
    let mut codes: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for verb in verbs::VERBS {
        for (code, text) in verb.codes {
            match codes.iter_mut().find(|known| (known.0, known.1) == (*code, *text)) {
                Some((.., names)) => names.push(verb.name),
                None => codes.push((code, text, vec![verb.name])),
            }
        }
    }
    codes.into_iter().map(|(code, text, names)| (code, format!("{}: {text}", names.join(", ")))).collect()
}

/// The page of a command, with the options of its own commands.
fn page(command: &Command) -> anyhow::Result<String> {
    let verb = Verb::find(command.get_name()).context("each command has prose for its page")?;
    let title = format!("iopath-{}", verb.name);
    let man = Man::new(command.clone()).title(title).manual("iopath manual");
    let mut page =
        rendered(&man, &[Man::render_title, Man::render_name_section, Man::render_synopsis_section])?;
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    for (index, text) in verb.text.iter().enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*text)]);
    }
    page += &roff.to_roff();
    page += &rendered(&man, &[Man::render_options_section])?;
    for nested in command.get_subcommands() {
        page += &section(nested)?;
    }
    page += &examples(verb.name);
    Ok(page + &ending(verb.codes, &format!("iopath(1), {}", verb.docs)))
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

type Render = fn(&Man, &mut dyn io::Write) -> io::Result<()>;

fn rendered(man: &Man, parts: &[Render]) -> anyhow::Result<String> {
    let mut page = Vec::new();
    for part in parts {
        part(man, &mut page)?;
    }
    Ok(String::from_utf8(page)?)
}

/// The section of a command within another. The sections of its own page become subsections.
fn section(command: &Command) -> anyhow::Result<String> {
    let man = Man::new(command.clone());
    let parts: &[Render] =
        &[Man::render_description_section, Man::render_synopsis_section, Man::render_options_section];
    let name = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
    Ok(format!(".SH {}\n{}", name.to_uppercase(), rendered(&man, parts)?.replace(".SH ", ".SS ")))
}

/// The examples of all tasks that use a command.
fn examples(verb: &str) -> String {
    let start = format!("iopath {verb}");
    let is_of = |command: &str| command == start || command.starts_with(&format!("{start} "));
    let all = TASKS.iter().flat_map(|task| task.examples).filter(|example| is_of(example.command));
    let mut roff = Roff::new();
    for (index, example) in all.enumerate() {
        if index == 0 {
            roff.control("SH", ["EXAMPLES"]);
        }
        roff.control("TP", []);
        roff.text([roman(format!("{}:", example.purpose))]);
        roff.text([bold(example.command)]);
    }
    roff.to_roff()
}

/// The sections at the end of each page.
fn ending<T: AsRef<str>>(codes: &[(&str, T)], see_also: &str) -> String {
    let mut roff = Roff::new();
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    roff.control("SH", ["EXIT STATUS"]);
    let further = codes.iter().map(|(code, text)| ((*code).to_owned(), text.as_ref().to_owned()));
    list(&mut roff, CODES.iter().map(owned).chain(further));
    roff.control("SH", ["ENVIRONMENT"]);
    list(&mut roff, ENVIRONMENT.iter().map(owned));
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see_also)]);
    roff.to_roff()
}

fn list(roff: &mut Roff, rows: impl Iterator<Item = (String, String)>) {
    for (name, text) in rows {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(text)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(page: &str) -> String {
        page.replace("\\-", "-")
    }

    #[test]
    fn each_command_has_a_whole_page_with_every_option() {
        let program = program();
        for command in program.get_subcommands() {
            let name = command.get_name();
            let page = plain(&page(command).unwrap_or_else(|error| panic!("{name}: {error}")));
            for part in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"]
            {
                assert!(
                    page.contains(&format!(".SH {part}")) || page.contains(&format!(".SH \"{part}\"")),
                    "{name}: {part}\n{page}"
                );
            }
            let nested = command.get_subcommands().flat_map(Command::get_arguments);
            for long in command.get_arguments().chain(nested).filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{long}")), "{long} of {name}");
            }
        }
        for verb in verbs::VERBS {
            assert!(program.find_subcommand(verb.name).is_some(), "{} is no command", verb.name);
        }
    }

    #[test]
    fn the_page_of_the_program_names_all_commands_and_tasks() {
        let program = program();
        let page = plain(&program_page(&program).unwrap());
        for command in program.get_subcommands() {
            assert!(page.contains(&format!("iopath-{}(1)", command.get_name())), "{}", command.get_name());
        }
        for text in ["compare: B is significantly worse than A", "compare: with --strict"] {
            assert!(page.contains(text), "{text}");
        }
        for task in TASKS {
            assert!(page.contains(&format!("iopath help {}", task.name)), "{}", task.name);
        }
    }

    #[test]
    fn a_page_has_the_examples_of_its_command_only() {
        let page = plain(&examples("log"));
        assert!(page.contains("iopath log run.log") && !page.contains("iopath run"), "{page}");
        assert_eq!(examples("completions"), "");
    }
}
