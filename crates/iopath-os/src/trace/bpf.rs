//! The system call `bpf`: maps, programs and raw tracepoints, and the few instructions that the programs of this crate
//! use. The numbers are those of `linux/bpf.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const CMD_MAP_CREATE: libc::c_long = 0;
const CMD_MAP_LOOKUP: libc::c_long = 1;
const CMD_MAP_UPDATE: libc::c_long = 2;
const CMD_PROG_LOAD: libc::c_long = 5;
const CMD_RAW_TRACEPOINT_OPEN: libc::c_long = 17;

const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// The helpers that read the kernel's memory require a licence that the kernel considers compatible with its own.
/// It applies to the instructions that are loaded, which `accesses.rs` assembles.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Kinds of maps.
pub(super) const MAP_HASH: u32 = 1;
pub(super) const MAP_ARRAY: u32 = 2;
pub(super) const MAP_PERF_EVENTS: u32 = 4;

/// Functions of the kernel that a program may call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    CurrentPidTgid = 14,
    CurrentComm = 16,
    PerfEventOutput = 25,
    CurrentTask = 35,
    ReadKernel = 113,
    ReadKernelText = 115,
}

/// A register. `R1` to `R5` are the arguments of a call and are undefined after it, `R0` is its result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    /// The end of the stack.
    R10,
}

/// The size of a load or store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    U32 = 0x00,
    U64 = 0x18,
}

/// The condition of a jump.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Equal = 0x10,
    AtLeast = 0x30,
    NotEqual = 0x50,
}

/// The target of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program that is assembled.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<[u8; 8]>,
    /// The position of each label.
    labels: Vec<Option<usize>>,
    /// Jumps and their targets.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, dst: Reg, src: u8, offset: i16, value: i32) {
        let [o0, o1] = offset.to_ne_bytes();
        let [v0, v1, v2, v3] = value.to_ne_bytes();
        self.instructions.push([code, dst as u8 | src << 4, o0, o1, v0, v1, v2, v3]);
    }

    /// `dst = src`
    pub(super) fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(0xBF, dst, src as u8, 0, 0);
    }

    /// `dst = src`, its lower 32 bits
    pub(super) fn copy_32(&mut self, dst: Reg, src: Reg) {
        self.push(0xBC, dst, src as u8, 0, 0);
    }

    /// `dst = value`
    pub(super) fn set(&mut self, dst: Reg, value: i32) {
        self.push(0xB7, dst, 0, 0, value);
    }

    /// `dst = value`, of 32 bits
    pub(super) fn set_32(&mut self, dst: Reg, value: i32) {
        self.push(0xB4, dst, 0, 0, value);
    }

    /// `dst += value`
    pub(super) fn add(&mut self, dst: Reg, value: i32) {
        self.push(0x07, dst, 0, 0, value);
    }

    /// `dst += src`
    pub(super) fn add_reg(&mut self, dst: Reg, src: Reg) {
        self.push(0x0F, dst, src as u8, 0, 0);
    }

    /// `dst &= value`
    pub(super) fn and(&mut self, dst: Reg, value: i32) {
        self.push(0x57, dst, 0, 0, value);
    }

    /// `dst |= value`
    pub(super) fn or(&mut self, dst: Reg, value: i32) {
        self.push(0x47, dst, 0, 0, value);
    }

    /// `dst <<= bits`
    pub(super) fn shift_left(&mut self, dst: Reg, bits: i32) {
        self.push(0x67, dst, 0, 0, bits);
    }

    /// `dst >>= bits`
    pub(super) fn shift_right(&mut self, dst: Reg, bits: i32) {
        self.push(0x77, dst, 0, 0, bits);
    }

    /// `dst = *(base + offset)`
    pub(super) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(0x61 | size as u8, dst, base as u8, offset, 0);
    }

    /// `*(base + offset) = src`
    pub(super) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Reg) {
        self.push(0x63 | size as u8, base, src as u8, offset, 0);
    }

    /// `*(base + offset) = value`
    pub(super) fn store_value(&mut self, size: Size, base: Reg, offset: i16, value: i32) {
        self.push(0x62 | size as u8, base, 0, offset, value);
    }

    /// `*(base + offset) += src`, of 64 bits, atomically
    pub(super) fn add_to(&mut self, base: Reg, offset: i16, src: Reg) {
        self.push(0xDB, base, src as u8, offset, 0);
    }

    /// `dst = map`
    pub(super) fn set_map(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        let pseudo_map = 1;
        self.push(0x18, dst, pseudo_map, 0, map.as_raw_fd());
        self.push(0, Reg::R0, 0, 0, 0);
    }

    pub(super) fn call(&mut self, helper: Helper) {
        self.push(0x85, Reg::R0, 0, 0, helper as i32);
    }

    pub(super) fn exit(&mut self) {
        self.push(0x95, Reg::R0, 0, 0, 0);
    }

    /// A label to be placed later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Jumps to this label continue here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x05, Reg::R0, 0, 0, 0);
    }

    /// Jumps if `dst` and `value` meet the condition.
    pub(super) fn jump_if(&mut self, when: When, dst: Reg, value: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x05 | when as u8, dst, 0, 0, value);
    }

    /// Jumps if `dst` and `src` meet the condition.
    pub(super) fn jump_if_reg(&mut self, when: When, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x0D | when as u8, dst, src as u8, 0, 0);
    }

    fn finish(mut self) -> Vec<[u8; 8]> {
        for (at, to) in self.jumps {
            let target = self.labels[to.0].expect("every label is placed");
            let distance =
                i16::try_from(target.cast_signed() - at.cast_signed() - 1).expect("programs are short");
            self.instructions[at][2..4].copy_from_slice(&distance.to_ne_bytes());
        }
        self.instructions
    }

    /// Loads the program, for a raw tracepoint.
    pub(super) fn load_program(self) -> io::Result<OwnedFd> {
        /// The first fields of a program in `union bpf_attr`.
        #[repr(C)]
        #[derive(Default)]
        struct Program {
            kind: u32,
            count: u32,
            instructions: u64,
            licence: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
        }
        let instructions = self.finish();
        let program = Program {
            kind: PROG_TYPE_RAW_TRACEPOINT,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            licence: LICENCE.as_ptr() as u64,
            ..Program::default()
        };
        // SAFETY: instructions and licence are valid during the call, with the stated count and a final zero.
        unsafe { bpf_file(CMD_PROG_LOAD, &program) }
    }
}

