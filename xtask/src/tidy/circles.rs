//! Circular dependencies between the files of one crate. `modules.rs` resolves a name to a file; dependencies between
//! crates are in `edges.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write as _};

use super::Finding;
use super::modules::{Modules, Use};
use super::tree::{File, Package, Tree};

/// Sibling modules that use each other, directly or through other modules.
#[derive(Debug)]
pub(super) struct Circle {
    krate: String,
    /// The paths of the members in the crate.
    members: BTreeSet<String>,
    /// The first use for each ordered pair of members.
    uses: Vec<Site>,
    /// A shortest circle through the first member.
    shortest: Vec<Site>,
}

/// The position of a use of one member by another.
#[derive(Debug, Clone)]
struct Site {
    from: String,
    to: String,
    path: String,
    line: usize,
}

/// No circle of `use` between the files of a crate.
///
/// Sibling modules (children of one parent) must have an order in which each module uses only earlier ones. A module
/// includes all files below it: if a file of `block/` uses a file of `file/`, and a file of `file/` uses a file of
/// `block/`, then `block` and `file` are a circle. A name counts as a use of the file that defines it, even if another
/// module re-exports it.
///
/// A parent and its children may use each other: `queue.rs` defines a type, and `queue/merge.rs` has methods of it.
/// Therefore a use between a file and a file below it is not an edge; neither are `mod` and `pub use` in a parent. The
/// root is the parent of every file, so it is an exception: items and uses of `lib.rs` or `main.rs` count like those of
/// a sibling of the other modules. Code under `#[cfg(test)]` is exempt.
pub(super) fn no_circles(tree: &Tree) -> Vec<Finding> {
    circles(tree).iter().map(Circle::finding).collect()
}

/// The circles of every crate of the workspace.
pub(super) fn circles(tree: &Tree) -> Vec<Circle> {
    tree.packages.iter().flat_map(|package| circles_of(package, &tree.files)).collect()
}

/// Lists every circle with its uses, and the number of circles in each crate.
pub(super) fn report(tree: &Tree) -> String {
    let circles = circles(tree);
    let mut text = String::new();
    for circle in &circles {
        let _ = writeln!(text, "{circle}");
    }
    for Package { name, .. } in &tree.packages {
        let count = circles.iter().filter(|circle| circle.krate == *name).count();
        let _ = writeln!(text, "{name}: {count} circles");
    }
    text
}

fn circles_of(package: &Package, files: &[File]) -> Vec<Circle> {
    let src = package.manifest.strip_suffix("Cargo.toml").unwrap_or_default().to_owned() + "src/";
    let files = files.iter().filter(|file| file.is_rust() && file.path.starts_with(&src));
    // One graph for each level of the module tree; the key is the path of the parent.
    let mut levels = BTreeMap::<Vec<String>, Graph>::new();
    for used in Modules::read(files, &src).uses() {
        if let Some((level, site)) = edge(&used) {
            levels.entry(level).or_default().add(site);
        }
    }
    levels.values().flat_map(|level| level.circles(&package.name)).collect()
}

/// The level at which a use connects two siblings, and the position of the use.
fn edge(used: &Use<'_>) -> Option<(Vec<String>, Site)> {
    let Use { from, to, file, line, .. } = used;
    let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let is_of_root = from.is_empty() || to.is_empty();
    let is_parent = shared == from.len() || shared == to.len();
    if (is_parent && !is_of_root) || (is_of_root && used.is_reexport) {
        return None;
    }
    let name =
        |path: &[String]| if path.is_empty() { "the root".to_owned() } else { path[..=shared].join("::") };
    let site = Site { from: name(from), to: name(to), path: file.path.clone(), line: *line };
    Some((from[..shared].to_vec(), site))
}

/// The modules of one level, with the first position of each use.
#[derive(Debug, Default)]
struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Site>>,
}

impl Graph {
    fn add(&mut self, site: Site) {
        self.edges.entry(site.from.clone()).or_default().entry(site.to.clone()).or_insert(site);
    }

    /// The sets of modules that can reach each other.
    fn circles(&self, krate: &str) -> Vec<Circle> {
        let reach: BTreeMap<_, _> = self.edges.keys().map(|from| (from, self.reachable(from))).collect();
        let reaches = |from: &String, to: &String| reach.get(from).is_some_and(|all| all.contains(to));
        let mut circles = Vec::<Circle>::new();
        for module in self.edges.keys().filter(|module| reaches(module, module)) {
            if circles.iter().any(|circle| circle.members.contains(module)) {
                continue;
            }
            let back = |other: &&String| reaches(module, other) && reaches(other, module);
            let members: BTreeSet<_> = self.edges.keys().filter(back).cloned().collect();
            let inside = |site: &&Site| members.contains(&site.from) && members.contains(&site.to);
            let uses = self.edges.values().flat_map(BTreeMap::values).filter(inside).cloned().collect();
            circles.push(Circle { krate: krate.to_owned(), shortest: self.shortest(module), members, uses });
        }
        circles
    }

    fn uses(&self, from: &str) -> impl Iterator<Item = &Site> {
        self.edges.get(from).into_iter().flat_map(BTreeMap::values)
    }

    fn reachable(&self, from: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(module) = open.pop() {
            for site in self.uses(&module) {
                if reached.insert(site.to.clone()) {
                    open.push(site.to.clone());
                }
            }
        }
        reached
    }

