//! The program in the kernel that records system calls: three parts, which run at the begin of each call, at its end,
//! and when a task creates another one.

#![expect(clippy::cast_possible_wrap, reason = "offsets in structures and places on the stack are small")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::super::bpf::{Assembler, Helper, Label, Reg, Size, When};
use super::super::btf::Btf;
use super::super::error::TraceError;
use super::{BEGIN, BLOCK, CALLS, COMMAND_BYTES, END, NAME_BYTES, REGULAR, Recorded, TYPE_MASK, at};

/// The values of a process in the map of processes.
const RECORDED: i32 = 1;
pub(super) const RECORDER: i32 = 2;

/// File systems without storage, whose files are interfaces of the kernel (`linux/magic.h`): proc, sysfs, debugfs,
/// tracefs, both cgroups, securityfs, configfs, devpts, pstore, efivarfs, selinuxfs, smackfs, `binfmt_misc`, mqueue,
/// bpf, resctrl, fusectl, `rpc_pipefs`, nfsd, and files without a name (eventfd, DMA buffers, secret memory).
const INTERFACES: [u32; 23] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x6367_7270,
    0x0027_e0eb,
    0x7363_6673,
    0x6265_6570,
    0x1cd1,
    0x6165_676c,
    0xde5e_81e4,
    0xf97c_ff8c,
    0x4341_5d53,
    0x4249_4e4d,
    0x1980_0202,
    0xcafe_4a11,
    0x0765_5821,
    0x6573_5543,
    0x6759_6969,
    0x6e66_7364,
    0x0904_1934,
    0x444d_4142,
    0x5345_434d,
];

/// The flag of a task that executes a system call of a 32-bit program, whose numbers are those of other calls.
const IS_32_BIT: Option<(&str, i32)> = if cfg!(target_arch = "x86_64") {
    // `TS_COMPAT`
    Some(("thread_info.status", 1 << 1))
} else if cfg!(target_arch = "aarch64") {
    // `TIF_32BIT`
    Some(("thread_info.flags", 1 << 22))
} else {
    None
};

/// The requests of `io_uring` that are accesses (`linux/io_uring.h`): reads and writes with a vector, with a registered
/// buffer, with both and plain, `fsync` and `sync_file_range`.
const RING_REQUESTS: [i32; 10] = [1, 2, 3, 4, 5, 8, 22, 23, 60, 61];

#[derive(Debug)]
pub(super) struct Maps {
    /// The event of each CPU.
    pub(super) events: OwnedFd,
    /// [`RECORDED`] or [`RECORDER`], by process.
    pub(super) processes: OwnedFd,
    /// The calls in progress, by process and thread.
    pub(super) calls: OwnedFd,
    /// The number of accesses through `io_uring`.
    pub(super) ring_requests: OwnedFd,
}

/// The registers of the arguments of a system call, in `pt_regs`.
pub(super) const REGISTERS: Option<[(&str, usize); 4]> = if cfg!(target_arch = "x86_64") {
    Some([("di", 0), ("si", 0), ("dx", 0), ("r10", 0)])
} else if cfg!(target_arch = "aarch64") {
    Some([("regs", 0), ("regs", 8), ("regs", 16), ("regs", 24)])
} else {
    None
};

/// Where the members of the kernel's structures are.
#[derive(Debug)]
pub(super) struct Offsets {
    arguments: [i32; 4],
    task_files: i32,
    task_pid: i32,
    task_tgid: i32,
    /// The word with the flag of [`IS_32_BIT`].
    task_is_32_bit: Option<i32>,
    files_table: i32,
    table_files: i32,
    table_len: i32,
    file_inode: i32,
    file_position: i32,
    file_flags: i32,
    file_name: i32,
    name_text: i32,
    inode_mode: i32,
    inode_number: i32,
    inode_bytes: i32,
    inode_generation: i32,
    inode_own_device: i32,
    inode_super: i32,
    super_device: i32,
    super_magic: i32,
    /// The operation of a request of `io_uring`, on kernels that have them.
    ring_operation: Option<i32>,
}

