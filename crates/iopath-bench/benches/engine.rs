//! The cost of the lab itself per transfer: a job on a path that does nothing. `cargo bench -p iopath-bench`
#![expect(missing_docs, reason = "criterion's macro makes a public function without")]

use std::hint::black_box;
use std::io;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use iopath_bench::path::{Capabilities, Connection, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, BlockSize, Depth, Lab, Repetitions, Target, Workload};
use iopath_report::Rw;

const BLOCK_SIZE: BlockSize = BlockSize::constant(4096);

static NOOP: PathRow = PathRow {
    name: "noop",
    about: "completes each transfer without work",
    capabilities: Capabilities {
        needs_target: false,
        direct: false,
        synchronous: false,
        queue: false,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: false,
    },
    open: |_: &OpenSpec| -> Result<Box<dyn IoPath>, BenchError> { Ok(Box::new(Noop)) },
};

struct Noop;

impl IoPath for Noop {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        Ok(Box::new(NoopConnection { submitted: Vec::with_capacity(job.depth as usize) }))
    }
}

struct NoopConnection {
    submitted: Vec<u32>,
}

impl Connection for NoopConnection {
    fn depth(&self) -> u32 {
        self.submitted.capacity() as u32
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        black_box(transfer);
        self.submitted.push(slot);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        done.extend(self.submitted.drain(..).map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn engine(criterion: &mut Criterion) {
    let lab = Lab::new(Duration::from_millis(1), &mut Silent);
    let mut group = criterion.benchmark_group("engine cost per I/O");
    group.throughput(Throughput::Elements(1)).warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(2)).sample_size(20);
    for rw in [Rw::Read, Rw::RandRead, Rw::RandRw] {
        for depth in [1, 32] {
            let workload = Workload {
                path: &NOOP,
                rw,
                depth: Depth::constant(depth),
                block_size: BLOCK_SIZE,
                repetitions: Repetitions::constant(1),
                ..Workload::default()
            };
            group.bench_function(BenchmarkId::new(rw.name(), depth), |bencher| {
                bencher.iter_custom(|ios| {
                    let target = Target::none(ios * u64::from(BLOCK_SIZE));
                    let result = lab.run(&workload, &target, &mut Silent).expect("nothing can fail");
                    assert_eq!(result.ios, ios);
                    Duration::from_secs_f64(result.seconds)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
