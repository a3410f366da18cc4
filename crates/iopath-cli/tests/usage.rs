//! What is wrong with the arguments is one line that names the argument, the value and the way out, and exit code 2:
//! usage.trycmd.

#[test]
fn usage_errors_are_one_line() {
    trycmd::TestCases::new().case("tests/usage.trycmd");
}
