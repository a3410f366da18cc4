//! The files and crates of the workspace, read once for all rules. The rules are in `rules.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;

use super::Finding;
use crate::workspace;

/// The input of the rules.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    pub(super) packages: Vec<Package>,
}

/// A text file of the repository.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// The tokens of a Rust file, without comments; empty for other files.
    pub(super) tokens: Vec<Token>,
}

/// An identifier, sign, literal or bracket of Rust code.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
}

/// A crate of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// Relative to the root, with `/`.
    pub(super) manifest: String,
    /// The crates it depends on, including build and dev-dependencies.
    pub(super) dependencies: Vec<String>,
}

impl Tree {
    /// Reads the files below `root` that git tracks, and new ones that it does not ignore.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for path in git_files(root)? {
            let Ok(bytes) = std::fs::read(root.join(&path)) else { continue }; // deleted, not yet committed
            let Ok(text) = String::from_utf8(bytes) else { continue }; // not text
            files.push(File::new(path, text)?);
        }
        Ok(Self { files, packages: packages(root)? })
    }

    /// The Rust files.
    pub(super) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

impl File {
    pub(super) fn new(path: String, text: String) -> Result<Self> {
        let mut file = Self { path, text, tokens: Vec::new() };
        if file.is_rust() {
            let stream: TokenStream = file
                .text
                .parse()
                .map_err(|error| anyhow::anyhow!("{}: not valid Rust: {error}", file.path))?;
            flatten(stream, &mut file.tokens);
        }
        Ok(file)
    }

    pub(super) fn is_rust(&self) -> bool {
        self.has_extension(&["rs"])
    }

    pub(super) fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    }

    /// The lines, numbered from 1.
    pub(super) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.split('\n'))
    }
}

/// A finding for each token of `files` that `matches`.
pub(super) fn words<'a>(
    files: impl Iterator<Item = &'a File>,
    mut matches: impl FnMut(&[Token], usize) -> bool,
    message: &str,
    way_out: &'static str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let at = (0..file.tokens.len()).filter(|&at| matches(&file.tokens, at));
        findings.extend(at.map(|at| Finding {
            path: file.path.clone(),
            line: file.tokens[at].line,
            message: message.to_owned(),
            way_out,
        }));
    }
    findings
}

/// Flattens groups: brackets become tokens, so that a rule processes one sequence.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    use proc_macro2::Delimiter::{Brace, Bracket, Parenthesis};
    for tree in stream {
        let line = tree.span().start().line;
        let mut push = |text: String, line| tokens.push(Token { text, line });
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Parenthesis => ("(", ")"),
                    Brace => ("{", "}"),
                    Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                push(open.to_owned(), line);
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            TokenTree::Ident(ident) => push(ident.to_string(), line),
            TokenTree::Punct(punct) => push(punct.as_char().to_string(), line),
            TokenTree::Literal(literal) => push(literal.to_string(), line),
        }
    }
}

fn git_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot run git, which lists the files to check")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    let output =
        workspace::cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("the output of cargo metadata has no packages")?;
    packages.iter().map(|package| Package::from_metadata(package, root)).collect()
}

impl Package {
    fn from_metadata(package: &Value, root: &Path) -> Result<Self> {
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).context("the output of cargo metadata has no name")
        };
        let manifest = text(&package["manifest_path"])?;
        let manifest = Path::new(&manifest).strip_prefix(root).unwrap_or(Path::new(&manifest));
        let dependencies =
            package["dependencies"].as_array().context("the output of cargo metadata has no dependencies")?;
        Ok(Self {
            name: text(&package["name"])?,
            manifest: manifest.display().to_string(),
            dependencies: dependencies
                .iter()
                .map(|dependency| text(&dependency["name"]))
                .collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(String, usize)> {
        let file = File::new("a.rs".to_owned(), text.to_owned()).expect("it is Rust");
        file.tokens.into_iter().map(|token| (token.text, token.line)).collect()
    }

    #[test]
    fn tokens_have_lines_and_strings_are_one_token() {
        let tokens = tokens("// unsafe\nfn f() {\n  \"unsafe {\"\n}\n");
        let words: Vec<_> = tokens.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(words, ["fn", "f", "(", ")", "{", "\"unsafe {\"", "}"]);
        assert_eq!(tokens[5].1, 3);
        assert_eq!(tokens[6].1, 4);
    }

    #[test]
    fn a_file_that_does_not_parse_is_named() {
        let error = File::new("x/a.rs".to_owned(), "fn (".to_owned()).expect_err("it does not parse");
        assert!(error.to_string().starts_with("x/a.rs: not valid Rust"), "{error}");
    }

    #[test]
    fn reads_this_workspace() {
        let tree = Tree::read(workspace::root()).expect("the workspace can be read");
        assert!(tree.rust_files().any(|file| file.path == "xtask/src/tidy/tree.rs"));
        let xtask = tree.packages.iter().find(|package| package.name == "xtask").expect("xtask is a member");
        assert_eq!(xtask.manifest, "xtask/Cargo.toml");
        assert!(xtask.dependencies.iter().any(|name| name == "anyhow"));
    }
}
