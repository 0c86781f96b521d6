//! Confinement: closed operations fail, and needed ones work. Each is tried in a process of its own, because
//! confinement is permanent.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use weir_os::FileConfinement;

const WHO: &str = "WEIR_CONFINE_TEST";
const FOLDER: &str = "WEIR_CONFINE_FOLDER";

/// Runs `test` of this file again in a process of its own, in which `in_child` returns true.
fn alone(test: &str, folder: &Path) {
    let child = Command::new(std::env::current_exe().expect("this program has a name"))
        .args(["--exact", &format!("confinement::{test}"), "--nocapture", "--test-threads=1"])
        .env(WHO, test)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be executed");
    let output = child.wait_with_output().expect("it ends");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}

fn in_child(test: &str) -> bool {
    std::env::var(WHO).is_ok_and(|who| who == test)
}

fn folder() -> std::path::PathBuf {
    std::env::var_os(FOLDER).expect("the parent said where").into()
}

fn is_denied<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Checks that no process can be created in any way: it would have limits of its own, and survive the first one's
/// end.
fn no_other_process() {
    for flags in [
        libc::SIGCHLD,
        libc::SIGCHLD | libc::CLONE_VM | libc::CLONE_VFORK,
        libc::SIGCHLD | libc::CLONE_VM | libc::CLONE_SIGHAND,
        libc::SIGCHLD | libc::CLONE_NEWUSER,
    ] {
        assert_eq!(refused(libc::SYS_clone, flags.into()), Some(libc::EPERM), "makes a process: {flags:#x}");
    }
    assert_eq!(refused(libc::SYS_clone3, 0), Some(libc::ENOSYS));
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_fork, libc::SYS_vfork] {
        assert_eq!(refused(call, 0), Some(libc::EPERM), "makes a process");
    }
}

/// Returns the error of a refused call. A call that is made and returns twice ends the process.
fn refused(call: libc::c_long, argument: libc::c_long) -> Option<i32> {
    // SAFETY: a refused call reads none of its arguments; those of the others are not pointers, or null.
    let result = unsafe { libc::syscall(call, argument, 0, 0, 0, 0) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    if result == 0 {
        // SAFETY: ends the child that should not exist.
        unsafe { libc::_exit(1) };
    }
    (result == -1).then_some(errno).flatten()
}

/// A page of memory, and an attacker's operations on it.
struct Memory(*mut libc::c_void);

impl Memory {
    fn new() -> Self {
        Self::mapped(libc::PROT_READ | libc::PROT_WRITE)
    }

    fn mapped(rights: libc::c_int) -> Self {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        Self(unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, kind, -1, 0) })
    }

    fn can(&self, rights: libc::c_int) -> bool {
        // SAFETY: the mapping is this test's own, and its contents are not read.
        unsafe { libc::mprotect(self.0, 4096, rights) == 0 }
    }

    /// Three attempts to create code: memory mapped writable and executable, memory made so later, and written memory
    /// made executable.
    fn is_made_code(&self) -> [bool; 3] {
        let (read, both) = (libc::PROT_READ, libc::PROT_WRITE | libc::PROT_EXEC);
        [Self::mapped(both).0 != libc::MAP_FAILED, self.can(read | both), self.can(read | libc::PROT_EXEC)]
    }
}

/// The start addresses of this process's mappings that are code of files.
fn code_of_files() -> Vec<*mut libc::c_void> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("its own");
    let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.contains('/'));
    code.map(|line| {
        usize::from_str_radix(line.split('-').next().unwrap_or_default(), 16).expect("an address")
    })
    .map(std::ptr::without_provenance_mut)
    .collect()
}

/// Returns true if this kernel can seal pages (mseal(2), the same number everywhere).
fn can_seal() -> bool {
    // SAFETY: concerns no page at all.
    unsafe { libc::syscall(462, 0, 0, 0) == 0 }
}

