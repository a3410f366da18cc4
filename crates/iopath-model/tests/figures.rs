//! The figures of each preset: what its source states against what the model does, within a stated tolerance. The
//! tables of docs/models.md come from here. `IOPATH_UPDATE_DOCS=1 cargo test -p iopath-model --test figures` writes
//! them.

use std::fmt::Write as _;

use crate::rig::{Device, Done, Random, Rig, device, iops, mb_per_s};
use iopath_core::Op;
use iopath_model::{Choice, HostModel, Kind, LinkModel, Model, Parameter, Preset, Setting};

/// A figure of a preset.
struct Figure {
    preset: &'static str,
    what: &'static str,
    unit: &'static str,
    /// What the source states, if it does, and how far the model may be from it, as a share.
    expected: Option<(f64, f64)>,
    /// A parameter was set so that this figure is met: no prediction.
    is_calibrated: bool,
    source: &'static str,
    measure: fn(&Model) -> f64,
}

const fn figure(
    preset: &'static str,
    (what, unit): (&'static str, &'static str),
    expected: Option<(f64, f64)>,
    is_calibrated: bool,
    source: &'static str,
    measure: fn(&Model) -> f64,
) -> Figure {
    Figure { preset, what, unit, expected, is_calibrated, source, measure }
}

const OUTER: (&str, &str) = ("sequential read, outermost zone", "MB/s");
const STATED: (&str, &str) = ("sequential read, outermost zone, at most", "MB/s");
const INNER: (&str, &str) = ("sequential read, innermost zone", "MB/s");
const SEEK: (&str, &str) = ("mean seek before a read", "ms");
const SEEK_P90: (&str, &str) = ("p90 of latency of random reads of 512 bytes", "ms");
const RANDOM: [(&str, &str); 4] = [
    ("random reads of 512 bytes, depth 1", "1/s"),
    ("random reads of 4 KiB, depth 4", "1/s"),
    ("random reads of 4 KiB, depth 16", "1/s"),
    ("random reads of 4 KiB, depth 32", "1/s"),
];
const GV: &str = "IBM Deskstar 40GV and 75GXP specification";
const GV_ZONES: &str = "0.475 of the outermost zone, IBM Deskstar 40GV and 75GXP specification, figure 13";
const DALE: &str = "one disk of the published setup (Lincoln Dale, linux-kernel, 3 June 2002)";
const K500: &str = "Hitachi Deskstar 7K500 specification, table 10";
const K500_RANDOM: &str = "Hitachi Deskstar 7K500 specification, table 12: 4,096 random reads in 55.5 s";
const X20: &str = "hardwareluxx.de, test of the Seagate Exos X20";
const X20_STATED: &str = "blocksandfiles.com, 18 October 2023";
const S4500: &str = "Intel SSD DC S4500 specification";
const P4500: &str = "Intel SSD DC P4500 of 2 TB, Lenovo Press";
const GP3: &str = "Amazon EBS user guide, gp3";
const ASSUMED: &str = "";

