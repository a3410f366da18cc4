//! The lines of a job file: sections, keys with their values, comments, `include`, variables and keywords. Does not
//! know the meaning of any key.

use std::sync::Arc;

use super::environment::Environment;
use super::error::{At, JobFileError};

/// The maximum depth of included files: a file that includes itself ends there.
const INCLUDES_MAX: u32 = 16;

/// A section with its keys, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) at: At,
    pub(super) name: String,
    pub(super) options: Vec<RawOption>,
    /// Whether it is the first of a further file: it begins without defaults, and its first job waits for the jobs
    /// before.
    pub(super) begins_file: bool,
    /// Whether it sets defaults of the sections after it.
    pub(super) is_defaults: bool,
}

impl Section {
    /// The start of the names of sections of defaults. As in fio, the first six letters decide.
    pub(super) const DEFAULTS: &str = "global";
}

/// A key with its value; none for a key alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawOption {
    pub(super) at: At,
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// The sections of a file, with the keys of included files in their places.
///
/// # Errors
/// [`JobFileError`] with the line.
pub(super) fn sections(
    name: &str,
    bytes: &[u8],
    environment: &dyn Environment,
) -> Result<Vec<Section>, JobFileError> {
    let mut reader = Reader { environment, sections: Vec::new(), depth: 0 };
    reader.read(name, bytes)?;
    Ok(reader.sections)
}

struct Reader<'a> {
    environment: &'a dyn Environment,
    sections: Vec<Section>,
    depth: u32,
}

impl Reader<'_> {
    fn read(&mut self, name: &str, bytes: &[u8]) -> Result<(), JobFileError> {
        let file: Arc<str> = name.into();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let at = At { file: file.clone(), line: u32::try_from(number + 1).unwrap_or(u32::MAX) };
            // A comment may have any encoding.
            let Ok(line) = std::str::from_utf8(without_comment(line)) else {
                return Err(syntax(at, "the line is not UTF-8; remove the invalid bytes"));
            };
            self.read_line(at, line.trim())?;
        }
        Ok(())
    }

    fn read_line(&mut self, at: At, line: &str) -> Result<(), JobFileError> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(header) = line.strip_prefix('[') {
            return self.begin_section(at, header);
        }
        if let Some(file) = line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace))
        {
            return self.include(&at, file.trim());
        }
        let Some(section) = self.sections.last_mut() else {
            return Err(syntax(
                at,
                "the key is in no section; add a line such as [global] or [job1] before it",
            ));
        };
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (line, None),
        };
        if key.is_empty() || key.contains(|char: char| char.is_whitespace() || char.is_control()) {
            return Err(syntax(at, "the line is neither a [section] nor KEY or KEY=VALUE"));
        }
        let value = value.map(|value| expand(value, &at, key, self.environment)).transpose()?;
        section.options.push(RawOption { at, key: key.to_owned(), value });
        Ok(())
    }

    fn begin_section(&mut self, at: At, header: &str) -> Result<(), JobFileError> {
        if self.depth > 0 {
            return Err(syntax(
                at,
                "an included file has no sections; move the section to the including file",
            ));
        }
        match header.rsplit_once(']') {
            Some((name, "")) if !name.is_empty() => {
                let (name, is_defaults) = (name.to_owned(), name.starts_with(Section::DEFAULTS));
                let options = Vec::new();
                self.sections.push(Section { at, name, options, begins_file: false, is_defaults });
                Ok(())
            }
            _ => Err(syntax(at, "the section has no name; write [NAME]")),
        }
    }

    fn include(&mut self, at: &At, file: &str) -> Result<(), JobFileError> {
        if self.depth == INCLUDES_MAX {
            let problem = format!("more than {INCLUDES_MAX} nested files; does a file include itself?");
            return Err(JobFileError::Syntax { at: at.clone(), problem });
        }
        let read = self.environment.read(file, &at.file);
        let failed = |source| JobFileError::Include { at: at.clone(), file: file.to_owned(), source };
        let (name, bytes) = read.map_err(failed)?;
        self.depth += 1;
        self.read(&name, &bytes)?;
        self.depth -= 1;
        Ok(())
    }
}

fn syntax(at: At, problem: &str) -> JobFileError {
    JobFileError::Syntax { at, problem: problem.to_owned() }
}

/// The line up to the first `;` or `#`, as in fio, which has no escape for them.
fn without_comment(line: &[u8]) -> &[u8] {
    line.split(|byte| matches!(byte, b';' | b'#')).next().unwrap_or(line)
}

/// Replaces `${NAME}` by environment variables, and then keywords by numbers. An unset variable is empty, as in fio.
fn expand(value: &str, at: &At, key: &str, environment: &dyn Environment) -> Result<String, JobFileError> {
    let (mut expanded, mut rest) = (String::new(), value);
    let mut unset = None;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        expanded.push_str(before);
        match environment.variable(name) {
            Some(variable) => expanded.push_str(&variable),
            None => unset = Some(name),
        }
        rest = after;
    }
    expanded.push_str(rest);
    if let (Some(name), true) = (unset, expanded.trim().is_empty()) {
        let problem = format!("`{key}` is empty: the environment variable {name} is not set; set it");
        return Err(JobFileError::Syntax { at: at.clone(), problem });
    }
    Ok(with_keywords(expanded.trim(), environment))
}

/// Replaces `$pagesize`, `$mb_memory` and `$ncpus`. Other names, such as `$jobname`, stay.
fn with_keywords(value: &str, environment: &dyn Environment) -> String {
    let mut parts = value.split('$');
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(part.len());
        match environment.keyword(&part[..end]) {
            Some(number) => replaced.extend([&number.to_string(), &part[end..]]),
            None => replaced.extend(["$", part]),
        }
    }
    replaced
}

#[cfg(test)]
mod tests;
