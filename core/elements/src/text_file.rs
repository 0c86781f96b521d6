//! Files that elements write piece by piece.

use weir_graph::engine::{Effects, Reason, Services, TextOutput};

/// The bytes that are collected before they are written.
const PIECE_BYTES: usize = 64 << 10;

/// A file, or standard output or error, to which an element adds bytes. They are written in large pieces.
pub struct TextFile {
    target: TextTarget,
    bytes: Vec<u8>,
    failure: Option<Reason>,
}

enum TextTarget {
    Stream(TextOutput),
    File {
        name: String,
        /// Nothing is written yet.
        is_new: bool,
    },
}

impl TextFile {
    /// Returns a file of this name; `-` is standard output. What was in the file before is lost with the first write.
    pub fn new(name: String) -> Self {
        let target = match name.as_str() {
            "-" => TextTarget::Stream(TextOutput::Out),
            _ => TextTarget::File { name, is_new: true },
        };
        Self { target, bytes: Vec::new(), failure: None }
    }

    /// Returns standard error, to which every text goes at once.
    pub fn standard_error() -> Self {
        Self { target: TextTarget::Stream(TextOutput::Error), bytes: Vec::new(), failure: None }
    }

    /// Returns the effects of an element that writes here.
    pub fn effects(&self) -> Effects {
        match self.target {
            TextTarget::Stream(_) => Effects::TERMINAL,
            TextTarget::File { .. } => Effects::FILES,
        }
    }

    /// Returns the name: `-` for a stream.
    pub fn name(&self) -> &str {
        match &self.target {
            TextTarget::Stream(_) => "-",
            TextTarget::File { name, .. } => name,
        }
    }

    /// Goes on with the file of an earlier element, whose bytes come first. That element writes nothing more.
    pub fn take_over(&mut self, earlier: &mut TextFile) {
        let new_bytes = std::mem::replace(&mut self.bytes, std::mem::take(&mut earlier.bytes));
        self.bytes.extend(new_bytes);
        self.failure = earlier.failure.take();
        if let (TextTarget::File { is_new, .. }, TextTarget::File { is_new: of_earlier, .. }) =
            (&mut self.target, &mut earlier.target)
        {
            *is_new = std::mem::take(of_earlier);
        }
    }

    /// Returns the bytes that are not written yet, for more to be added. [`TextFile::flush_if_long`] follows.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Adds a text, and writes what has become long; for standard error everything.
    pub fn add(&mut self, text: &str, services: &mut Services) {
        self.bytes.extend_from_slice(text.as_bytes());
        match self.target {
            TextTarget::Stream(TextOutput::Error) => self.flush(services),
            _ => self.flush_if_long(services),
        }
    }

    /// Writes the bytes if they are many.
    pub fn flush_if_long(&mut self, services: &mut Services) {
        if self.bytes.len() >= PIECE_BYTES {
            self.flush(services);
        }
    }

    /// Writes the bytes. A failure is reported, and stops the driver.
    pub fn flush(&mut self, services: &mut Services) {
        match &mut self.target {
            TextTarget::Stream(output) if !self.bytes.is_empty() => {
                services.system.write_text(*output, &String::from_utf8_lossy(&self.bytes));
            }
            TextTarget::Stream(_) => {}
            TextTarget::File { .. } if self.failure.is_some() => {}
            TextTarget::File { name, is_new } => {
                if *is_new || !self.bytes.is_empty() {
                    self.failure = services.system.write_file(name, &self.bytes, *is_new).err();
                    *is_new = false;
                }
                if let Some(reason) = &self.failure {
                    services.system.write_text(TextOutput::Error, &format!("{reason}\n"));
                    services.stop();
                }
            }
        }
        self.bytes.clear();
    }

    /// Writes the rest.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which the file is not complete.
    pub fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        self.flush(services);
        self.failure.clone().map_or(Ok(()), Err)
    }
}
