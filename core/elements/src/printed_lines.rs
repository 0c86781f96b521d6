//! The lines that elements print about packets: their first parts, and the place to which they go.

use crate::text_file::TextFile;
use std::fmt::Write as _;
use weir_graph::arguments::{ElementArguments, FileName, WordArgument};
use weir_graph::engine::{Effects, GraphPacket, Reason, Services};

/// The arguments LABEL, TIMESTAMP, ACTIVE and OUTFILE, and the lines.
pub struct PrintedLines {
    label: String,
    has_time: bool,
    pub is_active: bool,
    output: TextFile,
}

impl PrintedLines {
    /// Reads the arguments. CHANNEL is accepted and changes nothing.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let label = args.either("LABEL").or(String::new());
        let has_time = args.keyword("TIMESTAMP").or(true);
        let is_active = args.keyword("ACTIVE").or(true);
        let _: Option<WordArgument> = args.keyword("CHANNEL").optional();
        let file: Option<FileName> = args.keyword("OUTFILE").optional();
        let output = file.map_or_else(TextFile::standard_error, |file| TextFile::new(file.0));
        Self { label, has_time, is_active, output }
    }

    /// Returns lines on standard error with a label, and without time stamps.
    #[cfg(test)]
    pub fn labelled(label: &str) -> Self {
        let output = TextFile::standard_error();
        Self { label: label.to_owned(), has_time: false, is_active: true, output }
    }

    /// Returns the start of a packet's line: the label and the time stamp.
    pub fn start(&self, packet: &GraphPacket) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            _ = write!(line, "{}: ", self.label);
        }
        if self.has_time {
            _ = write!(line, "{}: ", crate::values::seconds(packet.time()));
        }
        line
    }

    /// Prints a line.
    pub fn add(&mut self, line: &str, services: &mut Services) {
        self.output.add(line, services);
    }

    /// Returns the effects of printing.
    pub fn effects(&self) -> Effects {
        self.output.effects()
    }

    /// Writes the rest.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which the file is not complete.
    pub fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        self.output.finish(services)
    }
}

/// Makes the functions of an element whose field `lines` is [`PrintedLines`].
macro_rules! printed_lines {
    () => {
        fn effects(&self) -> Option<weir_graph::engine::Effects> {
            Some(self.lines.effects())
        }

        fn finish(
            &mut self,
            services: &mut weir_graph::engine::Services,
        ) -> Result<(), weir_graph::engine::Reason> {
            self.lines.finish(services)
        }

        weir_graph::handlers! {
            "active": "false if nothing is printed", field lines.is_active;
        }
    };
}
pub(crate) use printed_lines;