const FIGURES: &[Figure] = &[
    figure("ide-2001", OUTER, Some((15.0, 0.03)), true, "the published setup of 2001", outer),
    figure("ide-2001", INNER, Some((7.1, 0.1)), false, GV_ZONES, inner),
    figure("ide-2001", SEEK, None, false, ASSUMED, mean_seek),
    figure("ide-2001", SEEK_P90, None, false, ASSUMED, p90),
    figure("ide-2001", RANDOM[0], Some((63.0, 0.03)), true, GV, |model| random(model, 1, 512)),
    figure(
        "fc15k-2002",
        ("sequential read, first 10 GiB", "MB/s"),
        Some((56.5, 0.02)),
        true,
        DALE,
        |model| mb_per_s(&rig(model).keep(4, 81_920, |n| (Op::Read, u64::from(n) * 256, 131_072))),
    ),
    figure("fc15k-2002", OUTER, None, false, ASSUMED, outer),
    figure("fc15k-2002", INNER, None, false, ASSUMED, inner),
    figure("fc15k-2002", SEEK, None, false, ASSUMED, mean_seek),
    figure("fc15k-2002", SEEK_P90, None, false, ASSUMED, p90),
    figure("fc15k-2002", RANDOM[0], None, false, ASSUMED, |model| random(model, 1, 512)),
    figure("fc15k-2002", RANDOM[1], None, false, ASSUMED, |model| random(model, 4, 4096)),
    figure("fc15k-2002", RANDOM[3], None, false, ASSUMED, |model| random(model, 32, 4096)),
    figure("sata-2006", OUTER, Some((64.8, 0.03)), true, K500, outer),
    figure("sata-2006", INNER, Some((31.0, 0.03)), false, K500, inner),
    figure("sata-2006", SEEK, Some((8.5, 0.05)), true, "Hitachi Deskstar 7K1000.C specification", mean_seek),
    figure("sata-2006", SEEK_P90, None, false, ASSUMED, p90),
    figure("sata-2006", RANDOM[0], Some((73.8, 0.1)), false, K500_RANDOM, |model| random(model, 1, 512)),
    figure("sata-2006", RANDOM[1], None, false, ASSUMED, |model| random(model, 4, 4096)),
    figure("sata-2006", RANDOM[3], None, false, ASSUMED, |model| random(model, 32, 4096)),
    figure("hdd-20tb", OUTER, Some((265.0, 0.03)), true, X20, outer),
    figure("hdd-20tb", STATED, Some((285.0, 0.1)), false, X20_STATED, outer),
    figure("hdd-20tb", INNER, None, false, ASSUMED, inner),
    figure("hdd-20tb", SEEK, None, false, ASSUMED, mean_seek),
    figure("hdd-20tb", SEEK_P90, None, false, ASSUMED, p90),
    figure("hdd-20tb", RANDOM[0], None, false, ASSUMED, |model| random(model, 1, 512)),
    figure("hdd-20tb", RANDOM[2], None, false, ASSUMED, |model| random(model, 16, 4096)),
    figure("hdd-20tb", RANDOM[3], None, false, ASSUMED, |model| random(model, 32, 4096)),
    figure("ssd-sata", ("sequential reads", "MB/s"), Some((500.0, 0.03)), true, S4500, |model| {
        stream(model, Op::Read)
    }),
    figure("ssd-sata", ("sequential writes", "MB/s"), Some((490.0, 0.03)), true, S4500, |model| {
        stream(model, Op::Write)
    }),
    figure(
        "ssd-sata",
        ("random reads of 4 KiB, depth 32", "1/s"),
        Some((72e3, 0.03)),
        true,
        S4500,
        |model| random(model, 32, 4096),
    ),
    figure(
        "ssd-sata",
        ("random reads of 8 KiB, depth 32", "1/s"),
        Some((48e3, 0.30)),
        false,
        S4500,
        |model| random(model, 32, 8192),
    ),
    figure(
        "ssd-sata",
        ("random writes of 4 KiB, depth 32", "1/s"),
        Some((33e3, 0.03)),
        true,
        S4500,
        |model| steady_writes(model, 4096),
    ),
    figure(
        "ssd-sata",
        ("random writes of 8 KiB, depth 32", "1/s"),
        Some((21e3, 0.25)),
        false,
        S4500,
        |model| steady_writes(model, 8192),
    ),
    figure("ssd-sata", ("random read of 4 KiB, latency", "µs"), Some((110.0, 0.03)), true, S4500, |model| {
        latency_us(model, Op::Read)
    }),
    figure("ssd-sata", ("random write of 4 KiB, latency", "µs"), Some((52.0, 0.03)), true, S4500, |model| {
        latency_us(model, Op::Write)
    }),
    figure("ssd-nvme", ("sequential reads", "MB/s"), Some((3200.0, 0.03)), true, P4500, |model| {
        stream(model, Op::Read)
    }),
    figure("ssd-nvme", ("sequential writes", "MB/s"), Some((1050.0, 0.03)), true, P4500, |model| {
        stream(model, Op::Write)
    }),
    figure(
        "ssd-nvme",
        ("random reads of 4 KiB, depth 256", "1/s"),
        Some((490e3, 0.03)),
        true,
        P4500,
        |model| random(model, 256, 4096),
    ),
    figure(
        "ssd-nvme",
        ("random writes of 4 KiB, depth 32", "1/s"),
        Some((38e3, 0.03)),
        true,
        P4500,
        |model| steady_writes(model, 4096),
    ),
    figure("ssd-nvme", ("random read of 4 KiB, latency", "µs"), Some((85.0, 0.03)), true, P4500, |model| {
        latency_us(model, Op::Read)
    }),
    figure("ssd-nvme", ("random write of 4 KiB, latency", "µs"), Some((20.0, 0.05)), true, P4500, |model| {
        latency_us(model, Op::Write)
    }),
    figure("cloud", ("random reads of 4 KiB, depth 32", "1/s"), Some((3000.0, 0.01)), true, GP3, |model| {
        random(model, 32, 4096)
    }),
    figure("cloud", ("sequential reads", "MB/s"), Some((131.1, 0.01)), true, GP3, |model| {
        stream(model, Op::Read)
    }),
    figure("iscsi-gbe", ("sequential reads", "MB/s"), None, false, ASSUMED, |model| stream(model, Op::Read)),
    figure("iscsi-gbe", RANDOM[0], None, false, ASSUMED, |model| random(model, 1, 512)),
    figure("cloud", ("random read of 4 KiB, latency", "µs"), None, false, ASSUMED, |model| {
        latency_us(model, Op::Read)
    }),
];

