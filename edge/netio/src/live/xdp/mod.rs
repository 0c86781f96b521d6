//! AF_XDP: packets in memory that the kernel, or the card itself, and the program share.

mod bpf;
mod frames;
mod gate;
mod port;
mod rings;
mod send;
mod socket;

pub(crate) use frames::FrameHold;
pub(crate) use port::XdpPort;
pub(crate) use send::XdpSink;

/// What is in use can be free a little later: the kernel ends the work of a closed socket or link after the call that closes it,
/// and a process that was just forked has them open until it runs another program.
fn patiently<T>(mut act: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    const TRIES: u32 = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
    for _ in 1..TRIES {
        match act() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    act()
}
