//! Tests of whole job files: inheritance, groups, refused keys.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use iopath_report::Rw;
use proptest::prelude::*;

use super::*;
use iopath_bench::options::{Amount, IoEngine};
use iopath_bench::shape::Sizes;
use iopath_bench::steady::{Limit, SteadyMetric, SteadyState};

/// No files, no variables.
struct Nothing;

impl Environment for Nothing {
    fn read(&self, _file: &str, _from: &str) -> io::Result<(String, Vec<u8>)> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn keyword(&self, name: &str) -> Option<u64> {
        (name == "pagesize").then_some(4096)
    }
}

fn parse(text: &str) -> JobFile {
    JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).unwrap()
}

fn refused(text: &str) -> String {
    JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).unwrap_err().to_string()
}

#[test]
fn a_global_section_sets_defaults_of_the_jobs_after_it_only() {
    let file = parse(
        "[global]\nrw=randread\nbs=8k\n[a]\n[b]\nbs=16k\n[global]\nrw=write\nsize=1m\n[c]\nname=last\nsize=50%\n",
    );
    let found: Vec<_> = file
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.workload.rw, job.sizes[0].max(), job.size))
        .collect();
    assert_eq!(
        found,
        [
            ("a", Rw::RandRead, 8192, None),
            ("b", Rw::RandRead, 16384, None),
            ("last", Rw::Write, 8192, Some(Amount::Percent(50))),
        ]
    );
}

#[test]
fn keys_have_the_meaning_of_fio() {
    let file = parse(
        "[j]\nrw=readwrite\nrwmixwrite=30\nbuffered=0\niodepth=16\nioengine=libaio\nnumjobs=4\nruntime=2m\n\
         time_based\nthinktime=50\nstartdelay=3\nramp_time=500ms\nfilename=a\\:b\ndirectory=x:y\nrandrepeat=0\n\
         number_ios=7\nloops=2\nrate=1m,2m\nsize=3*$pagesize\noffset=10%\nbs=4k,8k\n",
    );
    let job = &file.jobs[0];
    assert_eq!((job.workload.rw, job.direct), (Rw::Rw, true));
    assert_eq!((job.workload.read_share.get(), job.workload.depth.get()), (70, 16));
    assert!(matches!(job.engine, IoEngine::Asynchronous) && job.time_based && !job.is_repeatable);
    assert_eq!((job.clones(), job.ios, job.loops), (4, Some(7), 2));
    assert_eq!(job.runtime, Some(Duration::from_secs(120)));
    assert_eq!(
        (job.workload.think, job.start_delay, job.ramp),
        (Duration::from_micros(50), [Duration::from_secs(3); 2], Duration::from_millis(500))
    );
    assert_eq!(
        (&job.files[..], &job.directories[..]),
        (&["a:b".to_owned()][..], &["x".into(), "y".into()][..])
    );
    assert_eq!(job.rate_bytes, [Some(1 << 20), Some(2 << 20)]);
    assert_eq!((job.size, job.offset), (Some(Amount::Bytes(12288)), Amount::Percent(10)));
    assert_eq!(job.sizes.each_ref().map(Sizes::max), [4096, 8192]);
}

#[test]
fn steady_state_has_the_criteria_of_fio() {
    let of = |keys: &str| parse(&format!("[a]\n{keys}\n")).jobs[0].steady_state();
    assert_eq!(of("size=1m"), None);
    assert_eq!(of("ss=iops:2%\nss_dur=0"), None, "a criterion without a window");
    let deviation = of("ss=bw:15%\nss_dur=20\nss_ramp=3").unwrap();
    let seconds =
        |steady: &SteadyState| [steady.window, steady.interval, steady.ramp].map(|time| time.as_secs());
    assert_eq!((deviation.metric, seconds(&deviation)), (SteadyMetric::Throughput, [20, 1, 3]));
    assert_eq!((deviation.deviation, deviation.slope), (Some(Limit::Percent(15.0)), None));
    // 20 samples have 19 distances. fio limits the change from one sample to the next.
    let slope = of("steadystate=iops_slope:2\nsteadystate_duration=10\nsteadystate_check_interval=500ms");
    let slope = slope.unwrap();
    assert_eq!((slope.metric, slope.samples()), (SteadyMetric::Iops, 20));
    assert_eq!((slope.deviation, slope.slope), (None, Some(Limit::Absolute(38.0))));
    let latency = of("ss=lat_slope:1%\nss_dur=10").unwrap();
    assert_eq!((latency.metric, latency.slope), (SteadyMetric::Latency, Some(Limit::Percent(9.0))));
    for value in ["iops", "p99:1%", "iops:", "iops:-1", "bw_slope:x%"] {
        let error = refused(&format!("[a]\nss={value}\n"));
        assert!(error.contains("is not valid; use iops, bw or lat"), "{error}");
    }
}

