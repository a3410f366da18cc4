//! Options of the content of writes. Only job files have them.

use super::Difference;
use super::Support::{Partly, Yes};
use super::{Decides, Kind, NONE, OptionRow, Refused, set};
use crate::contents::parse_pattern;
use crate::field::Field;
use crate::path::Pages;
use crate::place::Place;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(Yes, &["zero_buffers"], "writes have zeroes", |settings, given| {
        settings.contents.is_zero = given.flag()?;
        Ok(())
    })
    .switch()
    .decides(Decides::Contents)
    .states(
        "contents",
        Kind::Text,
        Difference::RefusedOr(NONE),
        "The content of writes, if it is not incompressible.",
        |ran| {
            let contents = &ran.workload.contents;
            let is_written = ran.workload.verify.is_none_or(|verify| verify.is_pattern);
            (*contents != crate::contents::Contents::Random && is_written).then(|| contents.name().into())
        },
    ),
    OptionRow::only_key(
        Partly,
        &["buffer_pattern"],
        "the bytes of writes, again and again: a number, `0x…`, or a text in double quotes; no file",
        |settings, given| {
            const EXPECTED: Refused =
                Refused::Expected("a number, 0x and digits, or a text in double quotes");
            settings.contents.pattern = parse_pattern(given.text()?).ok_or(EXPECTED)?;
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["buffer_compress_percentage"],
        "the share of zeroes, or of `buffer_pattern`, in each chunk of a write",
        |settings, given| {
            settings.contents.compress_percent = given.percent()? as u32;
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["buffer_compress_chunk"],
        "the length of a chunk; default: 512",
        |settings, given| {
            let bytes = u32::try_from(given.bytes()?);
            settings.contents.chunk_bytes = bytes.map_err(|_| Refused::Expected("a size below 4 GiB"))?;
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["dedupe_percentage"],
        "the writes in 100 with the bytes of another one",
        |settings, given| {
            settings.contents.duplicate_percent = given.percent()? as u32;
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["dedupe_mode"],
        "`repeat` the last content, or draw one of a `working_set`",
        |settings, given| {
            settings.contents.has_working_set = match given.text()? {
                "repeat" => false,
                "working_set" => true,
                _ => return Err(Refused::Expected("repeat or working_set")),
            };
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["dedupe_working_set_percentage"],
        "the different duplicates, in percent of the blocks of the job; default: 5",
        |settings, given| {
            settings.contents.working_set_percent = Some(given.percent()? as u32);
            Ok(())
        },
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Yes,
        &["dedupe_global"],
        "1: the jobs share the contents of a working set",
        set!(contents.is_global = flag),
    )
    .decides(Decides::Contents),
    OptionRow::only_key(
        Partly,
        &["mem", "iomem"],
        "`malloc`, the default, `shm`, `mmap` and `mmapshared`: buffers of the paths of the kernel are anonymous memory without advice, \
         as those of fio; `mmaphuge` and `shmhuge`: on huge pages that are reserved (`vm.nr_hugepages`). Paths of iopath have their \
         own memory, on huge pages if the kernel gives them",
        |settings, given| match given.text()? {
            kind @ ("malloc" | "shm" | "mmap" | "mmapshared" | "shmhuge" | "mmaphuge") => {
                let is_huge = kind.ends_with("huge");
                settings.workload.controls.thread.pages = if is_huge { Pages::Reserved } else { Pages::Ordinary };
                Ok(())
            }
            "cudamalloc" => {
                Err(Refused::Value("buffers are in the memory of this machine; use malloc, or mmaphuge"))
            }
            file if file.starts_with("mmap") && file.contains(':') => {
                Err(Refused::Value("buffers are not mapped from a file; use mmap"))
            }
            _ => Err(Refused::Expected("malloc, shm, mmap, mmapshared, shmhuge or mmaphuge")),
        },
    )
    .field(Field("memory of buffers"))
    .only_on(&[Place::Kernel], |workload| {
        (workload.controls.thread.pages == Pages::Reserved).then(|| "huge pages".to_owned())
    }),
    OptionRow::only_key(
        Partly,
        &["iomem_align", "mem_align"],
        "a power of two of up to the size of a page, as buffers begin at one",
        |_, given| {
            let bytes = given.bytes()?;
            if (rustix::param::page_size() as u64).is_multiple_of(bytes.max(1)) {
                return Ok(());
            }
            Err(Refused::Value("buffers begin at a page; use a power of two of up to the size of a page"))
        },
    ),
];
