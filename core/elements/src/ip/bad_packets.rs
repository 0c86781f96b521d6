//! Counters of packets that an element refuses, by the reason.

use std::fmt::Write;
use weir_graph::engine::{Destination, Effects, Services, TextOutput};

/// Counters of refused packets.
pub struct BadPackets {
    /// The element's name.
    element: String,
    /// The name of the checked header, for messages.
    header: &'static str,
    /// The texts of the reasons.
    reasons: &'static [&'static str],
    counts: Vec<u64>,
    /// The reason of the first refused packet, until the end of the run.
    first: Option<usize>,
    /// A message about each refused packet.
    is_verbose: bool,
}

impl BadPackets {
    /// Returns counters of an element that checks a header.
    pub fn new(
        element: &str,
        header: &'static str,
        reasons: &'static [&'static str],
        is_verbose: bool,
    ) -> Self {
        let counts = vec![0; reasons.len()];
        Self { element: element.to_owned(), header, reasons, counts, first: None, is_verbose }
    }

    /// Counts a packet, by the index of a reason, and returns the output for it.
    #[cold]
    pub fn refuse(&mut self, reason: usize, services: &mut Services) -> Destination {
        self.counts[reason] += 1;
        if self.is_verbose {
            self.report(reason, services);
        } else if self.first.is_none() {
            self.first = Some(reason);
        }
        Destination::output(1)
    }

    fn report(&self, reason: usize, services: &mut Services) {
        let Self { element, header, reasons, .. } = self;
        let text = format!("{element}: {header} header check failed: {}\n", reasons[reason]);
        services.system.write_text(TextOutput::Error, &text);
    }

    /// Writes the message about the first refused packet, if there was one without a message.
    ///
    /// Click writes it at once. Here it comes at the end, so that an element has no effect while it runs and packets can
    /// go through it in batches.
    pub fn finish(&mut self, services: &mut Services) {
        if let Some(reason) = self.first.take() {
            self.report(reason, services);
        }
    }

    /// Returns the effects of the element that refuses packets.
    pub fn effects(&self) -> Option<Effects> {
        self.is_verbose.then_some(Effects::TERMINAL)
    }

    /// Returns the number of refused packets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns a line with the number of refused packets for each reason.
    pub fn details(&self) -> String {
        let mut text = String::new();
        for (reason, count) in self.reasons.iter().zip(&self.counts) {
            _ = writeln!(text, "{count}\t{reason}");
        }
        text
    }
}

/// Makes the functions of an element whose field `bad` has its [`BadPackets`].
macro_rules! bad_packets {
    () => {
        fn effects(&self) -> Option<weir_graph::engine::Effects> {
            self.bad.effects()
        }

        fn finish(&mut self, services: &mut weir_graph::engine::Services) -> Result<(), weir_graph::engine::Reason> {
            self.bad.finish(services);
            Ok(())
        }

        weir_graph::handlers! {
            "drops": counter "the number of refused packets", read |this, _, _| Ok(this.bad.total().to_string());
            "drop_details": "the number of refused packets by reason", read |this, _, _| Ok(this.bad.details());
        }
    };
}
pub(crate) use bad_packets;
