//! Numbers for devices that a trace names by text, and names of numbered processes.

use std::collections::HashMap;

/// The maximum number of names; further ones share the last number.
const NAMES_MAX: usize = 1 << 16;

/// The longest name that is kept.
const NAME_BYTES_MAX: usize = 256;

/// The names so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Vec<u8>, u32>,
    texts: Vec<String>,
    /// The name before, with its number.
    last: Option<(Vec<u8>, u32)>,
}

impl Names {
    /// The number of a name.
    pub(super) fn number(&mut self, name: &[u8]) -> u32 {
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        if let Some((last, number)) = &self.last
            && last == name
        {
            return *number;
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.texts.len() >= NAMES_MAX => NAMES_MAX as u32 - 1,
            None => {
                let number = self.texts.len() as u32;
                self.numbers.insert(name.to_vec(), number);
                self.texts.push(String::from_utf8_lossy(name).into_owned());
                number
            }
        };
        self.last = Some((name.to_vec(), number));
        number
    }

    /// The name with this number.
    pub(super) fn name(&self, number: u32) -> Option<String> {
        self.texts.get(number as usize).cloned()
    }
}

/// The command of each process, as it was first named.
#[derive(Debug, Default)]
pub(super) struct Commands {
    commands: HashMap<u32, String>,
    last: Option<u32>,
}

impl Commands {
    /// A process has this command.
    pub(super) fn note(&mut self, process: u32, command: &[u8]) {
        if self.last != Some(process) && self.commands.len() < NAMES_MAX {
            self.last = Some(process);
            let command = &command[..command.len().min(NAME_BYTES_MAX)];
            self.commands.entry(process).or_insert_with(|| String::from_utf8_lossy(command).into_owned());
        }
    }

    pub(super) fn name(&self, process: u32) -> Option<String> {
        self.commands.get(&process).cloned()
    }
}
