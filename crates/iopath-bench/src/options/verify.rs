//! Options of the verification of data.

use serde_json::{Map, Value};

use super::Form::{Flag, One};
use super::Support::{Partly, Yes};
use super::{Decides, Difference, Given, Kind, NONE, OptionRow, Refused, Settings, set};
use crate::contents::VerifyPattern;
use crate::field::Field;
use crate::place::Place;

/// A model holds no data to verify.
const STORED: Place = Place::Storage("a model holds no data");

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--verify",
        Flag,
        "Verify data: writes carry checksums, offsets and numbers; reads check them, and written blocks are read back after \
         each repetition. Finds lost, stale, torn, misdirected and corrupt blocks",
        verify,
    )
    .field(Field::VERIFY)
    .states(
        "verify",
        Kind::Object("iopath"),
        Difference::RefusedOr(NONE),
        "How the data is verified; none for a run that does not verify.",
        |ran| ran.workload.verify.map(|_| Value::Object(Map::new())),
    )
    .only_on(&[STORED], |workload| workload.verify.map(|_| String::new()))
    .key(Partly, &["verify"], "`--verify`, in the format of iopath with any checksum of fio; `pattern`: the bytes of `verify_pattern`").decides(Decides::Contents),
    OptionRow::option(
        "--verify-backlog",
        One("N"),
        "Read the blocks back after each N writes of a job too, within the measurement",
        set!(verify.backlog = every),
    )
    .requires("verify")
    .states(
        "verify.backlog",
        Kind::Whole,
        Difference::Ignored,
        "The writes of a job after which it reads them back, within the measurement; none without.",
        |ran| ran.workload.verify?.backlog.map(|every| every.get().into()),
    )
    .or_null()
    .key(Yes, &["verify_backlog"], "`--verify-backlog`").decides(Decides::Contents),
    OptionRow::option(
        "--verify-fatal",
        Flag,
        "End at the first fault that --verify finds",
        set!(verify.fatal = flag),
    )
    .requires("verify")
    .states(
        "verify.fatal",
        Kind::Flag,
        Difference::Ignored,
        "Whether the first fault ends the job.",
        |ran| Some(ran.workload.verify?.fatal.into()),
    )
    .always()
    .key(Yes, &["verify_fatal"], "`--verify-fatal`"),
    OptionRow::only_key(
        Yes,
        &["do_verify"],
        "0 does not read written blocks back after the job",
        set!(verify.after = flag),
    ).decides(Decides::Contents)
    .states(
        "verify.after",
        Kind::Flag,
        Difference::Ignored,
        "Whether the written blocks are read back after each repetition.",
        |ran| Some(ran.workload.verify?.after.into()),
    )
    .always()
    .only_on(&[STORED], |_| None),
    OptionRow::only_key(
        Partly,
        &["verify_pattern"],
        "the bytes of each block with `verify=pattern`, again and again from its start: as `buffer_pattern`, and `%o` for the offset \
         of the block; no effect with a checksum",
        |settings, given| {
            const EXPECTED: Refused =
                Refused::Expected("numbers, 0x and digits, texts in double quotes, or %o");
            settings.contents.verified = VerifyPattern::parse(given.text()?).ok_or(EXPECTED)?;
            Ok(())
        },
    ).decides(Decides::Contents)
    .only_on(&[STORED], |_| None),
    OptionRow::only_key(
        Partly,
        &["verify_dump"],
        "1 writes the first 20 blocks with faults to files `NAME.OFFSET.received` and `.expected` in the current directory",
        set!(verify.dump = flag),
    )
    .only_on(&[STORED], |_| None),
];

fn verify(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const CHECKSUMS: [&str; 18] = [
        "pattern",
        "meta",
        "md5",
        "crc64",
        "crc32c",
        "crc32c-intel",
        "crc32",
        "crc16",
        "crc7",
        "xxhash",
        "sha512",
        "sha256",
        "sha1",
        "sha3-224",
        "sha3-256",
        "sha3-384",
        "sha3-512",
        "0",
    ];
    if given.is_in_job_file() {
        given.only(
            &CHECKSUMS,
            "verified blocks have the format of iopath, or a pattern; use a checksum such as crc32c",
        )?;
    }
    let text = given.text()?;
    settings.verifies = text != "0";
    settings.verify.is_pattern = given.is_in_job_file() && text == "pattern";
    Ok(())
}
