//! The modules of a crate and the modules that they use, from tokens. Resolves a name to the file that defines it, also
//! through `use` and `pub use`. The rule is in `circles.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{File, Token};

/// The modules of one crate that are files, by path: `["block", "queue"]`; the root has the empty path.
#[derive(Debug)]
pub(super) struct Modules<'a> {
    by_path: BTreeMap<Vec<String>, Module<'a>>,
}

/// The names in one file, without items under `#[cfg(test)]`.
#[derive(Debug)]
struct Module<'a> {
    file: &'a File,
    /// The paths of `use` declarations, by their name in this module.
    imports: BTreeMap<String, Mention>,
    globs: Vec<Mention>,
    /// The names of items.
    items: BTreeSet<String>,
    mentions: Vec<Mention>,
}

/// A path as written in the code.
#[derive(Debug, Clone)]
struct Mention {
    segments: Vec<String>,
    /// The module that contains the path: the module of the file, or an inline module.
    scope: Vec<String>,
    line: usize,
    is_reexport: bool,
}

/// One use of a module by another.
#[derive(Debug, Clone)]
pub(super) struct Use<'a> {
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
    pub(super) file: &'a File,
    pub(super) line: usize,
    /// Whether it is a `pub use`, which re-exports an item and does not use it.
    pub(super) is_reexport: bool,
}

/// The maximum length of a chain of imports: a limit for code that does not compile.
const FOLLOW_MAX: usize = 16;

impl<'a> Modules<'a> {
    /// The modules below `src` (with a `/` at the end), without files of tests.
    pub(super) fn read(files: impl Iterator<Item = &'a File>, src: &str) -> Self {
        let mut by_path = BTreeMap::new();
        let mut tests = Vec::new();
        for file in files {
            let Some(path) = file.path.strip_prefix(src).and_then(module_path) else { continue };
            let mut reader = Reader { tokens: &file.tokens, scope: path.clone(), tests: Vec::new() };
            by_path.insert(path, reader.module(file));
            tests.append(&mut reader.tests);
        }
        by_path.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Self { by_path }
    }

    /// Every use of one module by another, in the order of files and lines.
    pub(super) fn uses(&self) -> Vec<Use<'a>> {
        let mut uses = Vec::new();
        for (path, module) in &self.by_path {
            for mention in &module.mentions {
                if let Some(to) = self.resolve(mention, FOLLOW_MAX).filter(|to| to != path) {
                    let Mention { line, is_reexport, .. } = *mention;
                    uses.push(Use { from: path.clone(), to, file: module.file, line, is_reexport });
                }
            }
        }
        uses
    }

    /// The path of the module that defines the item of `mention`; `None` for an item of another crate.
    fn resolve(&self, mention: &Mention, follow: usize) -> Option<Vec<String>> {
        let Mention { segments, scope, .. } = mention;
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => self.walk(Vec::new(), rest, follow),
            "self" => self.walk(scope.clone(), rest, follow),
            "super" => {
                let supers = segments.iter().take_while(|segment| *segment == "super").count();
                let above = scope.len().checked_sub(supers)?;
                self.walk(scope[..above].to_vec(), &segments[supers..], follow)
            }
            _ => {
                let is_child = self.by_path.contains_key(&joined(scope, first));
                let is_import = self.file_of(scope).1.imports.contains_key(first);
                (is_child || is_import).then(|| self.walk(scope.clone(), segments, follow))?
            }
        }
    }

    /// Follows `rest` from the module at `path`.
    fn walk(&self, mut path: Vec<String>, rest: &[String], follow: usize) -> Option<Vec<String>> {
        for (at, segment) in rest.iter().enumerate() {
            let child = joined(&path, segment);
            if self.by_path.contains_key(&child) {
                path = child;
                continue;
            }
            return self.item(&path, &rest[at..], follow);
        }
        Some(self.file_of(&path).0.to_vec())
    }

    /// The module that defines `rest[0]`, an item or import of the module at `path`.
    fn item(&self, path: &[String], rest: &[String], follow: usize) -> Option<Vec<String>> {
        let (file_path, module) = self.file_of(path);
        let follow = follow.checked_sub(1)?;
        if let Some(import) = module.imports.get(&rest[0]) {
            let mut onward = import.clone();
            onward.segments.extend_from_slice(&rest[1..]);
            // A re-export of another crate's item counts as an item of this module.
            return self.resolve(&onward, follow).or_else(|| Some(file_path.to_vec()));
        }
        if !module.items.contains(&rest[0]) {
            for glob in &module.globs {
                let Some(target) = self.resolve(glob, follow) else { continue };
                let Module { items, imports, .. } = &self.by_path[&target];
                if target != file_path && (items.contains(&rest[0]) || imports.contains_key(&rest[0])) {
                    return self.walk(target, rest, follow);
                }
            }
        }
        Some(file_path.to_vec())
    }

    /// The file with the module at `path`: its own file, or the file around an inline module.
    fn file_of<'p>(&self, path: &'p [String]) -> (&'p [String], &Module<'a>) {
        let lengths = (0..=path.len()).rev();
        let mut files =
            lengths.filter_map(|length| Some((&path[..length], self.by_path.get(&path[..length])?)));
        files.next().expect("every module lies below the root")
    }
}

