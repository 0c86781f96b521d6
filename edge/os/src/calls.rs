//! Which system calls: seccomp with a filter program.

use crate::ConfineError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;

/// What a program needs that computes: its memory, threads and time, and the files that are open.
const COMPUTING: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Further calls of a process that runs modules. It gets memory of others by the first. The second aborts endless calls, and signals to the process itself
/// alone ([`to_itself`]). The others end the loading of code ([`no_new_code`]).
const RUNNING: &[libc::c_long] =
    &[libc::SYS_recvmsg, libc::SYS_tgkill, libc::SYS_prctl, libc::SYS_seccomp, crate::code::SEAL];
/// Rights to memory that change code, or make it.
const CODE: u64 = (libc::PROT_WRITE | libc::PROT_EXEC).unsigned_abs() as u64;
const EXECUTES: u64 = libc::PROT_EXEC.unsigned_abs() as u64;
const WRITES: u64 = libc::PROT_WRITE.unsigned_abs() as u64;
/// What makes a thread (clone(2)). Whoever leaves one of these out makes another process: that would have limits of its own, and would not end with the first.
const THREAD: libc::c_int = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;

/// The calls of a program that answers what it is asked through what is open: memory, what is open, and to end.
const SIGNING: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// What nothing in a node needs, and whoever took it over would.
const OF_OTHERS: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    // The kernel itself.
    libc::SYS_acct,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_perf_event_open,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    // A way around this filter.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // Other views of the files.
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Memory with rights that no filter sees.
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    // Keys, names and clocks of the system.
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
];

/// Other programs, and processes beside its own. A node has its [spawner](crate::spawner) start what it needs.
const PROGRAMS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls of a spawner alone: the processes that it starts empty their roots by them.
const OF_ROOT: &[libc::c_long] = &[libc::SYS_mount, libc::SYS_pivot_root, libc::SYS_umount2];

/// Denied calls fail as if a right was missing: programs expect that, and go on or say so. (Killing them would make a fault of weir look like one of
/// the module that is compiled.)
fn denied() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn all_of(listed: &[libc::c_long]) -> Rules {
    listed.iter().map(|call| (*call, Vec::new())).collect()
}

fn apply(rules: Rules, listed_are: SeccompAction, others_are: SeccompAction) -> Result<(), ConfineError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::from)?;
    let filter = SeccompFilter::new(rules, others_are, listed_are, arch).map_err(seccompiler::Error::from)?;
    let program: BpfProgram = filter.try_into().map_err(seccompiler::Error::from)?;
    Ok(seccompiler::apply_filter(&[without_x32().to_vec(), program].concat())?)
}

/// x86-64 kernels may know a second set of numbers for the same calls, x32, which a list of the first does not have (seccomp(2), notes).
fn without_x32() -> [sock_filter; 3] {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    [
        // The number is what a program is shown first.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, refused),
    ]
}

/// Whoever is told that there is no such call makes do with the older one: the flags of this one lie in memory, where no filter sees them.
fn without_clone3() -> Result<(), ConfineError> {
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    apply(all_of(&[libc::SYS_clone3]), missing, SeccompAction::Allow)
}

/// A call of which these bits of an argument are to be so.
fn only_if(argument: u8, is: SeccompCmpOp, value: u64) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, is, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Calls of a program that computes: it has threads, no processes, and no code but its own.
fn computing() -> Result<Rules, ConfineError> {
    let thread = u64::from(THREAD.unsigned_abs());
    let mut rules = all_of(COMPUTING);
    rules.insert(libc::SYS_clone, only_if(0, SeccompCmpOp::MaskedEq(thread), thread)?);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTES), 0)?);
    }
    Ok(rules)
}

/// Memory whose rights have exactly these of those to write and to execute.
fn with_rights(rights: u64) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    only_if(2, SeccompCmpOp::MaskedEq(CODE), rights)
}

pub(crate) fn only_computing() -> Result<(), ConfineError> {
    without_clone3()?;
    apply(computing()?, SeccompAction::Allow, denied())
}

pub(crate) fn only_running() -> Result<(), ConfineError> {
    without_clone3()?;
    let mut rules = computing()?;
    rules.extend(all_of(RUNNING));
    rules.insert(libc::SYS_tgkill, to_itself()?);
    // A module's code is written, and then made executable: never both at a time.
    rules
        .insert(libc::SYS_mprotect, [with_rights(0)?, with_rights(WRITES)?, with_rights(EXECUTES)?].concat());
    rules.insert(libc::SYS_prctl, only_if(0, SeccompCmpOp::Eq, crate::code::NO_MORE)?);
    rules.insert(libc::SYS_seccomp, only_if(0, SeccompCmpOp::Eq, libc::SECCOMP_SET_MODE_FILTER.into())?);
    apply(rules, SeccompAction::Allow, denied())
}

/// Closes what [`only_running`] left open to load code, in all threads.
pub(crate) fn no_new_code() -> Result<(), ConfineError> {
    let mut rules = all_of(&[libc::SYS_prctl, libc::SYS_seccomp]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTES), EXECUTES)?);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::from)?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, denied(), arch).map_err(seccompiler::Error::from)?;
    let program: BpfProgram = filter.try_into().map_err(seccompiler::Error::from)?;
    let len =
        libc::c_ushort::try_from(program.len()).map_err(std::io::Error::other).map_err(ConfineError::Code)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the pointer is to a live program of the length that it says; a filter's instruction is the same in both crates.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, all, &raw const program) } {
        0 => Ok(()),
        _ => Err(ConfineError::Code(std::io::Error::last_os_error())),
    }
}

/// A signal to a thread of this very process: of the same user are the node, the keeper of its key and all its wards.
fn to_itself() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    only_if(0, SeccompCmpOp::Eq, u64::from(std::process::id()))
}

pub(crate) fn only_signing() -> Result<(), ConfineError> {
    let mut rules = all_of(SIGNING);
    // New memory and other rights for what there is, but none to execute it.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTES), 0)?);
    }
    apply(rules, SeccompAction::Allow, denied())
}

/// Calls that nothing in a node needs, and memory that is writable and executable at the same time.
fn of_others() -> Result<Rules, ConfineError> {
    let mut rules = all_of(OF_OTHERS);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, with_rights(CODE)?);
    }
    Ok(rules)
}

pub(crate) fn none_of_others() -> Result<(), ConfineError> {
    let mut rules = of_others()?;
    rules.extend(all_of(PROGRAMS));
    // Threads are made, and nothing else: each of these has to be there.
    let flags = [libc::CLONE_VM, libc::CLONE_SIGHAND, libc::CLONE_THREAD];
    let lacks = flags.map(|flag| only_if(0, SeccompCmpOp::MaskedEq(u64::from(flag.unsigned_abs())), 0));
    rules.insert(libc::SYS_clone, lacks.into_iter().collect::<Result<Vec<_>, _>>()?.concat());
    apply(rules, denied(), SeccompAction::Allow)?;
    without_clone3()
}

pub(crate) fn none_of_a_spawner() -> Result<(), ConfineError> {
    let mut rules = of_others()?;
    for call in OF_ROOT {
        rules.remove(call);
    }
    apply(rules, denied(), SeccompAction::Allow)
}
