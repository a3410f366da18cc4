//! The dependencies between the crates of the workspace: compares the manifests with the table in ARCHITECTURE.md.
//! deny.toml has the rules for other crates, `circles.rs` those for the modules of a crate.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::{File, Package, Tree};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The row of a crate in the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    may_depend_on: Vec<String>,
}

/// Every dependency between crates of the workspace is in the table, and every crate of the table is in the workspace.
pub(super) fn crate_edges(tree: &Tree) -> Vec<Finding> {
    let Some(architecture) = tree.files.iter().find(|file| file.path == ARCHITECTURE) else {
        return vec![finding(ARCHITECTURE, 1, "missing".to_owned(), "it contains the table of crates")];
    };
    let table = crate_table(architecture);
    if table.is_empty() {
        let message = "no table with the columns `crate` and `depends on (ours)`".to_owned();
        return vec![finding(ARCHITECTURE, 1, message, "tidy reads the allowed edges there")];
    }
    let mut findings: Vec<_> =
        tree.packages.iter().flat_map(|package| forbidden_edges(package, &table, tree)).collect();
    let is_member = |name: &String| tree.packages.iter().any(|package| package.name == *name);
    findings.extend(table.iter().filter(|(name, _)| !is_member(name)).map(|(name, row)| {
        let message = format!("crate `{name}` is in the table but not in the workspace");
        finding(ARCHITECTURE, row.line, message, "remove the row or add the crate")
    }));
    findings
}

fn forbidden_edges(package: &Package, table: &BTreeMap<String, Row>, tree: &Tree) -> Vec<Finding> {
    let Some(row) = table.get(&package.name) else {
        let message = format!("crate `{}` is not in the table of crates", package.name);
        return vec![finding(&package.manifest, 1, message, "add its row to ARCHITECTURE.md")];
    };
    // A crate that names itself selects features for its own tests.
    let is_ours =
        |name: &&String| **name != package.name && tree.packages.iter().any(|package| package.name == **name);
    let forbidden =
        package.dependencies.iter().filter(is_ours).filter(|name| !row.may_depend_on.contains(name));
    forbidden
        .map(|name| {
            let message = format!("`{}` must not depend on `{name}`", package.name);
            let way_out =
                "reverse the dependency, or allow it in the table of ARCHITECTURE.md and give the reason";
            finding(&package.manifest, manifest_line(tree, &package.manifest, name), message, way_out)
        })
        .collect()
}

/// The line of `manifest` that names `dependency`.
fn manifest_line(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| line.split(['=', '.']).next().is_some_and(|key| key.trim() == dependency);
    let file = tree.files.iter().find(|file| file.path == manifest);
    file.and_then(|file| file.numbered_lines().find(|(_, line)| names_it(line)))
        .map_or(1, |(number, _)| number)
}

/// The table with the columns `crate` (first) and `depends on (ours)` (last).
fn crate_table(architecture: &File) -> BTreeMap<String, Row> {
    let is_header = |line: &str| {
        let cells = cells(line);
        cells.first() == Some(&"crate") && cells.last() == Some(&"depends on (ours)")
    };
    let lines = architecture.numbered_lines().skip_while(|(_, line)| !is_header(line)).skip(1);
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    rows.filter_map(|(line, text)| {
        let cells = cells(text);
        let name = names(cells.first()?).pop()?;
        Some((name, Row { line, may_depend_on: names(cells.last()?) }))
    })
    .collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The words in backquotes.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn finding(path: &str, line: usize, message: String, way_out: &'static str) -> Finding {
    Finding { path: path.to_owned(), line, message, way_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Architecture

| crate | what it is | depends on (ours) |
|---|---|---|
| `core` | the path | nothing |
| `os` | Linux | `core` |
| `face` | Volume | `core`, `os` |
";

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn tree(architecture: &str, packages: Vec<Package>) -> Tree {
        let file = |path: &str, text: &str| File::new(path.to_owned(), text.to_owned()).expect("text");
        let manifest = "[dependencies]\nlibc = \"0.2\"\nos = { path = \"../os\" }\n";
        Tree { files: vec![file(ARCHITECTURE, architecture), file("core/Cargo.toml", manifest)], packages }
    }

    fn messages(tree: &Tree) -> Vec<String> {
        crate_edges(tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_in_the_table_and_on_foreign_crates_are_allowed() {
        let packages =
            vec![package("core", &["libc"]), package("os", &["core"]), package("face", &["os", "core"])];
        assert_eq!(messages(&tree(TABLE, packages)), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_that_is_not_in_the_table_is_found_in_its_line() {
        let packages = vec![package("core", &["os"]), package("os", &[]), package("face", &[])];
        let found = messages(&tree(TABLE, packages));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("core/Cargo.toml:3: `core` must not depend on `os` (reverse"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn table_and_workspace_must_have_the_same_crates() {
        let found =
            messages(&tree(TABLE, vec![package("core", &[]), package("os", &[]), package("new", &[])]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("new/Cargo.toml:1: crate `new` is not in the table"), "{}", found[0]);
        assert!(
            found[1].starts_with("ARCHITECTURE.md:7: crate `face` is in the table but not"),
            "{}",
            found[1]
        );
    }

    #[test]
    fn a_missing_table_is_a_finding() {
        assert_eq!(messages(&tree("# Architecture\n", vec![package("core", &[])])).len(), 1);
        assert_eq!(crate_edges(&Tree::default()).len(), 1);
    }
}