#[test]
fn the_code_of_a_sandbox_process_cannot_be_changed_or_extended() {
    let name = "the_code_of_a_sandbox_process_cannot_be_changed_or_extended";
    if !in_child(name) {
        return alone(name, tempfile::tempdir().expect("a folder").path());
    }
    let (of_files, can_seal) = (code_of_files(), can_seal());
    assert!(of_files.len() > 1, "the program and its libraries");
    let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    let loaded = Memory::new();
    weir_os::confine_sandbox().expect("the kernel has seccomp");
    assert_eq!(Memory::new().is_made_code(), [false, false, true], "a module's code is written before");
    assert!(loaded.can(read | execute), "so it is");
    // A thread that was started before is confined as well.
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        waits.recv().expect("it is told to go on");
        Memory::new().is_made_code()
    });
    let begin = loaded.0.cast::<u8>().cast_const();
    weir_os::seal_loaded_code(&[begin..begin.wrapping_add(100)]).expect("the kernel has seccomp");
    go.send(()).expect("it waits");
    assert_eq!(before.join().expect("it ends"), [false; 3], "another thread makes code");
    assert_eq!(Memory::new().is_made_code(), [false; 3], "makes code");
    assert_eq!(Memory::mapped(read | execute).0, libc::MAP_FAILED, "maps code");
    for call in
        [libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_pkey_mprotect, libc::SYS_shmat, libc::SYS_personality]
    {
        assert_eq!(refused(call, 0), Some(libc::EPERM), "call {call}");
    }
    if !can_seal {
        println!("skipped: the kernel cannot seal memory");
        return;
    }
    for code in of_files.into_iter().chain([loaded.0]) {
        let code = Memory(code);
        assert!(!code.can(read | write) && !code.can(read), "code that is written");
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: all of these calls fail, or this test does.
        unsafe {
            let instead = libc::mmap(code.0, 4096, read | write, kind, -1, 0);
            assert_eq!(instead, libc::MAP_FAILED, "other memory in the place of code");
            assert_eq!(libc::munmap(code.0, 4096), -1, "no code");
            let moved = libc::mremap(code.0, 4096, 8192, libc::MREMAP_MAYMOVE);
            assert_eq!(moved, libc::MAP_FAILED, "code that is moved");
        }
    }
}

#[test]
fn a_sandbox_process_has_threads_and_signals_only_itself() {
    let name = "a_sandbox_process_has_threads_and_signals_only_itself";
    if !in_child(name) {
        return alone(name, tempfile::tempdir().expect("a folder").path());
    }
    let (itself, parent) = (std::process::id(), std::os::unix::process::parent_id());
    let signal = |process: u32, thread: u32, signal: i32| {
        // SAFETY: takes no pointers.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
        if result == 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
    };
    assert_eq!(signal(parent, parent, 0), None, "nothing is closed yet");
    weir_os::confine_sandbox().expect("the kernel has seccomp");

    assert_eq!(signal(itself, itself, 0), None, "its own threads it can signal to");
    for number in [0, libc::SIGSTOP, libc::SIGKILL] {
        assert_eq!(signal(parent, parent, number), Some(libc::EPERM), "signals to others: {number}");
    }
    // SAFETY: takes no pointers; the signal 0 is none.
    assert_eq!(unsafe { libc::kill(libc::getppid(), 0) }, -1, "signals to others");
    no_other_process();
    std::thread::spawn(|| ()).join().expect("threads can be started");
}

#[test]
fn a_compiler_can_compute_and_access_nothing() {
    let name = "a_compiler_can_compute_and_access_nothing";
    if !in_child(name) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), "secret").expect("a file");
        return alone(name, folder.path());
    }
    let secret = folder().join("secret");
    let mut open = File::open(&secret).expect("nothing is closed yet");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("nothing is closed yet");
    let address = listener.local_addr().expect("it has an address");
    weir_os::confine_compiler().expect("the kernel has seccomp");

    assert!(is_denied(File::open(&secret)), "reads a file");
    assert!(is_denied(File::create(folder().join("new"))), "makes a file");
    assert!(is_denied(std::fs::read_dir(folder()).map(drop)), "lists a folder");
    assert!(is_denied(std::fs::remove_file(&secret)), "removes a file");
    assert!(is_denied(std::fs::metadata(&secret)), "learns about a file");
    assert!(is_denied(TcpStream::connect(address)), "connects to a server");
    assert!(is_denied(std::os::unix::net::UnixStream::pair()), "makes a socket");
    assert!(is_denied(Command::new("/bin/true").status()), "executes a program");
    // SAFETY: takes no pointers; the signal 0 is none.
    assert_eq!(unsafe { libc::kill(libc::getppid(), 0) }, -1, "signals to others");

    let mut text = String::new();
    open.read_to_string(&mut text).expect("what was open is open");
    assert_eq!(text, "secret");
    no_other_process();
    let sum = std::thread::spawn(|| (0..100_000u64).map(std::hint::black_box).sum::<u64>()).join();
    assert_eq!(sum.expect("threads can be started"), 4_999_950_000);
    assert_eq!(vec![1u8; 64 << 20].iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
    assert_eq!(Memory::new().is_made_code(), [false; 3], "makes code");
    std::io::stdout().write_all(b"what was open can be written\n").expect("so it can");
}

