//! A progress bar on a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_netio::Capture;

/// How often the bar is drawn.
const PERIOD: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    shown: Instant,
}

impl Progress {
    /// Shows something only if standard error is a terminal and the user does not mind.
    pub fn new(wanted: bool) -> Self {
        let bar = (wanted && std::io::stderr().is_terminal()).then(ProgressBar::no_length);
        Self { bar, shown: Instant::now() }
    }

    /// Shows how far the capture has been read.
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

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
