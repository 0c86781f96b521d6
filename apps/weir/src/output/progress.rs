//! A progress bar on a terminal; silent elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use weir_netio::{Capture, LiveSource};
use weir_units::Bytes;

/// The interval at which the bar of a capture is redrawn.
const PERIOD: Duration = Duration::from_millis(100);
/// The interval at which the line of an interface is redrawn; its rates are averages over this time.
const LIVE_PERIOD: Duration = Duration::from_secs(1);

/// The progress display of a run.
#[derive(Debug)]
pub struct RunProgress {
    bar: Option<ProgressBar>,
    /// The time of the last redraw.
    shown: Instant,
    /// Packets and bytes received when the display was last drawn.
    before: (u64, u64),
}

impl RunProgress {
    /// Creates a display, which is visible if `wanted` and if standard error is a terminal.
    pub fn new(wanted: bool) -> Self {
        let bar = (wanted && std::io::stderr().is_terminal()).then(ProgressBar::no_length);
        // Empty until the first progress is known: rows on the same terminal redraw the bar.
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template("{msg}")) {
            bar.set_style(style);
        }
        Self { bar, shown: Instant::now(), before: (0, 0) }
    }

    /// Returns the bar, for output on the same terminal.
    pub fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    /// Shows the part of the capture that has been read.
    pub fn show(&mut self, capture: &Capture) {
        let Some(bar) = &self.bar else { return };
        if self.shown.elapsed() < PERIOD {
            return;
        }
        self.shown = Instant::now();
        let progress = capture.progress();
        let template = match progress.total {
            Some(total) => {
                bar.set_length(total.0);
                "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {msg}"
            }
            None => "{spinner} {bytes}  {bytes_per_sec}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(format!("{} packets", capture.totals().packets));
        bar.set_position(progress.done.0);
    }

    /// Shows the part that was read, in thousandths.
    pub fn show_part(&mut self, read: u16) {
        let Some(bar) = &self.bar else { return };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left") {
            bar.set_style(style);
        }
        bar.set_length(1000);
        bar.set_position(read.into());
    }

    /// Shows the packets received from an interface, their rates and the losses.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn show_live(&mut self, live: &mut LiveSource) {
        let elapsed = self.shown.elapsed();
        let Some(bar) = self.bar.as_ref().filter(|_| elapsed >= LIVE_PERIOD) else { return };
        self.shown = Instant::now();
        let totals = live.totals();
        let (packets, bytes) = (totals.received.packets, totals.received.bytes.0);
        let per_second =
            |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed.as_secs_f64()) as u64;
        let rates = (per_second(packets, self.before.0), Bytes(per_second(bytes, self.before.1)));
        self.before = (packets, bytes);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
            bar.set_style(style);
        }
        let lost = totals.drops.packets();
        bar.set_message(format!("{packets} packets  {}/s  {}/s  {lost} lost", rates.0, rates.1));
        bar.tick();
    }

    /// Shows a number of bytes done out of a total.
    pub fn show_bytes(&mut self, done: u64, total: u64) {
        let Some(bar) = &self.bar else { return };
        let template = "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Prints a line to standard error without disturbing the bar.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprint_line(text)),
            None => eprint_line(text),
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn eprint_line(text: &str) {
    // A closed standard error must not end the run.
    let _ = writeln!(std::io::stderr(), "{text}");
}
