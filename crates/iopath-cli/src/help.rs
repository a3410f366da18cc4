//! `iopath help`: help for a command, or for a task with examples. The tasks are in `tasks.rs`.

use crate::args::{Cli, HelpArgs};
use crate::output;
use crate::tasks::{TASKS, Task};
use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use iopath_report::terminal::{terminal_width, wrap};
use std::fmt::Write;

/// The largest width: longer lines are hard to read.
const WIDTH_MAX: usize = 100;

/// Continues a line of a shell.
const CONTINUED: &str = " \\";

pub(crate) fn run(args: &HelpArgs) -> anyhow::Result<()> {
    let width = usize::from(terminal_width()).min(WIDTH_MAX);
    if let [name] = &args.topic[..]
        && let Some(task) = Task::find(name)
    {
        return output::print(&text(task, width));
    }
    let is_command = find(&args.topic).is_some();
    if !is_command {
        return Err(unknown(&args.topic.join(" ")).into());
    }
    let flag = "--help".to_owned();
    let words = std::iter::once("iopath".to_owned()).chain(args.topic.iter().cloned()).chain([flag]);
    // The help of a command is an error for clap, too.
    match Cli::try_parse_from(words) {
        Err(help) if help.kind() == ErrorKind::DisplayHelp => help.print().context("cannot write to stdout"),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// The command with these names, one within the other.
fn find(names: &[String]) -> Option<clap::Command> {
    names.iter().try_fold(Cli::command(), |command, name| command.find_subcommand(name).cloned())
}

fn unknown(topic: &str) -> clap::Error {
    let tasks: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
    let cli = Cli::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let message = format!(
        "there is no help for `{topic}`; tasks: {}; commands: {}",
        tasks.join(", "),
        commands.join(", ")
    );
    clap::Error::raw(ErrorKind::InvalidSubcommand, message)
}

/// The page of a task.
fn text(task: &Task, width: usize) -> String {
    let mut text = wrap(&format!("{}: {}?", task.name, task.question), "", "  ", width);
    let _ = write!(text, "\n{}", wrap(task.text, "", "", width));
    for example in task.examples {
        let _ = write!(text, "\n{}", wrap(&format!("{}:", example.purpose), "  ", "  ", width));
        text.push_str(&command_lines(example.command, width));
    }
    let _ = write!(text, "\n{}", wrap(&format!("More: {}", task.more), "", "  ", width));
    text
}

/// A command in lines of a shell. Only spaces outside of quotes break a line, and no space between an option and its
/// value.
fn command_lines(command: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::from("    "));
    let mut is_begun = false;
    let mut units: Vec<String> = Vec::new();
    for word in words(command) {
        match units.last_mut().filter(|last| last.starts_with('-') && !last.contains(' ')) {
            Some(last) if !word.starts_with('-') => *last = format!("{last} {word}"),
            _ => units.push(word.to_owned()),
        }
    }
    for word in &units {
        let columns = line.chars().count() + 1 + word.chars().count() + CONTINUED.len();
        if is_begun && columns > width {
            lines += &line;
            lines += CONTINUED;
            lines += "\n";
            line = String::from("       ");
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines + &line + "\n"
}

/// The words of a command line, with their quotes.
fn words(command: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let is_end = move |char: char| {
        is_quoted ^= char == '"';
        char == ' ' && !is_quoted
    };
    command.split(is_end).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the words of a command, and of the quoted commands within it.
    fn parse(command: &str) {
        let words: Vec<&str> = words(command).map(|word| word.trim_matches('"')).collect();
        if let Err(error) = Cli::try_parse_from(&words) {
            panic!("{command}: {error}");
        }
        for quoted in words.iter().filter(|word| word.starts_with("iopath ")) {
            parse(quoted);
        }
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        for task in TASKS {
            assert!(!task.examples.is_empty(), "{}", task.name);
            for example in task.examples {
                assert!(example.command.starts_with("iopath "), "{}", example.command);
                parse(example.command);
            }
        }
    }

    #[test]
    fn a_task_has_a_name_of_its_own_that_no_command_has() {
        let cli = Cli::command();
        for task in TASKS {
            assert_eq!(TASKS.iter().filter(|other| other.name == task.name).count(), 1, "{}", task.name);
            assert!(cli.find_subcommand(task.name).is_none() || task.name == "compare", "{}", task.name);
        }
    }

    #[test]
    fn pages_of_tasks_fit_the_width_and_keep_the_words_of_commands() {
        for task in TASKS {
            for width in [60, 80, 100] {
                let page = text(task, width);
                for line in page.lines().filter(|line| line.contains(' ') && !line.contains('"')) {
                    let is_one_word = line.split_whitespace().count() <= 2;
                    assert!(line.chars().count() <= width || is_one_word, "{width}: {line}");
                }
                for example in task.examples {
                    let shown = command_lines(example.command, width).replace(CONTINUED, "");
                    assert!(shown.split_whitespace().eq(example.command.split_whitespace()), "{shown}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_topic_names_tasks_and_commands() {
        let text = unknown("disks").to_string();
        assert!(text.contains("`disks`") && text.contains("slow-disk") && text.contains("survey"), "{text}");
    }
}
