//! The system-call filter of each kind of process: seccomp with a BPF program.

use crate::ConfineError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;

/// Calls that every computing program needs: memory, threads, time and open files.
const COMPUTING_CALLS: &[libc::c_long] = &[
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

/// Further calls of a process that runs a module. With recvmsg it receives descriptors of shared memory. With tgkill,
/// which [`signals_to_itself`] restricts, it sends its own threads the signals that end endless calls. The remaining calls
/// seal loaded code and forbid further code ([`forbid_new_code`]).
const SANDBOX_CALLS: &[libc::c_long] =
    &[libc::SYS_recvmsg, libc::SYS_tgkill, libc::SYS_prctl, libc::SYS_seccomp, crate::code::MSEAL_CALL];
/// Further calls of a program that is executed after its confinement: it loads its libraries, and asks for its own limits and
/// files. Landlock decides which files it can open and execute.
const EXTERNAL_COMPILER_CALLS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_faccessat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_set_tid_address,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];
/// The protection flags of mmap(2) and mprotect(2) by which memory becomes writable and executable.
const WRITE_EXECUTE: u64 = (libc::PROT_WRITE | libc::PROT_EXEC).unsigned_abs() as u64;
const EXECUTE: u64 = libc::PROT_EXEC.unsigned_abs() as u64;
const WRITE: u64 = libc::PROT_WRITE.unsigned_abs() as u64;
/// The flags of clone(2) that create a thread. A call that lacks one of them would create another process, which has
/// limits of its own and outlives the calling process.
const THREAD_FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;

/// The calls of a program that answers requests over open descriptors: memory, input, output and exit.
const SIGNING_CALLS: &[libc::c_long] = &[
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

/// Calls that no part of a node needs, but that an attacker in the node could use.
const NODE_DENIED_CALLS: &[libc::c_long] = &[
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
    // Calls that bypass this filter.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // Other mounts and roots, by which more files could be reached.
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
    // Memory protection that no filter sees.
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

/// Calls that execute programs or create processes, also denied to a node: its [spawner](crate::spawner) starts
/// processes.
const PROCESS_CALLS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that are denied to a node, but not to its spawner. The processes that a spawner starts inherit its filter, and
/// mount empty roots.
const MOUNT_CALLS: &[libc::c_long] = &[libc::SYS_mount, libc::SYS_pivot_root, libc::SYS_umount2];

/// Returns the action for a denied call: the call fails with EPERM, an error that programs handle or report. If the kernel
/// killed the process instead, a mistake in weir's list of calls would look like a fault of the compiled module.
fn denied() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

/// The listed calls with their filter rules. A call without rules matches with any arguments.
type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Returns rules that list these calls with any arguments.
fn rules_for(calls: &[libc::c_long]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Applies a filter to the calling thread: one action for calls that match `rules`, another one for all other calls.
fn apply(rules: Rules, matching: SeccompAction, others: SeccompAction) -> Result<(), ConfineError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::from)?;
    let filter = SeccompFilter::new(rules, others, matching, arch).map_err(seccompiler::Error::from)?;
    let program: BpfProgram = filter.try_into().map_err(seccompiler::Error::from)?;
    Ok(seccompiler::apply_filter(&[deny_x32().to_vec(), program].concat())?)
}

/// Returns filter instructions that deny all calls by x32 numbers. x32 is a second numbering of the system calls on x86-64,
/// which a list of the ordinary numbers does not cover (seccomp(2), notes).
fn deny_x32() -> [sock_filter; 3] {
    const X32: u32 = 0x4000_0000;
    let instruction = |code: u32, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    [
        // The call's number is the first field of the filter's input.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, refused),
    ]
}

/// Makes clone3(2) fail with ENOSYS ("no such call"), so that programs use clone(2). The flags of clone3 are in memory,
/// where no filter sees them.
fn deny_clone3() -> Result<(), ConfineError> {
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    apply(rules_for(&[libc::SYS_clone3]), missing, SeccompAction::Allow)
}

/// Returns a rule for calls whose argument of this index satisfies a comparison with `value`.
fn only_if(
    argument: u8,
    comparison: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, comparison, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Returns rules that list the calls of a computing program: it can start threads, but no processes, and cannot load code.
fn computing_rules() -> Result<Rules, ConfineError> {
    let flags = u64::from(THREAD_FLAGS.unsigned_abs());
    let mut rules = rules_for(COMPUTING_CALLS);
    rules.insert(libc::SYS_clone, only_if(0, SeccompCmpOp::MaskedEq(flags), flags)?);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTE), 0)?);
    }
    Ok(rules)
}

/// Returns rules for mmap(2) or mprotect(2) calls that request exactly these of the write and execute flags.
fn with_protection(flags: u64) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    only_if(2, SeccompCmpOp::MaskedEq(WRITE_EXECUTE), flags)
}

/// Denies a compiler all calls but those of a computing program.
pub(crate) fn restrict_compiler() -> Result<(), ConfineError> {
    deny_clone3()?;
    apply(computing_rules()?, SeccompAction::Allow, denied())
}