impl Offsets {
    pub(super) fn find(btf: &Btf, registers: [(&str, usize); 4]) -> Result<Self, TraceError> {
        let of = |structure, member| btf.offset(structure, member).map(|offset| offset as i32);
        let mut arguments = [0; 4];
        for (argument, (register, offset)) in arguments.iter_mut().zip(registers) {
            *argument = of("pt_regs", register)? + offset as i32;
        }
        Ok(Self {
            arguments,
            task_files: of("task_struct", "files")?,
            task_pid: of("task_struct", "pid")?,
            task_tgid: of("task_struct", "tgid")?,
            task_is_32_bit: IS_32_BIT.map(|(member, _)| of("task_struct", member)).transpose()?,
            files_table: of("files_struct", "fdt")?,
            table_files: of("fdtable", "fd")?,
            table_len: of("fdtable", "max_fds")?,
            file_inode: of("file", "f_inode")?,
            file_position: of("file", "f_pos")?,
            file_flags: of("file", "f_flags")?,
            file_name: of("file", "f_path.dentry")?,
            name_text: of("dentry", "d_name.name")?,
            inode_mode: of("inode", "i_mode")?,
            inode_number: of("inode", "i_ino")?,
            inode_bytes: of("inode", "i_size")?,
            inode_generation: of("inode", "i_generation")?,
            inode_own_device: of("inode", "i_rdev")?,
            inode_super: of("inode", "i_sb")?,
            super_device: of("super_block", "s_dev")?,
            super_magic: of("super_block", "s_magic")?,
            ring_operation: of("io_kiocb", "opcode").ok(),
        })
    }
}

/// Places on the stack of a program, below its end.
const TASK_KEY: i16 = -8;
const PROCESS_KEY: i16 = -16;
const FOUND: i16 = -24;
const CONTEXT: i16 = -32;
const RECORD: i16 = CONTEXT - at::BEGIN_BYTES as i16;

const fn in_record(at: usize) -> i16 {
    RECORD + at as i16
}

/// Reads `bytes` at an address of the kernel to the stack. What cannot be read is zero.
fn read(program: &mut Assembler, to: i16, bytes: i32, base: Reg, offset: i32) {
    program.copy(Reg::R3, base);
    program.add(Reg::R3, offset);
    program.copy(Reg::R1, Reg::R10);
    program.add(Reg::R1, to.into());
    program.set(Reg::R2, bytes);
    program.call(Helper::ReadKernel);
}

/// Reads an address at an address of the kernel.
fn follow(program: &mut Assembler, to: Reg, base: Reg, offset: i32) {
    read(program, FOUND, 8, base, offset);
    program.load(Size::U64, to, Reg::R10, FOUND);
}

/// Stores the numbers of the current thread as keys, and leaves the value of its process in `R0`, 0 for none.
fn find_process(program: &mut Assembler, maps: &Maps) {
    program.call(Helper::CurrentPidTgid);
    program.store(Size::U64, Reg::R10, TASK_KEY, Reg::R0);
    program.shift_right(Reg::R0, 32);
    program.store(Size::U32, Reg::R10, PROCESS_KEY, Reg::R0);
    with_key(program, maps.processes.as_fd(), PROCESS_KEY);
    program.call(Helper::MapLookup);
}

/// Continues if the accesses of the current process are recorded.
fn only_recorded(program: &mut Assembler, maps: &Maps, recorded: Recorded, out: Label) {
    find_process(program, maps);
    match recorded {
        Recorded::All => program.jump_if(When::NotEqual, Reg::R0, 0, out),
        Recorded::Started => {
            program.jump_if(When::Equal, Reg::R0, 0, out);
            program.load(Size::U32, Reg::R1, Reg::R0, 0);
            program.jump_if(When::NotEqual, Reg::R1, RECORDED, out);
        }
    }
}