#[test]
fn an_external_compiler_reads_and_executes_its_own_files_alone() {
    let name = "an_external_compiler_reads_and_executes_its_own_files_alone";
    if !in_child(name) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), "secret").expect("a file");
        let own = folder.path().join("own");
        std::fs::create_dir(&own).expect("a folder");
        std::fs::write(own.join("library"), "library").expect("a file");
        return alone(name, folder.path());
    }
    let (own, secret) = (folder().join("own"), folder().join("secret"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("nothing is closed yet");
    let address = listener.local_addr().expect("it has an address");
    let libraries = ["/lib", "/lib64", "/usr/lib", "/etc/ld.so.cache", "/bin/cat"].map(Path::new);
    let readable: Vec<&Path> = libraries.into_iter().chain([own.as_path(), Path::new("/none")]).collect();
    match weir_os::confine_external_compiler(&readable) {
        Err(weir_os::ConfineError::NoLandlock) => return println!("skipped: this kernel has no Landlock"),
        confined => confined.expect("the kernel has seccomp"),
    };

    assert_eq!(std::fs::read_to_string(own.join("library")).expect("its own"), "library");
    assert!(is_denied(File::open(&secret)), "reads another file");
    assert!(is_denied(File::open("/etc/passwd")), "reads another file");
    assert!(is_denied(std::fs::read_dir(folder())), "lists another folder");
    assert!(is_denied(File::create(own.join("new"))), "makes a file");
    assert!(is_denied(OpenOptions::new().write(true).open(own.join("library"))), "writes a file");
    assert!(is_denied(std::fs::remove_file(own.join("library"))), "removes a file");
    assert!(is_denied(TcpStream::connect(address)), "connects to a server");
    assert!(is_denied(std::os::unix::net::UnixStream::pair()), "makes a socket");
    assert_eq!(Memory::new().is_made_code(), [false; 3], "makes code");
    let (read, execute) = (libc::PROT_READ, libc::PROT_EXEC);
    assert_eq!(Memory::mapped(read | execute).0, libc::MAP_FAILED, "maps code that is no file");
    let own_limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: the pointer is to a live local; the call fails, or this test does.
    let limited =
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const own_limit, 0) };
    assert_eq!(limited, -1, "changes limits");
    no_other_process();
    let execute = |program: &str| std::os::unix::process::CommandExt::exec(&mut Command::new(program));
    assert_eq!(execute("/bin/sh").kind(), ErrorKind::PermissionDenied, "executes another program");
    // The program that is executed ends in place of the test, so the test reports its success before.
    println!("test result: ok. 1 passed");
    let error = execute("/bin/cat");
    panic!("its own program can be executed: {error}");
}

#[test]
fn a_key_agent_has_only_its_memory_and_open_descriptors() {
    let name = "a_key_agent_has_only_its_memory_and_open_descriptors";
    if !in_child(name) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), "secret").expect("a file");
        return alone(name, folder.path());
    }
    let secret = folder().join("secret");
    let mut open = File::open(&secret).expect("nothing is closed yet");
    weir_os::confine_key_agent().expect("the kernel has seccomp");

    assert!(is_denied(File::open(&secret)), "reads a file");
    assert!(is_denied(std::net::UdpSocket::bind(("127.0.0.1", 0))), "makes a socket");
    assert!(is_denied(std::fs::remove_file(&secret)), "removes a file");
    assert!(is_denied(std::os::unix::fs::symlink("a", folder().join("b"))), "makes a link");
    for (call, what) in [
        (libc::SYS_clone, "makes a process"),
        (libc::SYS_clone3, "makes a process"),
        (libc::SYS_execve, "executes a program"),
        (libc::SYS_kill, "signals to others"),
        (libc::SYS_ptrace, "looks into others"),
        (libc::SYS_nanosleep, "sleeps"),
        (libc::SYS_socketpair, "makes sockets"),
        (libc::SYS_memfd_create, "makes a file"),
    ] {
        assert_eq!(refused(call, 0), Some(libc::EPERM), "{what}");
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "starts a thread");
    let page = |rights: libc::c_int| {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, kind, -1, 0) }
    };
    assert_eq!(page(libc::PROT_READ | libc::PROT_EXEC), libc::MAP_FAILED, "makes code");
    let data = page(libc::PROT_READ | libc::PROT_WRITE);
    assert_ne!(data, libc::MAP_FAILED, "memory can be had");
    // SAFETY: the mapping exists, and its contents are not read.
    let executes = unsafe { libc::mprotect(data, 4096, libc::PROT_READ | libc::PROT_EXEC) };
    assert_eq!(executes, -1, "makes code of its memory");

    let mut text = String::new();
    open.read_to_string(&mut text).expect("what was open is open");
    assert_eq!(text, "secret");
    assert_eq!(vec![1u8; 64 << 20].iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
    std::io::stdout().write_all(b"what was open can be written\n").expect("so it can");
}