/// `block/queue.rs` is the module `block::queue`; `lib.rs` and `main.rs` are the root. Other programs are not modules.
fn module_path(file: &str) -> Option<Vec<String>> {
    let stem = file.strip_suffix(".rs").filter(|stem| !stem.starts_with("bin/"))?;
    if matches!(stem, "lib" | "main") {
        return Some(Vec::new());
    }
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    Some(stem.split('/').map(str::to_owned).collect())
}

fn joined(path: &[String], segment: &str) -> Vec<String> {
    path.iter().cloned().chain([segment.to_owned()]).collect()
}

/// Reads the tokens of one file.
struct Reader<'a> {
    tokens: &'a [Token],
    /// The module of the current token.
    scope: Vec<String>,
    /// Modules with their own file that are compiled for tests only.
    tests: Vec<Vec<String>>,
}

impl Reader<'_> {
    fn module<'f>(&mut self, file: &'f File) -> Module<'f> {
        let mut module = Module {
            file,
            imports: BTreeMap::new(),
            globs: Vec::new(),
            items: BTreeSet::new(),
            mentions: Vec::new(),
        };
        let mut at = 0;
        let mut depth = 0_usize;
        // For each inline module around `at`, the depth at which it ends.
        let mut inline = Vec::new();
        while at < self.tokens.len() {
            if let Some(end) = self.test_item(at) {
                at = end;
                continue;
            }
            match self.text(at) {
                "use" if self.text(at.wrapping_sub(1)) != "+" && self.text(at + 1) != "<" => {
                    at = self.use_item(at, &mut module);
                    continue;
                }
                "mod" if self.text(at + 2) == "{" => {
                    self.scope.push(self.text(at + 1).to_owned());
                    inline.push(depth);
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => {
                    depth -= 1;
                    if inline.pop_if(|end| *end == depth).is_some() {
                        self.scope.pop();
                    }
                }
                _ => {}
            }
            if depth == 0 {
                module.items.extend(self.defined(at));
            }
            module.mentions.extend(self.mention(at));
            at += 1;
        }
        module
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn is_path_separator(&self, at: usize) -> bool {
        self.text(at) == ":" && self.text(at + 1) == ":"
    }

    /// If `at` is `#[cfg(test)]`, the end of the item, field or variant that it applies to.
    fn test_item(&mut self, at: usize) -> Option<usize> {
        let texts = ["#", "[", "cfg", "("];
        let is_cfg = texts.iter().zip(at..).all(|(text, at)| self.text(at) == *text);
        let condition = at + texts.len();
        let is_test = self.text(condition) == "test"
            || (self.text(condition) == "all" && self.text(condition + 2) == "test");
        if !is_cfg || !is_test {
            return None;
        }
        let items =
            ["fn", "struct", "enum", "union", "trait", "impl", "const", "static", "type", "mod", "use"];
        let mut depth = 0_usize;
        let mut end = at;
        let mut is_item = false;
        let mut has_ended = false;
        while end < self.tokens.len() && !has_ended {
            match self.text(end) {
                "mod" if depth == 0 && self.text(end + 2) == ";" => {
                    self.tests.push(joined(&self.scope, self.text(end + 1)));
                }
                "{" | "(" | "[" => depth += 1,
                // The end of the item around a field or variant.
                "}" | ")" | "]" if depth == 0 => break,
                "}" => {
                    depth -= 1;
                    has_ended = depth == 0;
                }
                ")" | "]" => depth -= 1,
                ";" => has_ended = depth == 0,
                "," => has_ended = depth == 0 && !is_item,
                word => is_item |= depth == 0 && items.contains(&word),
            }
            end += 1;
        }
        Some(end)
    }

    /// Reads the `use` at `at`; returns its end.
    fn use_item(&self, at: usize, module: &mut Module<'_>) -> usize {
        let is_reexport = matches!(self.text(at.wrapping_sub(1)), "pub" | ")");
        let mut tree = UseTree { reader: self, at: at + 1, is_reexport, module };
        tree.read(&[]);
        tree.at
    }

    /// The name of the item defined at `at`.
    fn defined(&self, at: usize) -> Option<String> {
        let keywords = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
        let name = self.text(at + 1);
        let is_name = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
        (keywords.contains(&self.text(at)) && is_name).then(|| name.to_owned())
    }

    /// The path that starts at `at`.
    fn mention(&self, at: usize) -> Option<Mention> {
        let is_start = at < 2 || !self.is_path_separator(at - 2);
        let is_visibility = self.text(at.wrapping_sub(1)) == "in" && self.text(at.wrapping_sub(2)) == "(";
        if !is_start || is_visibility || !self.is_path_separator(at + 1) {
            return None;
        }
        let mut segments = vec![self.text(at).to_owned()];
        let mut next = at + 1;
        while self.is_path_separator(next) && self.text(next + 2) != "<" {
            segments.push(self.text(next + 2).to_owned());
            next += 3;
        }
        let line = self.tokens[at].line;
        Some(Mention { segments, scope: self.scope.clone(), line, is_reexport: false })
    }
}

