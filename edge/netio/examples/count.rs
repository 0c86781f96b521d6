//! Reads a capture and prints its totals and the cost of reading: `cargo run --release --example count FILE
//! [--stream]`.

use std::time::Instant;
use weir_netio::{Capture, CaptureInput, CaptureNext, CaptureOptions};

fn cpu_seconds() -> f64 {
    // SAFETY: getrusage fills the given struct, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let stream = arguments.iter().position(|a| a == "--stream").map(|i| arguments.remove(i)).is_some();
    let input = match arguments.first().map(String::as_str) {
        None | Some("-") => CaptureInput::Stdin,
        Some(path) => CaptureInput::File(path.into()),
    };
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let mut capture = Capture::open_with(input, CaptureOptions { stream, ..CaptureOptions::default() })?;
    let mut blocks = 0u64;
    while let CaptureNext::Block(block) = capture.next_block()? {
        blocks += 1;
        std::hint::black_box(block.descriptors());
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let totals = capture.totals();
    println!("{totals:#?}");
    if totals.packets > 0 {
        let each = |seconds: f64| seconds * 1e9 / totals.packets as f64;
        println!("{blocks} blocks, {:.1} ns a packet, {:.1} ns of CPU time", each(seconds), each(cpu));
    }
    Ok(())
}