/// Creates a map.
pub(super) fn create_map(kind: u32, key_bytes: u32, value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    let attributes = [kind, key_bytes, value_bytes, entries];
    // SAFETY: the attributes have no address.
    unsafe { bpf_file(CMD_MAP_CREATE, &attributes) }
}

/// An element of a map in `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The value of a key in a map with keys of 32 bits and values of 64.
pub(super) fn value_in_map(map: BorrowedFd<'_>, key: u32) -> io::Result<u64> {
    let mut value = 0_u64;
    let element = Element {
        map: map.as_raw_fd() as u32,
        key: &raw const key as u64,
        value: &raw mut value as u64,
        ..Element::default()
    };
    // SAFETY: key and value are valid during the call and have the size of the map's.
    unsafe { bpf(CMD_MAP_LOOKUP, &element) }.map(|_| value)
}

/// Sets the value of a key, both of 32 bits as [`create_map`] was told.
pub(super) fn set_in_map(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    let element = Element { map: map.as_raw_fd() as u32, key, value, ..Element::default() };
    // SAFETY: key and value are valid during the call and have the size of the map's.
    unsafe { bpf(CMD_MAP_UPDATE, &element) }.map(drop)
}

/// Runs a program at a raw tracepoint until the file is closed.
pub(super) fn attach(program: &OwnedFd, tracepoint: &std::ffi::CStr) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attach {
        name: u64,
        program: u32,
        reserved: u32,
    }
    let attributes =
        Attach { name: tracepoint.as_ptr() as u64, program: program.as_raw_fd() as u32, reserved: 0 };
    // SAFETY: the name is valid during the call and ends in a zero.
    unsafe { bpf_file(CMD_RAW_TRACEPOINT_OPEN, &attributes) }
}

/// # Safety
/// As for [`bpf`]; the command must return a new file.
unsafe fn bpf_file<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises what `bpf` needs.
    let file = unsafe { bpf(command, attributes)? };
    // SAFETY: the kernel returned a new file that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file as libc::c_int) })
}

/// # Safety
/// The attributes must have the layout that the command requires, and their addresses must be valid during the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads the stated size; the caller promises the rest.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_count_the_instructions_after_them() {
        let mut program = Assembler::default();
        let (start, end) = (program.label(), program.label());
        program.place(start);
        program.set(Reg::R0, 1);
        program.jump_if(When::Equal, Reg::R0, 2, end);
        program.jump(start);
        program.place(end);
        program.exit();
        let offsets: Vec<_> =
            program.finish().iter().map(|one| i16::from_ne_bytes([one[2], one[3]])).collect();
        assert_eq!(offsets, [0, 1, -3, 0]);
    }
}
