//! The choice of engine, and the reported reason if `io_uring` is refused. The refusal is real: a seccomp filter on one
//! thread, as in containers.

use std::sync::Arc;

use iopath_core::{Extent, IoError, QueueConfig};
use iopath_os::{
    AlignedBuf, Engine, EngineConfig, EngineError, OneThread, Reason, RunError, Runner, Uring, UringConfig,
};

use super::rig::{limits, scratch};

/// Makes a system call fail with `errno` in the calling thread, permanently.
fn refuse(syscall: libc::c_long, errno: i32) -> bool {
    // Instructions of classic BPF (linux/filter.h): load, compare and jump, return.
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        instruction(LOAD, 0, 0, 0), // The call number is the first field of the data.
        instruction(JUMP_IF_EQUAL, 0, 1, syscall as u32),
        instruction(RETURN, 0, 0, refuse),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter outlives both calls, and the first takes only numbers.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn a_refused_ring_falls_back_to_threads_with_a_reason() {
    let setup = libc::SYS_io_uring_setup;
    for (syscall, errno) in
        [(setup, libc::EPERM), (setup, libc::ENOSYS), (libc::SYS_io_uring_enter, libc::EPERM)]
    {
        let refused = std::thread::spawn(move || {
            if !refuse(syscall, errno) {
                eprintln!("skipped: no seccomp filter can be installed here");
                return;
            }
            let file = scratch(1 << 20);
            let (limits, config) = (limits(&file), EngineConfig::default());
            let opened = Engine::Auto.open(&file, &limits, &config).unwrap();
            assert_eq!(opened.engine, Engine::Threads);
            let fallback = opened.fallback.expect("a reason");
            let forbidden = matches!(fallback.reason, Reason::Seccomp | Reason::Sysctl(_));
            assert!(forbidden, "{fallback}");
            match Engine::Uring.open(&file, &limits, &config) {
                Err(EngineError::Refused(reason)) => assert_eq!(reason, fallback),
                other => panic!("requested by name, but {other:?}"),
            }
        });
        refused.join().expect("no failure in the thread");
    }
}

#[test]
fn io_on_a_ring_that_a_filter_refuses_later_fails() {
    let filtered = std::thread::spawn(|| {
        let file = scratch(1 << 20);
        let config = UringConfig { depth: 4, pool: None };
        let Ok(device) = Uring::<OneThread>::new(Arc::clone(&file), &limits(&file), &config) else {
            return eprintln!("skipped: io_uring is refused here");
        };
        if !refuse(libc::SYS_io_uring_enter, libc::EPERM) {
            return eprintln!("skipped: no seccomp filter can be installed here");
        }
        let mut runner = Runner::new(Box::new(device), &QueueConfig::default());
        let (extent, mut memory) = (Extent::from_bytes(0, 4096).unwrap(), AlignedBuf::new(4096).unwrap());
        for _ in 0..2 {
            let read = runner.read(extent, &mut memory);
            assert!(matches!(read, Err(RunError::Io(IoError::Os(libc::EPERM)))), "{read:?}");
        }
    });
    filtered.join().expect("no failure in the thread");
}

#[test]
fn each_engine_opens_by_name() {
    let file = scratch(1 << 20);
    let (limits, config) = (limits(&file), EngineConfig::default());
    for (name, engine) in Engine::KNOWN {
        match engine.open_shared(&file, &limits, &config) {
            Ok(opened) => {
                let named =
                    *engine == Engine::Auto || (opened.engine == *engine && opened.fallback.is_none());
                assert!(named, "{name}: {:?}", opened.fallback);
            }
            Err(EngineError::Refused(why)) => eprintln!("skipped {name}: {why}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn on_a_target_that_refuses_nowait_a_measurement_chooses_and_is_reported() {
    // Character devices refuse RWF_NOWAIT unless they can be polled; /dev/full reads as zeroes.
    let Ok(file) = std::fs::File::open("/dev/full") else { return };
    let (limits, config) = (iopath_core::Limits::with_capacity(1 << 20), EngineConfig::default());
    let (file, opened) =
        (Arc::new(file), |engine: Engine, file: &Arc<std::fs::File>| engine.open(file, &limits, &config));
    if opened(Engine::Uring, &file).is_err() {
        eprintln!("skipped: io_uring is refused here");
        return;
    }
    let chosen = opened(Engine::Auto, &file).unwrap();
    let Some(fallback) = chosen.fallback else {
        assert_eq!(chosen.engine, Engine::Uring, "no reason is needed for io_uring");
        return;
    };
    assert_eq!(chosen.engine, Engine::Threads);
    let Reason::Slower(measured) = fallback.reason else { panic!("not measured: {fallback}") };
    assert!(measured.prefers_threads() && measured.threads.iops > 0, "{fallback}");
    let again = opened(Engine::Auto, &file).unwrap().fallback.expect("the same choice");
    assert_eq!(again.reason, fallback.reason, "measured once per target");
}