#[test]
fn a_node_writes_beneath_its_folders_and_executes_nothing() {
    let name = "a_node_writes_beneath_its_folders_and_executes_nothing";
    if !in_child(name) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("state")).expect("a folder");
        std::fs::write(folder.path().join("other"), "other").expect("a file");
        let foreign = folder.path().join("foreign");
        std::fs::write(&foreign, "foreign").expect("a file");
        std::fs::set_permissions(&foreign, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("it is ours");
        // Only root can.
        _ = std::os::unix::fs::chown(&foreign, Some(12_345), Some(12_345));
        return alone(name, folder.path());
    }
    let (state, other) = (folder().join("state"), folder().join("other"));
    // SAFETY: takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    let files = weir_os::confine_node(&[&state]).expect("the kernel has seccomp");

    let kept = state.join("ledger");
    std::fs::write(&kept, "line").expect("its folder is its own");
    std::fs::rename(&kept, state.join("older")).expect("its folder is its own");
    std::fs::remove_file(state.join("older")).expect("its folder is its own");
    assert_eq!(std::fs::read_to_string(&other).expect("what can be read can be read"), "other");
    TcpListener::bind(("127.0.0.1", 0)).expect("sockets can be opened");
    OpenOptions::new().write(true).open("/dev/null").expect("this is written to");
    let itself = std::env::current_exe().expect("this program has a name");
    assert!(is_denied(Command::new(itself).args(["--list"]).status()), "executes itself");
    if files != FileConfinement::None {
        assert!(is_denied(std::fs::write(&other, "")), "writes to a file of others");
        let elsewhere = folder().join("new");
        let thread = std::thread::spawn(move || is_denied(File::create(elsewhere)));
        assert!(thread.join().expect("threads can be started"), "a thread makes a file elsewhere");
        assert!(is_denied(std::fs::remove_file(&other)), "removes a file of others");
    }
    // SAFETY: takes no pointers that are read before the right is checked.
    let (traced, apart) = unsafe { (libc::ptrace(libc::PTRACE_TRACEME), libc::unshare(libc::CLONE_FS)) };
    assert_eq!((traced, apart), (-1, -1), "looks into others, or gets files of its own");
    no_other_process();
    for call in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_pkey_mprotect,
        libc::SYS_shmat,
        libc::SYS_personality,
    ] {
        assert_eq!(refused(call, 0), Some(libc::EPERM), "call {call}");
    }
    let is_made = Memory::new().is_made_code();
    assert_eq!(
        is_made,
        [false, false, true],
        "memory that is written and executed at once, and code that was written before"
    );
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        refused(libc::SYS_getppid | 0x4000_0000, 0),
        Some(libc::EPERM),
        "another number of the same call"
    );
    std::thread::spawn(|| ()).join().expect("threads can be started still");
    let has = std::fs::read_to_string("/proc/thread-self/status").expect("its own");
    let has = |set: &str| {
        let line = has.lines().find_map(|line| line.strip_prefix(set)).expect("the kernel says so");
        u64::from_str_radix(line.trim(), 16).expect("a number")
    };
    // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_SYS_NICE 23, CAP_BPF 39 (capability.h).
    let kept = [12, 13, 14, 23, 39].iter().fold(0u64, |all, bit| all | 1 << bit);
    let sets = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].map(|set| has(set) & !kept);
    assert_eq!(sets, [0; 4], "privileges");
    if is_root {
        assert_eq!(has("CapBnd:") & !kept, 0, "privileges that could come back");
        // No file of another user that is not world-readable, as for any user.
        assert!(is_denied(std::fs::read(folder().join("foreign"))), "reads another user's file");
    }
}