fn with_key(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.set_map(Reg::R1, map);
    program.copy(Reg::R2, Reg::R10);
    program.add(Reg::R2, key.into());
}

/// Puts the first `bytes` of the record into the ring of this CPU.
fn output(program: &mut Assembler, maps: &Maps, bytes: usize) {
    program.load(Size::U64, Reg::R1, Reg::R10, CONTEXT);
    program.set_map(Reg::R2, maps.events.as_fd());
    // `BPF_F_CURRENT_CPU`
    program.set_32(Reg::R3, -1);
    program.copy(Reg::R4, Reg::R10);
    program.add(Reg::R4, RECORD.into());
    program.set(Reg::R5, bytes as i32);
    program.call(Helper::PerfEventOutput);
}

fn end(mut program: Assembler, out: Label) -> Assembler {
    program.place(out);
    program.set(Reg::R0, 0);
    program.exit();
    program
}

/// At the begin of a system call. Its context is the registers of the call and the number of the call.
pub(super) fn begin_of_call(maps: &Maps, kernel: &Offsets, recorded: Recorded) -> Assembler {
    let mut program = Assembler::default();
    let p = &mut program;
    let (out, is_call) = (p.label(), p.label());
    p.store(Size::U64, Reg::R10, CONTEXT, Reg::R1);
    p.load(Size::U64, Reg::R6, Reg::R1, 0);
    p.load(Size::U64, Reg::R7, Reg::R1, 8);
    for (number, ..) in CALLS {
        p.jump_if(When::Equal, Reg::R7, number as i32, is_call);
    }
    p.jump(out);
    p.place(is_call);
    only_recorded(p, maps, recorded, out);
    if let (Some(word), Some((_, flag))) = (kernel.task_is_32_bit, IS_32_BIT) {
        p.call(Helper::CurrentTask);
        read(p, FOUND, 4, Reg::R0, word);
        p.load(Size::U32, Reg::R1, Reg::R10, FOUND);
        p.and(Reg::R1, flag);
        p.jump_if(When::NotEqual, Reg::R1, 0, out);
    }
    // The number of the call in the upper half, then the kind, and no tracepoint.
    p.shift_left(Reg::R7, 32);
    p.or(Reg::R7, i32::from(BEGIN) << 16);
    p.store(Size::U64, Reg::R10, RECORD, Reg::R7);
    find_file(p, kernel, out);
    // `R8` is the file.
    read(p, in_record(at::POSITION), 8, Reg::R8, kernel.file_position);
    read(p, in_record(at::FLAGS), 4, Reg::R8, kernel.file_flags);
    follow(p, Reg::R9, Reg::R8, kernel.file_name);
    follow(p, Reg::R8, Reg::R8, kernel.file_inode);
    p.store_value(Size::U64, Reg::R10, in_record(at::MODE), 0);
    read(p, in_record(at::MODE), 2, Reg::R8, kernel.inode_mode);
    read(p, in_record(at::GENERATION), 4, Reg::R8, kernel.inode_generation);
    let is_file = p.label();
    p.load(Size::U32, Reg::R1, Reg::R10, in_record(at::MODE));
    p.and(Reg::R1, TYPE_MASK);
    p.jump_if(When::Equal, Reg::R1, REGULAR, is_file);
    p.jump_if(When::NotEqual, Reg::R1, BLOCK, out);
    p.place(is_file);
    read(p, in_record(at::INODE), 8, Reg::R8, kernel.inode_number);
    read(p, in_record(at::FILE_BYTES), 8, Reg::R8, kernel.inode_bytes);
    read(p, in_record(at::OWN_DEVICE), 4, Reg::R8, kernel.inode_own_device);
    follow(p, Reg::R8, Reg::R8, kernel.inode_super);
    read(p, in_record(at::DEVICE), 4, Reg::R8, kernel.super_device);
    follow(p, Reg::R8, Reg::R8, kernel.super_magic);
    for magic in INTERFACES {
        // The comparison with a constant would extend its sign.
        p.set_32(Reg::R1, magic.cast_signed());
        p.jump_if_reg(When::Equal, Reg::R8, Reg::R1, out);
    }
    for (index, argument) in kernel.arguments.iter().skip(1).enumerate() {
        read(p, in_record(at::ARGUMENTS + 8 * index), 8, Reg::R6, *argument);
    }
    p.copy(Reg::R1, Reg::R10);
    p.add(Reg::R1, in_record(at::COMMAND).into());
    p.set(Reg::R2, COMMAND_BYTES as i32);
    p.call(Helper::CurrentComm);
    for part in (0..NAME_BYTES).step_by(8) {
        p.store_value(Size::U64, Reg::R10, in_record(at::NAME + part), 0);
    }
    follow(p, Reg::R3, Reg::R9, kernel.name_text);
    p.copy(Reg::R1, Reg::R10);
    p.add(Reg::R1, in_record(at::NAME).into());
    p.set(Reg::R2, NAME_BYTES as i32);
    p.call(Helper::ReadKernelText);
    // The end of the call needs to know that its begin is recorded.
    with_key(p, maps.calls.as_fd(), TASK_KEY);
    p.copy(Reg::R3, Reg::R10);
    p.add(Reg::R3, PROCESS_KEY.into());
    p.set(Reg::R4, 0);
    p.call(Helper::MapUpdate);
    p.jump_if(When::NotEqual, Reg::R0, 0, out);
    output(p, maps, at::BEGIN_BYTES);
    p.jump_if(When::Equal, Reg::R0, 0, out);
    // The begin is lost: its end must not be that of an earlier begin.
    with_key(p, maps.calls.as_fd(), TASK_KEY);
    p.call(Helper::MapDelete);
    end(program, out)
}

