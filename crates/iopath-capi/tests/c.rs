//! The C interface from C: the header, a program that calls every function, and the example. They run against the
//! shared and the static library, and below valgrind where it is installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder of the libraries: cargo builds them beside the tests.
fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Whether a program is installed. Prints what is skipped without it.
fn has(program: &str, skipped: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed: {skipped}");
    }
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Builds a C program against a library.
fn build(source: &str, directory: &Path, library: &[&str]) -> PathBuf {
    let program = directory.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program);
    compiler.arg("-I").arg(Path::new(ROOT).join("include")).arg(Path::new(ROOT).join(source));
    compiler.args(library);
    run(&mut compiler);
    program
}

/// The arguments that link the shared library, and the static one with the libraries of the system that it needs.
fn linked() -> [Vec<String>; 2] {
    let folder = libraries().display().to_string();
    let shared = vec![format!("-L{folder}"), format!("-Wl,-rpath,{folder}"), "-liopath_capi".to_owned()];
    let system = ["-lpthread", "-ldl", "-lm", "-lgcc_s"].map(str::to_owned);
    [shared, [vec![format!("{folder}/libiopath_capi.a")], system.to_vec()].concat()]
}

/// A directory on a filesystem with direct I/O.
fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("iopath-capi-").tempdir_in(libraries()).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let header = Path::new(ROOT).join("include/iopath.h");
    let config = cbindgen::Config::from_file(Path::new(ROOT).join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(Path::new(ROOT).join("src/error.rs"))
        .with_src(Path::new(ROOT).join("src/options.rs"))
        .with_src(Path::new(ROOT).join("src/volume.rs"))
        .with_src(Path::new(ROOT).join("src/buffer.rs"))
        .with_src(Path::new(ROOT).join("src/batch.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap().replace("// # Safety\n", "// Contract:\n");
    if env::var_os("IOPATH_BLESS").is_some() {
        fs::write(&header, &made).unwrap();
    }
    let written = fs::read_to_string(&header).unwrap();
    assert!(written == made, "{} is old: IOPATH_BLESS=1 cargo test -p iopath-capi", header.display());
}

#[test]
fn a_c_program_calls_every_function() {
    if !has("cc", "the C interface from C") {
        return;
    }
    let called = fs::read_to_string(Path::new(ROOT).join("tests/interface.c")).unwrap();
    let header = fs::read_to_string(Path::new(ROOT).join("include/iopath.h")).unwrap();
    let names = header.match_indices('(').filter_map(|(at, _)| header[..at].rsplit([' ', '*', '\n']).next());
    let functions: Vec<&str> = names.filter(|name| name.starts_with("iopath_")).collect();
    assert!(functions.len() > 30, "{functions:?}");
    for function in functions {
        assert!(called.contains(&format!("{function}(")), "{function} has no test");
    }
    for library in linked() {
        let directory = directory();
        let library: Vec<&str> = library.iter().map(String::as_str).collect();
        let program = build("tests/interface.c", directory.path(), &library);
        let output = run(Command::new(&program).arg(directory.path()));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
}

#[test]
fn valgrind_finds_no_error_and_no_lost_memory() {
    if !has("cc", "the C interface from C") || !has("valgrind", "memory errors of the C interface") {
        return;
    }
    let (directory, [shared, _]) = (directory(), linked());
    let library: Vec<&str> = shared.iter().map(String::as_str).collect();
    let program = build("tests/interface.c", directory.path(), &library);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    valgrind.arg(format!("--suppressions={ROOT}/tests/valgrind.supp"));
    run(valgrind.arg(&program).arg(directory.path()));
}

#[test]
fn the_example_reads() {
    if !has("cc", "the C interface from C") {
        return;
    }
    let (directory, [shared, _]) = (directory(), linked());
    let library: Vec<&str> = shared.iter().map(String::as_str).collect();
    let program = build("examples/random_reads.c", directory.path(), &library);
    let file = directory.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let output = run(Command::new(&program).arg(&file));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(" reads a second\n"), "{output:?}");
}