fn rig(model: &Model) -> Rig<Device> {
    Rig::new(device(model))
}

fn sequential(model: &Model, first: u64) -> f64 {
    let bytes = model.limits().request_bytes_max.min(131_072);
    let depth = model.limits().depth_max.min(4);
    mb_per_s(&rig(model).keep(depth, 1500, |n| (Op::Read, first + u64::from(n) * bytes / 512, bytes)))
}

fn outer(model: &Model) -> f64 {
    sequential(model, 0)
}

fn inner(model: &Model) -> f64 {
    sequential(model, model.capacity() - 1500 * 256)
}

fn random_reads(model: &Model, depth: u32, bytes: u64, count: u32) -> Vec<Done> {
    let mut random = Random(depth.into());
    let blocks = model.capacity() / (bytes / 512);
    rig(model).keep(depth, count, |_| (Op::Read, random.below(blocks) * (bytes / 512), bytes))
}

fn random(model: &Model, depth: u32, bytes: u64) -> f64 {
    iops(&random_reads(model, depth, bytes, 20_000))
}

fn latency(model: &Model, share: f64) -> f64 {
    let mut latencies: Vec<_> = random_reads(model, 1, 512, 20_000).iter().map(Done::latency).collect();
    latencies.sort_unstable();
    latencies[(latencies.len() as f64 * share) as usize] as f64 / 1e6
}

fn p90(model: &Model) -> f64 {
    latency(model, 0.90)
}

/// The mean latency of random reads of a sector, less overhead and half a turn.
fn mean_seek(model: &Model) -> f64 {
    let value =
        |path: &str| model.settings().iter().find(|one| one.path == path).map_or(0.0, |one| one.value);
    1e3 / random(model, 1, 512) - value("command_overhead_us") / 1e3 - 30_000.0 / value("rotation_rpm")
}

fn stream(model: &Model, op: Op) -> f64 {
    let bytes = 131_072;
    let done = rig(model).keep(32, 30_000, |n| (op, u64::from(n) * 256, bytes));
    mb_per_s(&done[10_000..])
}

fn steady_writes(model: &Model, bytes: u64) -> f64 {
    let mut random = Random(9);
    let blocks = model.capacity() / (bytes / 512);
    let next = |_| (Op::Write, random.below(blocks) * (bytes / 512), bytes);
    iops(&rig(model).keep(32, 60_000, next)[20_000..])
}