/// Finds the file of the first argument; leaves its address in `R8`.
fn find_file(p: &mut Assembler, kernel: &Offsets, out: Label) {
    follow(p, Reg::R9, Reg::R6, kernel.arguments[0]);
    p.copy_32(Reg::R9, Reg::R9);
    p.store(Size::U32, Reg::R10, in_record(at::DESCRIPTOR), Reg::R9);
    p.call(Helper::CurrentTask);
    follow(p, Reg::R8, Reg::R0, kernel.task_files);
    follow(p, Reg::R8, Reg::R8, kernel.files_table);
    read(p, FOUND, 4, Reg::R8, kernel.table_len);
    p.load(Size::U32, Reg::R1, Reg::R10, FOUND);
    p.jump_if_reg(When::AtLeast, Reg::R9, Reg::R1, out);
    follow(p, Reg::R8, Reg::R8, kernel.table_files);
    p.shift_left(Reg::R9, 3);
    p.add_reg(Reg::R8, Reg::R9);
    follow(p, Reg::R8, Reg::R8, 0);
    p.jump_if(When::Equal, Reg::R8, 0, out);
}

/// At the end of a system call. Its context is the registers of the call and the result.
pub(super) fn end_of_call(maps: &Maps) -> Assembler {
    let mut program = Assembler::default();
    let p = &mut program;
    let out = p.label();
    p.store(Size::U64, Reg::R10, CONTEXT, Reg::R1);
    p.load(Size::U64, Reg::R6, Reg::R1, 8);
    p.call(Helper::CurrentPidTgid);
    p.store(Size::U64, Reg::R10, TASK_KEY, Reg::R0);
    // Most calls have no recorded begin, and a lookup takes no lock.
    with_key(p, maps.calls.as_fd(), TASK_KEY);
    p.call(Helper::MapLookup);
    p.jump_if(When::Equal, Reg::R0, 0, out);
    with_key(p, maps.calls.as_fd(), TASK_KEY);
    p.call(Helper::MapDelete);
    p.set(Reg::R7, i32::from(END) << 16);
    p.store(Size::U64, Reg::R10, RECORD, Reg::R7);
    p.store(Size::U64, Reg::R10, in_record(at::RESULT), Reg::R6);
    output(p, maps, at::END_BYTES);
    end(program, out)
}

