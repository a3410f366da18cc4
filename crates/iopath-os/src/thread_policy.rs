//! Settings of the calling thread that no safe interface has: the priority of its I/O, the nodes of its memory, its
//! nice value.

use iopath_core::debug;
use std::fmt;
use std::io;

/// A class of I/O priorities (`ioprio_set(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoClass {
    /// By the nice value of the thread.
    #[default]
    None,
    /// Before all others.
    RealTime,
    /// The class of most programs.
    BestEffort,
    /// Only when no other thread has I/O.
    Idle,
}

/// The priority of I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoPriority {
    /// The class.
    pub class: IoClass,
    /// From 0, the highest, to 7.
    pub level: u8,
    /// A hint for the device, such as a limit of the duration of commands; 0 is none.
    pub hint: u16,
}

/// `IOPRIO_HINT_SHIFT` of the kernel.
const HINT_SHIFT: u32 = 3;

/// The highest hint.
pub const HINT_MAX: u16 = (1 << (CLASS_SHIFT - HINT_SHIFT)) - 1;

/// `IOPRIO_CLASS_SHIFT` of the kernel.
const CLASS_SHIFT: u32 = 13;

/// `IOPRIO_WHO_PROCESS` of the kernel: with number 0, the calling thread.
const WHO_PROCESS: libc::c_int = 1;

impl IoPriority {
    /// The number of the kernel's interfaces: three bits of the class, ten of the hint, and the level.
    pub const fn number(self) -> u16 {
        let class = match self.class {
            IoClass::None => 0,
            IoClass::RealTime => 1,
            IoClass::BestEffort => 2,
            IoClass::Idle => 3,
        };
        class << CLASS_SHIFT | (self.hint & HINT_MAX) << HINT_SHIFT | self.level as u16
    }

    /// Whether it is of the highest class.
    pub const fn is_real_time(self) -> bool {
        matches!(self.class, IoClass::RealTime)
    }
}

impl fmt::Display for IoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.class {
            IoClass::None => "none",
            IoClass::RealTime => "real time",
            IoClass::BestEffort => "best effort",
            IoClass::Idle => "idle",
        };
        write!(f, "{class}, level {}", self.level)
    }
}

/// The nodes on which the kernel allocates the memory of a thread (`set_mempolicy(2)`).
#[derive(Clone, PartialEq, Eq, Default)]
pub enum MemoryPolicy {
    /// The node of the CPU.
    #[default]
    Default,
    /// This node, if it has free memory.
    Prefer(usize),
    /// These nodes only.
    Bind(Vec<usize>),
    /// These nodes in turn.
    Interleave(Vec<usize>),
}

impl fmt::Debug for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("Default"),
            Self::Prefer(node) => f.debug_tuple("Prefer").field(node).finish(),
            Self::Bind(nodes) => f.debug_tuple("Bind").field(&debug::List(nodes)).finish(),
            Self::Interleave(nodes) => f.debug_tuple("Interleave").field(&debug::List(nodes)).finish(),
        }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[usize]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Default => f.write_str("default"),
            Self::Prefer(node) => write!(f, "prefer:{node}"),
            Self::Bind(nodes) => write!(f, "bind:{}", list(nodes)),
            Self::Interleave(nodes) => write!(f, "interleave:{}", list(nodes)),
        }
    }
}

/// Bits of a mask of nodes.
const MASK_BITS: usize = 1024;

/// Bits of a word of the mask.
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Sets the priority of the I/O of the calling thread. The default priority changes nothing.
///
/// # Errors
/// EPERM: the class needs a capability. EINVAL: the level is above 7.
pub fn set_io_priority(priority: IoPriority) -> io::Result<()> {
    if priority == IoPriority::default() {
        return Ok(());
    }
    let number = libc::c_int::from(priority.number());
    // SAFETY: the call has integers as arguments, and accesses no memory of the process.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, number) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the nodes of memory that the calling thread allocates from now on. The default policy changes nothing.
///
/// # Errors
/// EINVAL: there is no such node. ENOSYS: the kernel knows no nodes.
pub fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    let (mode, nodes) = match policy {
        MemoryPolicy::Default => return Ok(()),
        MemoryPolicy::Prefer(node) => (libc::MPOL_PREFERRED, std::slice::from_ref(node)),
        MemoryPolicy::Bind(nodes) => (libc::MPOL_BIND, &nodes[..]),
        MemoryPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, &nodes[..]),
    };
    let mut mask = [0 as libc::c_ulong; MASK_BITS / WORD_BITS];
    for &node in nodes {
        let word = mask.get_mut(node / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % WORD_BITS);
    }
    // SAFETY: the kernel reads `MASK_BITS` bits at the address of `mask`, which lives until the end of the call. The
    // last argument counts one bit more than the kernel uses.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), MASK_BITS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Adds to the nice value of the calling thread.
///
/// # Errors
/// EPERM or EACCES: a lower value needs a capability.
pub fn add_nice(value: i32) -> io::Result<()> {
    // SAFETY: these calls have integers as arguments, and access no memory of the process. Number 0 is the calling
    // thread.
    let result = unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice.saturating_add(value))
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Runs a test on a thread of its own, since the settings stay with the thread.
    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn the_priority_of_a_thread_is_that_of_the_kernel() {
        on_a_thread(|| {
            let priority = IoPriority { class: IoClass::BestEffort, level: 7, hint: 0 };
            set_io_priority(priority).unwrap();
            // SAFETY: the call has integers as arguments, and accesses no memory of the process.
            let number = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
            assert_eq!(number, i64::from(priority.number()));
            assert_eq!(priority.number(), 2 << 13 | 7);
            assert_eq!(IoPriority { hint: 3, ..priority }.number(), 2 << 13 | 3 << 3 | 7);
        });
    }

    #[test]
    fn the_nice_value_of_a_thread_grows() {
        on_a_thread(|| {
            // SAFETY: the call has integers as arguments, and accesses no memory of the process.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = nice();
            add_nice(1).unwrap();
            assert_eq!(nice(), (before + 1).min(19));
        });
    }

    #[test]
    fn a_node_that_does_not_exist_is_an_error() {
        on_a_thread(|| {
            for node in [900, 5000] {
                assert!(set_memory_policy(&MemoryPolicy::Bind(vec![node])).is_err(), "{node}");
            }
            set_memory_policy(&MemoryPolicy::Default).unwrap();
        });
    }

    #[test]
    fn memory_may_be_bound_to_the_first_node() {
        on_a_thread(|| match set_memory_policy(&MemoryPolicy::Bind(vec![0])) {
            Ok(()) => drop(vec![1_u8; 1 << 20]),
            Err(error) => eprintln!("skipped: this kernel has no memory policies: {error}"),
        });
    }
}