/// Reads a tree of `use`: `a::{b, c as d, e::*};`
struct UseTree<'a, 'm, 'f> {
    reader: &'a Reader<'a>,
    at: usize,
    is_reexport: bool,
    module: &'m mut Module<'f>,
}

impl UseTree<'_, '_, '_> {
    /// Reads one branch below `prefix`, up to the `,`, `}` or `;` after it.
    fn read(&mut self, prefix: &[String]) {
        let mut segments = prefix.to_vec();
        let mut line = 0;
        let mut name = None;
        while self.at < self.reader.tokens.len() {
            let token = &self.reader.tokens[self.at];
            self.at += 1;
            match token.text.as_str() {
                ":" => {}
                "{" => {
                    while !matches!(self.reader.text(self.at), "}" | "") {
                        self.read(&segments);
                    }
                    self.at += 1;
                    line = 0;
                }
                "as" => name = Some(self.reader.text(self.at).to_owned()),
                "," | ";" => break,
                _ if name.is_some() => {}
                segment => {
                    line = token.line;
                    segments.push(segment.to_owned());
                }
            }
            if self.reader.text(self.at) == "}" {
                break;
            }
        }
        if line > 0 {
            self.add(segments, name, line);
        }
    }

    fn add(&mut self, mut segments: Vec<String>, name: Option<String>, line: usize) {
        let last = segments.pop().unwrap_or_default();
        let is_glob = last == "*";
        if !is_glob && (last != "self" || segments.is_empty()) {
            segments.push(last);
        }
        let scope = self.reader.scope.clone();
        let mention = Mention { segments, scope, line, is_reexport: self.is_reexport };
        self.module.mentions.push(mention.clone());
        if is_glob {
            self.module.globs.push(mention);
        } else {
            let name = name.or_else(|| mention.segments.last().cloned()).unwrap_or_default();
            self.module.imports.insert(name, mention);
        }
    }
}