/// When a task creates another one. Its context is both tasks.
pub(super) fn fork(maps: &Maps, kernel: &Offsets) -> Assembler {
    let mut program = Assembler::default();
    let p = &mut program;
    let (out, is_other) = (p.label(), p.label());
    p.load(Size::U64, Reg::R6, Reg::R1, 8);
    read(p, FOUND, 4, Reg::R6, kernel.task_pid);
    p.load(Size::U32, Reg::R7, Reg::R10, FOUND);
    read(p, FOUND, 4, Reg::R6, kernel.task_tgid);
    p.load(Size::U32, Reg::R8, Reg::R10, FOUND);
    // A thread belongs to its process.
    p.jump_if_reg(When::NotEqual, Reg::R7, Reg::R8, out);
    find_process(p, maps);
    p.copy(Reg::R6, Reg::R0);
    p.store(Size::U32, Reg::R10, PROCESS_KEY, Reg::R8);
    with_key(p, maps.processes.as_fd(), PROCESS_KEY);
    p.jump_if(When::Equal, Reg::R6, 0, is_other);
    p.store_value(Size::U32, Reg::R10, FOUND, RECORDED);
    p.copy(Reg::R3, Reg::R10);
    p.add(Reg::R3, FOUND.into());
    p.set(Reg::R4, 0);
    p.call(Helper::MapUpdate);
    p.jump(out);
    p.place(is_other);
    // The number of a recorded process that has ended is used again.
    p.call(Helper::MapDelete);
    end(program, out)
}

/// When the memory of a task is released. Its context is the task. Otherwise the map would be full after as many
/// processes as it has room for.
pub(super) fn free(maps: &Maps, kernel: &Offsets) -> Assembler {
    let mut program = Assembler::default();
    let p = &mut program;
    let out = p.label();
    p.load(Size::U64, Reg::R6, Reg::R1, 0);
    read(p, FOUND, 4, Reg::R6, kernel.task_pid);
    p.load(Size::U32, Reg::R7, Reg::R10, FOUND);
    read(p, FOUND, 4, Reg::R6, kernel.task_tgid);
    p.load(Size::U32, Reg::R8, Reg::R10, FOUND);
    // The process ends with its first thread, which is released last.
    p.jump_if_reg(When::NotEqual, Reg::R7, Reg::R8, out);
    p.store(Size::U32, Reg::R10, PROCESS_KEY, Reg::R8);
    with_key(p, maps.processes.as_fd(), PROCESS_KEY);
    p.call(Helper::MapDelete);
    end(program, out)
}

/// When a request of `io_uring` is submitted. Its context is the request, of which only the operation is known here:
/// the file of a registered number, and the range after a poll, follow later.
pub(super) fn ring_request(maps: &Maps, kernel: &Offsets, recorded: Recorded) -> Option<Assembler> {
    let operation = kernel.ring_operation?;
    let mut program = Assembler::default();
    let p = &mut program;
    let (out, is_access) = (p.label(), p.label());
    p.load(Size::U64, Reg::R6, Reg::R1, 0);
    p.store_value(Size::U64, Reg::R10, FOUND, 0);
    read(p, FOUND, 1, Reg::R6, operation);
    p.load(Size::U64, Reg::R7, Reg::R10, FOUND);
    for number in RING_REQUESTS {
        p.jump_if(When::Equal, Reg::R7, number, is_access);
    }
    p.jump(out);
    p.place(is_access);
    only_recorded(p, maps, recorded, out);
    p.store_value(Size::U64, Reg::R10, FOUND, 0);
    with_key(p, maps.ring_requests.as_fd(), FOUND);
    p.call(Helper::MapLookup);
    p.jump_if(When::Equal, Reg::R0, 0, out);
    p.set(Reg::R1, 1);
    p.add_to(Reg::R0, 0, Reg::R1);
    Some(end(program, out))
}
