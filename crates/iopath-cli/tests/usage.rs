//! An invalid argument is one line with the argument, the value and the valid ones, and exit code 2: the files
//! *.trycmd.

#[test]
fn usage_errors_are_one_line() {
    trycmd::TestCases::new().case("tests/usage.trycmd").case("tests/tune.trycmd").case("tests/sweep.trycmd");
}