#[test]
fn a_name_in_global_names_no_job() {
    let file = parse("[global]\nname=x\nbs=8k\n[a]\n[b]\nname=c\n");
    assert_eq!(file.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn a_size_of_0_is_all_of_the_file() {
    assert_eq!(parse("[global]\nsize=1m\n[a]\nsize=0\n").jobs[0].size, None);
}

#[test]
fn percentages_may_have_their_sign() {
    let job = parse("[a]\nrwmixread=70%\npercentage_random=30%\ncmdprio_percentage=20%,5\n").jobs.remove(0);
    assert_eq!((job.workload.read_share.get(), job.workload.shape.random_percent), (70, 30));
    assert_eq!(job.controls.priority_percent, [Some(20), Some(5)]);
}

#[test]
fn a_start_delay_may_be_a_range() {
    let delay =
        |keys: &str| parse(&format!("[a]\n{keys}\n")).jobs[0].start_delay.map(|time| time.as_millis());
    assert_eq!(delay("startdelay=500ms-1"), [500, 1000]);
    assert_eq!(delay("startdelay=3:1"), [1000, 3000]);
}

#[test]
fn the_unit_applies_to_all_values_of_a_section() {
    let file = parse("[global]\nbs=4k\n[a]\nkb_base=1000\n[b]\nbs=4k\nkb_base=1000\n");
    assert_eq!(file.jobs.iter().map(|job| job.sizes[0].max()).collect::<Vec<_>>(), [4096, 4000]);
}

#[test]
fn the_unit_applies_to_all_values_of_a_job() {
    let file = parse("[a]\nbs=4k\nkb_base=1000\n[b]\nbs=4k\n");
    assert_eq!(file.jobs.iter().map(|job| job.sizes[0].max()).collect::<Vec<_>>(), [4000, 4096]);
}

#[test]
fn a_stonewall_starts_a_group() {
    let file = parse("[a]\n[b]\n[c]\nstonewall\n[d]\n[e]\nwait_for=d\n");
    let names = |group: &[Job]| group.iter().map(|job| job.name.clone()).collect::<String>();
    assert_eq!(file.groups().into_iter().map(names).collect::<Vec<_>>(), ["ab", "cd", "e"]);
    assert_eq!(parse("[global]\nstonewall\n[a]\n[b]\n").groups().len(), 2);
}

#[test]
fn an_unsupported_key_is_refused_with_its_name_and_line() {
    for (line, named) in [
        ("thp=1", "f.fio:3: key `thp` is not supported: huge pages of mapped files"),
        ("frobnicate=1", "f.fio:3: key `frobnicate` is unknown; "),
        (
            "thinktime_spin=5",
            "f.fio:3: key `thinktime_spin` is not supported: a job pauses after each transfer",
        ),
        ("write_hint=short", "f.fio:3: key `write_hint` is not supported: "),
    ] {
        let text = format!("[a]\n\n{line}\nsize=1m\n");
        let error = refused(&text);
        assert!(error.starts_with(named) && error.ends_with("with --lenient"), "{error}");
        let file = JobFile::parse("f.fio", text.as_bytes(), &Nothing, true).unwrap();
        assert_eq!(file.warnings.len(), 1);
        assert!(file.warnings[0].starts_with("f.fio:3: ignored: "), "{:?}", file.warnings);
        assert_eq!(file.jobs[0].size, Some(Amount::Bytes(1 << 20)), "the other keys count");
    }
}

#[test]
fn lenient_does_not_ignore_what_decides_durability_direction_range_or_contents() {
    for (line, what) in [
        ("atomic=1", "the durability of writes"),
        ("trim_percentage=5", "the direction of transfers"),
        ("ioengine=net", "the bytes that are accessed"),
        ("rw_sequencer=identical", "the bytes that are accessed"),
        ("percentage_random=50,20", "the bytes that are accessed"),
        ("verify_offset=64", "the content of writes"),
    ] {
        let text = format!("[a]\n{line}\nsize=1m\n");
        let error = JobFile::parse("f.fio", text.as_bytes(), &Nothing, true).unwrap_err().to_string();
        assert!(error.ends_with(&format!("because it decides {what})")), "{error}");
    }
}

#[test]
fn a_value_that_changes_nothing_is_accepted() {
    let keys = "verify=0\nzero_buffers=0\nsync=none\nlockfile=none\nwrite_hint=none\ndedupe_mode=repeat\n\
                iodepth_batch=1\nrw_sequencer=sequential\nread_iolog_chunked=0\nreplay_scale=1\nzonemode=none\n";
    assert_eq!(parse(&format!("[a]\n{keys}")).jobs.len(), 1);
    assert!(refused("[a]\ncgroup=0\n").contains("`cgroup` is not supported"), "a name");
}

#[test]
fn a_key_of_global_is_reported_once() {
    let file = JobFile::parse("f", b"[global]\ncgroup=a\n[a]\n[b]\nuid=1\n", &Nothing, true).unwrap();
    assert_eq!(file.warnings.len(), 2, "{:?}", file.warnings);
}

#[test]
fn an_invalid_value_is_refused_even_if_lenient() {
    for (line, named) in [
        ("bs=0", "`bs=0` is not valid; use a size of 1 or more"),
        ("iodepth=x", "`iodepth=x` is not valid; use a whole number of 1 or more"),
        ("rwmixread=101", "`rwmixread=101` is not valid; use 0 to 100"),
        ("rw=sideways", "`rw=sideways` is not valid; use read, write"),
        ("size=101%", "`size=101%` is not valid"),
        ("runtime=1y", "`runtime=1y` is not valid; use seconds"),
        ("direct=maybe", "`direct=maybe` is not valid; use 0 or 1"),
        ("filename", "`filename=` is not valid; use a value after `=`"),
    ] {
        for lenient in [false, true] {
            let text = format!("[a]\n{line}\n");
            let error = JobFile::parse("f", text.as_bytes(), &Nothing, lenient).unwrap_err().to_string();
            assert!(error.starts_with(&format!("f:2: {named}")), "{error}");
        }
    }
}

#[test]
fn a_file_has_a_job() {
    assert_eq!(refused("[global]\nbs=4k\n"), "f.fio contains no job; add a section such as [job1]");
    assert_eq!(refused(""), "f.fio contains no job; add a section such as [job1]");
}

#[test]
fn jobs_are_selected_by_name() {
    let mut file = parse("[a]\n[b]\n[c]\n");
    file.select(&[]).unwrap();
    assert_eq!(file.jobs.len(), 3);
    let error = file.clone().select(&["x".to_owned()]).unwrap_err().to_string();
    assert_eq!(error, "f.fio has no job `x`; its jobs are: a, b, c");
    file.select(&["b".to_owned()]).unwrap();
    assert_eq!(file.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

proptest! {
    #[test]
    fn any_keys_and_values_are_read_or_refused(
        options in prop::collection::vec((0..keys().count() + 1, "[-0-9a-z:,/%.()*$^ ]{0,12}"), 0..12),
        lenient in any::<bool>(),
    ) {
        let mut text = "[global]\n[job]\n".to_owned();
        for (number, value) in &options {
            let key = keys().nth(*number).map_or("unknown", |key| key.names[0]);
            text.extend([key, "=", value, "\n"]);
        }
        let parsed = JobFile::parse("f", text.as_bytes(), &Nothing, lenient);
        if let Err(error) = parsed {
            let line = error.to_string().split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
            // The line of the section is that of keys that do not suit its job: `wait_for`.
            prop_assert!(line.is_some_and(|line| (2..3 + options.len()).contains(&line)), "{}", error);
        }
    }
}

#[test]
fn sizes_gaps_and_runs_have_the_notation_of_fio() {
    let job = |keys: &str| parse(&format!("[a]\n{keys}\n")).jobs.remove(0);
    let sizes = |keys: &str| job(keys).settings.sizes.map(|sizes| sizes.to_string());
    assert_eq!(sizes("bssplit=4k/60:64k/40"), ["4096/60:65536/40", "4096/60:65536/40"]);
    assert_eq!(sizes("bssplit=4k/90:8k,16k"), ["4096/90:8192/10", "16384/100"]);
    assert_eq!(sizes("bsrange=4k-16k,1k:2k"), ["4096-16384", "1024-2048"]);
    let unaligned = Sizes::range(4096, 16384, false).unwrap();
    let of_both = Some([unaligned.clone(), unaligned]);
    assert_eq!(job("rw=rw\nbsrange=4k-16k\nbs_unaligned=1").shape(None).sizes, of_both);
    assert_eq!(job("rw=write:8k").workload.shape.skip_bytes, 8192);
    assert_eq!(job("rw=read:-8k").workload.shape.skip_bytes, -8192);
    assert_eq!(job("rw=randread:8").workload.shape.random_run, 8);
    assert_eq!(
        (job("ba=8k").align_bytes, job("percentage_random=30").workload.shape.random_percent),
        (8192, 30)
    );
    // fio gives the largest share what the sum lacks, and cuts off what it has above 100.
    assert_eq!(sizes("bssplit=4k/50"), ["4096/100", "4096/100"]);
    assert_eq!(sizes("bssplit=8k/50:4k/30,4k/60:8k/70")[0], "4096/30:8192/70");
    assert_eq!(sizes("bssplit=4k/60:8k/70")[0], "4096/60:8192/40");
    for bad in ["bssplit=4k/x", "bsrange=0-4k", "rw=randread:0", "rw=read:x"] {
        assert!(refused(&format!("[a]\n{bad}\n")).contains("is not valid; use "), "{bad}");
    }
}

#[test]
fn a_key_given_twice_in_a_section_is_reported_with_both_lines() {
    let file = parse(
        "[global]\nbs=4k\n[j]\nrw=read\nbs=8k\nblocksize=16k\nthread\nthread\nsize=1m\n[k]\nbs=4k\nsize=1m\n",
    );
    assert_eq!(
        file.warnings,
        [
            "f.fio:6: `blocksize=16k` replaces the value at f.fio:5; remove one of the two lines",
            "f.fio:8: `thread` replaces the value at f.fio:7; remove one of the two lines",
        ]
    );
    assert_eq!(file.jobs.iter().map(|job| job.sizes[0].max()).collect::<Vec<_>>(), [16384, 4096]);
}

#[test]
fn each_line_of_filename_adds_files() {
    let file = parse("[global]\nfilename=a\n[j]\nfilename=b:c\nfilename=d\n[k]\n");
    let files: Vec<_> = file.jobs.iter().map(|job| job.files.join(" ")).collect();
    assert_eq!(files, ["a b c d", "a"]);
    assert_eq!(file.warnings, [""; 0]);
}

#[test]
fn a_job_waits_for_one_that_exists() {
    assert!(refused("[a]\nwait_for=nobody\n").contains("wait_for=nobody names no job before it"));
}

#[test]
fn comments_have_any_encoding() {
    let parsed = JobFile::parse("f", b"# M\xfcller\n[a]\nsize=1m ; \xe9\n", &Nothing, false).unwrap();
    assert_eq!(parsed.jobs[0].size, Some(Amount::Bytes(1 << 20)));
}

#[test]
fn many_jobs_share_the_values_of_many_defaults() {
    let mut text = "[global]\n".to_owned();
    (0..20_000).for_each(|_| text.push_str("size=1m\n"));
    (0..20_000).for_each(|number| writeln!(text, "[j{number}]").unwrap());
    // With the defaults parsed for each job, these would be 400 million values.
    assert_eq!(parse(&text).jobs.len(), 20_000);
}

#[test]
fn a_group_remains_if_its_first_job_is_left_out() {
    let mut file = parse("[a]\n[b]\nstonewall\n[c]\n");
    file.select(&["a".to_owned(), "c".to_owned()]).unwrap();
    assert_eq!(file.groups().len(), 2);
}