    /// The shortest circle through `module`, which must be part of a circle. Breadth-first search.
    fn shortest(&self, module: &str) -> Vec<Site> {
        let mut paths = VecDeque::from([Vec::<Site>::new()]);
        let mut seen = BTreeSet::new();
        while let Some(path) = paths.pop_front() {
            let end = path.last().map_or(module, |site| &site.to);
            for site in self.uses(end) {
                let longer = || path.iter().chain([site]).cloned().collect();
                if site.to == module {
                    return longer();
                }
                if seen.insert(&site.to) {
                    paths.push_back(longer());
                }
            }
        }
        Vec::new()
    }
}

impl Circle {
    fn finding(&self) -> Finding {
        let first = &self.shortest[0];
        let mut message = format!("a circle of modules: {}", first.from);
        for Site { to, path, line, .. } in &self.shortest {
            let _ = write!(message, " → {to} ({path}:{line})");
        }
        let way_out = "move the shared items to a separate file; `cargo xtask tidy --circles` lists all uses";
        Finding { path: first.path.clone(), line: first.line, message, way_out }
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        writeln!(f, "{}: {} modules use each other: {members}", self.krate, self.members.len())?;
        for Site { from, to, path, line } in &self.uses {
            writeln!(f, "  {from} → {to} ({path}:{line})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of each circle in a crate of these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| {
            File::new(format!("a/src/{path}"), (*text).to_owned()).expect("the sample is Rust")
        };
        let manifest = "a/Cargo.toml".to_owned();
        let package = Package { name: "a".to_owned(), manifest, dependencies: Vec::new() };
        let tree = Tree { files: files.iter().map(file).collect(), packages: vec![package] };
        circles(&tree).iter().map(|circle| circle.finding().message).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let files = [("lib.rs", ""), ("x.rs", "use crate::y::Y;"), ("y.rs", "\nfn f(x: crate::x::X) {}")];
        assert_eq!(found(&files), ["a circle of modules: x → y (a/src/x.rs:1) → x (a/src/y.rs:2)"]);
        assert_eq!(found(&files[..2]), NOTHING);
    }

    #[test]
    fn a_circle_of_three_is_one_circle() {
        let files = [
            ("lib.rs", ""),
            ("x.rs", "use super::y;"),
            ("y.rs", "use crate::{z::{self, Z as W}};"),
            ("z.rs", "use std::fmt; use crate::x::*;"),
        ];
        let circle = "a circle of modules: x → y (a/src/x.rs:1) → z (a/src/y.rs:1) → x (a/src/z.rs:1)";
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn a_folder_counts_as_one_module() {
        let files = [
            ("lib.rs", ""),
            ("block.rs", "mod bio; mod queue;"),
            ("block/bio.rs", "use crate::file::Page;"),
            ("block/queue.rs", "use super::bio::Bio;"),
            ("file.rs", "pub struct Page; use crate::block::queue::Queue;"),
        ];
        let circle = "a circle of modules: block → file (a/src/block/bio.rs:1) → block (a/src/file.rs:1)";
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn a_parent_and_its_children_may_use_each_other_and_siblings_may_not() {
        let parent = "mod merge; mod plug; use plug::Plug; pub struct Queue(Plug);";
        let mut files = vec![
            ("lib.rs", ""),
            ("queue.rs", parent),
            ("queue/merge.rs", "use super::Queue; use super::plug::Side;"),
            ("queue/plug.rs", "use super::Queue;"),
        ];
        assert_eq!(found(&files), NOTHING);
        files[3].1 = "use super::merge::Merge;";
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn a_reexport_is_resolved_to_the_file_that_defines_the_item() {
        let mut files = vec![
            ("lib.rs", "mod x; mod y; mod z; pub use x::X; pub use z::*; pub use y::inner::Deep as D;"),
            ("x.rs", "use crate::Z;"),
            ("y.rs", "pub mod inner;"),
            ("y/inner.rs", "pub struct Deep;"),
            ("z.rs", "pub struct Z; use crate::D;"),
        ];
        assert_eq!(found(&files), NOTHING);
        files[3].1 = "pub struct Deep; use crate::X;";
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn the_root_counts_as_a_sibling_of_the_other_modules() {
        let mut files = vec![("lib.rs", "pub struct A;"), ("x.rs", "use crate::A;")];
        assert_eq!(found(&files), NOTHING);
        files[0].1 = "mod x; fn f() { x::g() } pub struct A;";
        let circle = "a circle of modules: the root → x (a/src/lib.rs:1) → the root (a/src/x.rs:1)";
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn tests_visibility_and_captures_are_not_uses() {
        let files = [
            ("lib.rs", "mod x; mod y;"),
            ("x.rs", "use crate::y::Y; #[cfg(test)] mod tests; pub(in crate::y) fn f() {}"),
            ("x/tests.rs", "use crate::y::Y;"),
            ("y.rs", "#[cfg(test)] mod tests { use crate::x::X; } fn f<'a>() -> impl Sized + use<'a> {}"),
            (
                "z.rs",
                "use crate::y::Y; enum E { A, #[cfg(test)] B(crate::x::X) } #[cfg(test)] fn f<A, B>() {}",
            ),
        ];
        assert_eq!(found(&files), NOTHING);
    }

    #[test]
    fn uses_of_this_workspace_are_found() {
        let tree = Tree::read(crate::workspace::root()).expect("the workspace can be read");
        let src = "crates/iopath-core/src/";
        let uses = Modules::read(tree.rust_files().filter(|file| file.path.starts_with(src)), src).uses();
        let from_queue = |to: &str| {
            uses.iter().any(|used| used.from.join("::") == "block::queue" && used.to.join("::") == to)
        };
        assert!(from_queue("block::bio") && from_queue("block::queue::plug") && !from_queue("file"));
    }
}