/// Denies an external compiler all calls but those of a computing program and [`EXTERNAL_COMPILER_CALLS`]. It can map code of
/// files, but make no memory executable that it has written.
pub(crate) fn restrict_external_compiler() -> Result<(), ConfineError> {
    deny_clone3()?;
    let mut rules = computing_rules()?;
    rules.extend(rules_for(EXTERNAL_COMPILER_CALLS));
    // Code is mapped from files, which the process cannot write.
    let file = only_mapping_of_file()?;
    let mappings = [with_protection(0)?, with_protection(WRITE)?, file];
    rules.insert(libc::SYS_mmap, mappings.concat());
    // Its own limits can be read, and not changed.
    rules.insert(libc::SYS_prlimit64, only_if(2, SeccompCmpOp::Eq, 0)?);
    apply(rules, SeccompAction::Allow, denied())
}

/// Returns a rule for mmap(2) calls that map a file executable and not writable.
fn only_mapping_of_file() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let protection =
        SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(WRITE_EXECUTE), EXECUTE)?;
    let anonymous = u64::from(libc::MAP_ANONYMOUS.unsigned_abs());
    let file = SeccompCondition::new(3, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(anonymous), 0)?;
    Ok(vec![SeccompRule::new(vec![protection, file])?])
}

/// Denies a sandbox process all calls but those of a computing program and [`SANDBOX_CALLS`].
pub(crate) fn restrict_sandbox() -> Result<(), ConfineError> {
    deny_clone3()?;
    let mut rules = computing_rules()?;
    rules.extend(rules_for(SANDBOX_CALLS));
    rules.insert(libc::SYS_tgkill, signals_to_itself()?);
    // A module's code is first written and then made executable, so no call needs the write and execute flags together.
    let protections = [with_protection(0)?, with_protection(WRITE)?, with_protection(EXECUTE)?];
    rules.insert(libc::SYS_mprotect, protections.concat());
    rules.insert(libc::SYS_prctl, only_if(0, SeccompCmpOp::Eq, crate::code::PRCTL_MDWE)?);
    rules.insert(libc::SYS_seccomp, only_if(0, SeccompCmpOp::Eq, libc::SECCOMP_SET_MODE_FILTER.into())?);
    apply(rules, SeccompAction::Allow, denied())
}

/// Denies all threads of a sandbox process the calls by which code is loaded, which [`restrict_sandbox`] allows.
pub(crate) fn forbid_new_code() -> Result<(), ConfineError> {
    let mut rules = rules_for(&[libc::SYS_prctl, libc::SYS_seccomp]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTE), EXECUTE)?);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::from)?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, denied(), arch).map_err(seccompiler::Error::from)?;
    let program: BpfProgram = filter.try_into().map_err(seccompiler::Error::from)?;
    let len =
        libc::c_ushort::try_from(program.len()).map_err(std::io::Error::other).map_err(ConfineError::Code)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let (mode, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the pointer is to a live filter program of length `len`; `seccompiler` and `libc` lay out an instruction
    // alike.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, all_threads, &raw const program) } {
        0 => Ok(()),
        _ => Err(ConfineError::Code(std::io::Error::last_os_error())),
    }
}

/// Returns a rule for signals to threads of this process. Without the rule, a sandbox process that has the node's user
/// could send signals to the node, the key agent and other sandbox processes.
fn signals_to_itself() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    only_if(0, SeccompCmpOp::Eq, u64::from(std::process::id()))
}

/// Denies a key agent all calls but [`SIGNING_CALLS`] and calls for memory that is not executable.
pub(crate) fn restrict_key_agent() -> Result<(), ConfineError> {
    let mut rules = rules_for(SIGNING_CALLS);
    // Memory may be mapped and its protection changed, unless it becomes executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, only_if(2, SeccompCmpOp::MaskedEq(EXECUTE), 0)?);
    }
    apply(rules, SeccompAction::Allow, denied())
}

/// Returns rules that list the calls that no part of a node needs, and calls for memory that is writable and executable
/// at the same time.
fn denied_to_node() -> Result<Rules, ConfineError> {
    let mut rules = rules_for(NODE_DENIED_CALLS);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, with_protection(WRITE_EXECUTE)?);
    }
    Ok(rules)
}

/// Denies a node the calls that no part of it needs, and calls that create processes.
pub(crate) fn restrict_node() -> Result<(), ConfineError> {
    let mut rules = denied_to_node()?;
    rules.extend(rules_for(PROCESS_CALLS));
    // A call that lacks one of these flags would not create a thread, and is denied.
    let flags = [libc::CLONE_VM, libc::CLONE_SIGHAND, libc::CLONE_THREAD];
    let flag_missing =
        flags.map(|flag| only_if(0, SeccompCmpOp::MaskedEq(u64::from(flag.unsigned_abs())), 0));
    rules.insert(libc::SYS_clone, flag_missing.into_iter().collect::<Result<Vec<_>, _>>()?.concat());
    apply(rules, denied(), SeccompAction::Allow)?;
    deny_clone3()
}

/// Denies a spawner, and the processes that it starts, the calls that no part of a node needs, except [`MOUNT_CALLS`].
pub(crate) fn restrict_spawner() -> Result<(), ConfineError> {
    let mut rules = denied_to_node()?;
    for call in MOUNT_CALLS {
        rules.remove(call);
    }
    apply(rules, denied(), SeccompAction::Allow)
}