fn latency_us(model: &Model, op: Op) -> f64 {
    let mut random = Random(1);
    let done = rig(model).keep(1, 2000, |_| (op, random.below(model.capacity() / 8) * 8, 4096));
    done.iter().map(Done::latency).sum::<u64>() as f64 / 2e6
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn figures(preset: &str) -> String {
    let model = Model::preset(preset).unwrap();
    let mut text = format!(
        "### `{preset}`\n\n{}: {:.1} GB.\n\n",
        upper(model.about()),
        model.capacity() as f64 * 512e-9
    );
    text += "| figure | unit | source | modelled | deviation | |\n|---|---|---|---|---|---|\n";
    for figure in FIGURES.iter().filter(|figure| figure.preset == preset) {
        let got = (figure.measure)(&model);
        let (stated, deviation) =
            figure.expected.map_or(("–".to_owned(), "–".to_owned()), |(expected, tolerance)| {
                let deviation = got / expected - 1.0;
                let Figure { what, .. } = figure;
                assert!(deviation.abs() <= tolerance, "{preset}, {what}: {got} for {expected}");
                (number(expected), format!("{:+.1}%", deviation * 100.0))
            });
        let kind = match (figure.expected, figure.is_calibrated) {
            (None, _) => "no figure found".to_owned(),
            (_, true) => format!("calibrated: {}", figure.source),
            (_, false) => format!("predicted: {}", figure.source),
        };
        let Figure { what, unit, .. } = figure;
        writeln!(text, "| {what} | {unit} | {stated} | {} | {deviation} | {kind} |", number(got)).unwrap();
    }
    text
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn parameters(title: &str, tables: &[(&str, &[Parameter])]) -> String {
    let mut text =
        format!("{title}\n\n| parameter | unit | range | default | meaning |\n|---|---|---|---|---|\n");
    for (table, parameters) in tables {
        for parameter in *parameters {
            let Parameter { name, unit, min, max, default, meaning, .. } = parameter;
            let name = if table.is_empty() { (*name).to_owned() } else { format!("{table}.{name}") };
            let default = default.map_or("required".to_owned(), |value| value.to_string());
            writeln!(text, "| `{name}` | {} | {min} to {max} | {default} | {meaning} |", unit.name())
                .unwrap();
        }
    }
    text
}

/// A parameter with its value and source.
fn row(setting: &Setting) -> String {
    let Setting { path, value, parameter, source, .. } = setting;
    format!("| `{path}` | {value} {} | {} |\n", parameter.unit.name(), source.as_deref().unwrap_or_default())
}

/// The part of docs/models.md below the mark.
fn tables() -> String {
    let mut text = String::from("## Parameters\n");
    for kind in Kind::ALL {
        let title = format!("### Kind `{}`\n\n{}.", kind.name, upper(kind.about));
        write!(text, "\n{}", parameters(&title, kind.tables)).unwrap();
        for Choice { name, values, meaning } in kind.choices {
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            let default = &values[0];
            writeln!(text, "| `{name}` | | {} | {default} | {meaning} |", values.join(", ")).unwrap();
        }
    }
    for (title, table) in [("### Links", LinkModel::PARAMETERS), ("### Hosts", HostModel::PARAMETERS)] {
        write!(text, "\n{}", parameters(title, &[("", table)])).unwrap();
    }
    text += "\n## Presets\n\nFor a figure without a source, the table has the modelled value only. A calibrated figure was used to set a parameter.\n";
    for preset in Preset::ALL {
        write!(text, "\n{}", figures(preset.name)).unwrap();
    }
    text += "\n## Sources of the presets\n";
    for preset in Preset::ALL {
        write!(
            text,
            "\n### Parameters of `{}`\n\n| parameter | value | source |\n|---|---|---|\n",
            preset.name
        )
        .unwrap();
        let mut zones = 0;
        for setting in Model::preset(preset.name).unwrap().settings() {
            if setting.path.contains("zone.") && !setting.path.contains("zone.0.") {
                zones += 1;
                continue;
            }
            text += &row(setting);
        }
        if zones > 0 {
            writeln!(text, "\nFurther zones, {} of them, are in the file of the preset.", zones / 2).unwrap();
        }
    }
    for (name, _) in HostModel::PRESETS {
        let host = HostModel::preset(name).unwrap();
        write!(text, "\n### Parameters of host `{name}`\n\n| parameter | value | source |\n|---|---|---|\n")
            .unwrap();
        text.extend(host.settings().iter().map(row));
    }
    text.lines().map(|line| line.replace("  |", " |").trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_presets_meet_their_figures_and_the_documentation_has_them() {
    const MARK: &str =
        "<!-- The rest of this page is written by the test `figures` of crate iopath-model. -->\n\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");
    let page = std::fs::read_to_string(path).expect("docs/models.md");
    let (head, rest) = page.split_once(MARK).expect("the page has the mark");
    let tables = tables();
    if std::env::var_os("IOPATH_UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{MARK}{tables}")).expect("docs/models.md is writable");
        return;
    }
    for (line, (written, wanted)) in rest.lines().zip(tables.lines()).enumerate() {
        assert_eq!(written, wanted, "docs/models.md, line {line} below the mark");
    }
    assert_eq!(rest, tables);
}
