//! Rows on standard output: the first rows of each stream as a table, or all rows as tables, JSON lines or CSV.

use crate::output::row_args::{FormatArg, RowArgs};
use indicatif::ProgressBar;
use std::io::{self, IsTerminal, Write};
use weir_admission::{DeclaredStream, Manifest};
use weir_exports::EveRows;
use weir_rows::{CsvRows, FindingGroups, FindingReader, JsonRows, RowTable, UtcOffset};
use weir_session::Record;
use weir_units::Escape as _;

/// The number of rows of each stream without `--rows`.
const ROWS_DEFAULT: u64 = 10;
/// The number of streams above which only the leading stream of each module is printed, unless `--rows` or `--stream` is given.
const STREAMS_MAX: usize = 3;
/// The number of rows of the leading stream of each module, if there are more streams than [`STREAMS_MAX`].
const ROWS_OF_LEADING: u64 = 5;

/// The number of findings that are printed below the tables without `--rows`.
const FINDINGS_DEFAULT: usize = 20;
/// The most findings that are printed below the tables.
const FINDINGS_MAX: usize = 1_000;

/// Errors of the choice of streams.
#[derive(Debug, thiserror::Error)]
pub enum StreamArgError {
    /// No module has the stream.
    #[error("no module of this run has a stream `{}`; the streams are {streams}", .given.escape_debug())]
    Unknown {
        /// The argument of `--stream`.
        given: String,
        /// The streams of all modules.
        streams: String,
    },
    /// Several modules have a stream of this name.
    #[error("several modules have a stream `{}`: write one of {streams}", .given.escape_debug())]
    Ambiguous {
        /// The argument of `--stream`.
        given: String,
        /// The streams of this name.
        streams: String,
    },
    /// CSV has one header, so it holds one stream.
    #[error("--format csv needs one stream: add --stream with one of {0}")]
    OneStream(String),
}

/// The rows on standard output.
#[derive(Debug)]
pub struct RowOutput {
    /// The streams of each module, in the order of the manifests; `None` for a stream that is not printed.
    modules: Vec<Vec<Option<RowStream>>>,
    /// True if the rows of all streams are printed as they come. Otherwise the first stream with rows is; the first rows of the
    /// others wait for the end of the run, so that each stream has one table.
    is_interleaved: bool,
    /// The module and stream whose table was printed last.
    last: Option<(usize, usize)>,
    /// Text that is not written yet.
    buffer: Vec<u8>,
    /// The most severe findings, which are printed below the tables.
    ranked: RankedFindings,
    /// The progress bar, which gives way to rows on the same terminal.
    bar: Option<ProgressBar>,
    /// True once the reader of standard output has closed it. Further rows are dropped.
    is_closed: bool,
}

/// The most severe findings of a run, the most severe first, and of equally severe ones the earliest.
#[derive(Debug)]
struct RankedFindings {
    groups: FindingGroups,
    /// The label of each module.
    labels: Vec<String>,
    offset: UtcOffset,
}

impl RankedFindings {
    /// Returns the lines with their title; empty without findings.
    fn text(&self) -> String {
        if self.groups.total() == 0 {
            return String::new();
        }
        let groups = self.groups.groups();
        let mut text = if groups.is_empty() { "" } else { "findings, the most severe first:\n" }.to_owned();
        for group in groups {
            let label = self.labels.get(group.module).map(String::as_str).unwrap_or_default();
            text.push_str(&group.line(label, self.offset));
            text.push('\n');
        }
        let more = self.groups.others();
        if more > 0 {
            let more = weir_rows::text::with_commas(more);
            text.push_str(&format!("… {more} more findings, --rows all or --out DIR\n"));
        }
        text
    }
}

/// A printed stream.
#[derive(Debug)]
struct RowStream {
    writer: RowWriter,
    /// The most rows to print.
    rows_max: u64,
    /// All rows so far.
    rows: u64,
}

#[derive(Debug)]
enum RowWriter {
    Json(JsonRows),
    Eve(Box<EveRows>),
    Csv(CsvRows),
    Table {
        table: RowTable,
        /// `rtt.rtts: one row for each completed handshake`.
        title: String,
        /// Rows that are not printed yet.
        waiting: Vec<Vec<String>>,
        /// True once rows are printed.
        has_heading: bool,
    },
    /// Findings, each on a line of its own.
    Findings {
        reader: Box<FindingReader>,
        label: String,
        offset: UtcOffset,
        /// Lines that are not printed yet.
        lines: Vec<u8>,
    },
}

/// The streams that are printed, by the index of their module and their index in its manifest, and the way in which their rows
/// are printed.
struct RowChoice {
    streams: Vec<(usize, usize)>,
    /// The most rows of each stream.
    rows_max: u64,
    is_interleaved: bool,
    /// True if findings are printed as lines instead of tables.
    has_finding_lines: bool,
}

impl RowChoice {
    /// Chooses the streams of `--stream`, or all streams if `prints` is true.
    fn new(
        args: &RowArgs,
        prints: bool,
        rows_default: u64,
        modules: &[(String, &Manifest)],
    ) -> Result<Self, StreamArgError> {
        let all = all_streams(modules);
        let streams = match chosen_streams(args, modules)? {
            Some(chosen) => chosen,
            None if prints => all.clone(),
            None => Vec::new(),
        };
        if args.format == Some(FormatArg::Csv) && streams.len() != 1 {
            return Err(StreamArgError::OneStream(names(modules, &all)));
        }
        let rows_default = if args.format.is_some() { u64::MAX } else { rows_default };
        let rows_max = args.rows.map_or(rows_default, |rows| rows.0);
        Ok(Self { streams, rows_max, is_interleaved: rows_max == u64::MAX, has_finding_lines: false })
    }
}

impl RowOutput {
    /// Creates the output of `weir run` for these modules, each with its label. Without `--format`, rows are printed only if
    /// `prints` is true. The rows of an interface are printed as they come. If there are many streams, the first rows of a capture
    /// give way to the overview, if the run has one.
    ///
    /// # Errors
    /// `--stream` does not name a stream, or CSV would need several headers.
    pub fn for_run(
        args: &RowArgs,
        prints: bool,
        (is_interface, has_overview): (bool, bool),
        modules: &[(String, &Manifest)],
        bar: Option<ProgressBar>,
    ) -> Result<Self, StreamArgError> {
        let mut choice = RowChoice::new(args, prints || args.format.is_some(), ROWS_DEFAULT, modules)?;
        choice.has_finding_lines = args.format.is_none() && args.streams.is_empty();
        let has_findings =
            |(module, stream): (usize, usize)| modules[module].1.streams[stream].has_findings();
        let tables = choice.streams.iter().filter(|place| !has_findings(**place)).count();
        if choice.has_finding_lines && args.rows.is_none() && tables > STREAMS_MAX {
            let has_leading = is_interface || !has_overview;
            choice.streams.retain(|place| place.1 == 0 && has_leading || has_findings(*place));
            choice.rows_max = ROWS_OF_LEADING;
        }
        choice.is_interleaved |= is_interface;
        Ok(Self::new(args, &choice, modules, bar))
    }

    /// Creates the output of `weir follow` for these modules, each with its label. All rows are printed as they come, and
    /// findings as lines of their own if neither a format nor a stream was chosen.
    ///
    /// # Errors
    /// As [`Self::for_run`].
    pub fn for_follow(args: &RowArgs, modules: &[(String, &Manifest)]) -> Result<Self, StreamArgError> {
        let mut choice = RowChoice::new(args, true, u64::MAX, modules)?;
        choice.is_interleaved = true;
        choice.has_finding_lines = args.format.is_none() && args.streams.is_empty();
        Ok(Self::new(args, &choice, modules, None))
    }

    fn new(
        args: &RowArgs,
        choice: &RowChoice,
        modules: &[(String, &Manifest)],
        bar: Option<ProgressBar>,
    ) -> Self {
        let offset = args.utc_offset();
        let line_width = line_width();
        let stream = |(label, manifest): &(String, &Manifest), index: usize, declared: &DeclaredStream| {
            let findings = FindingReader::of(manifest)
                .filter(|reader| choice.has_finding_lines && usize::from(reader.stream()) == index);
            let writer = match (args.format, findings) {
                (_, Some(reader)) => RowWriter::Findings {
                    reader: Box::new(reader),
                    label: label.clone(),
                    offset,
                    lines: Vec::new(),
                },
                (Some(FormatArg::Json), None) => RowWriter::Json(JsonRows::new(label, declared, offset)),
                (Some(FormatArg::Eve), None) => RowWriter::Eve(Box::new(EveRows::new(label, declared))),
                (Some(FormatArg::Csv), None) => RowWriter::Csv(CsvRows::new(declared, offset)),
                // The caller prints rows in other formats as without a format.
                (Some(FormatArg::Table | FormatArg::Zeek | FormatArg::Ipfix) | None, None) => {
                    RowWriter::Table {
                        table: RowTable::new(declared, offset, line_width),
                        title: format!("{label}.{}: {}", declared.name, declared.summary.escaped()),
                        waiting: Vec::new(),
                        has_heading: false,
                    }
                }
            };
            RowStream { writer, rows_max: choice.rows_max, rows: 0 }
        };
        let streams = |(index, module): (usize, &(String, &Manifest))| {
            let declared = module.1.streams.iter().enumerate();
            declared
                .map(|(number, declared)| {
                    choice.streams.contains(&(index, number)).then(|| stream(module, number, declared))
                })
                .collect()
        };
        let mut output = Self {
            modules: modules.iter().enumerate().map(streams).collect(),
            is_interleaved: choice.is_interleaved,
            last: None,
            buffer: Vec::new(),
            ranked: RankedFindings {
                groups: FindingGroups::new(
                    args.rows
                        .map_or(FINDINGS_DEFAULT, |rows| usize::try_from(rows.0).unwrap_or(usize::MAX))
                        .min(FINDINGS_MAX),
                ),
                labels: modules.iter().map(|(label, _)| label.clone()).collect(),
                offset,
            },
            bar: bar.filter(|_| io::stdout().is_terminal()),
            is_closed: false,
        };
        for stream in output.modules.iter().flatten().flatten() {
            if let RowWriter::Csv(csv) = &stream.writer {
                csv.push_header(&mut output.buffer);
            }
        }
        output
    }

    /// Returns true if rows were printed as tables or lines.
    pub fn has_printed(&self) -> bool {
        self.last.is_some() || self.ranked.groups.total() > 0
    }

    /// Adds a row of the module with this index.
    pub fn push(&mut self, module: usize, record: &Record<'_>) {
        let streams = self.modules.get_mut(module);
        let Some(Some(stream)) = streams.and_then(|streams| streams.get_mut(usize::from(record.stream)))
        else {
            return;
        };
        stream.rows += 1;
        // Findings are printed as they come, or else the most severe of all.
        let is_finding = matches!(stream.writer, RowWriter::Findings { .. });
        if stream.rows > stream.rows_max && !is_finding || self.is_closed {
            return;
        }
        match &mut stream.writer {
            RowWriter::Json(json) => json.push(&mut self.buffer, record),
            RowWriter::Eve(eve) => eve.push(&mut self.buffer, record),
            RowWriter::Csv(csv) => csv.push(&mut self.buffer, record),
            RowWriter::Table { table, waiting, .. } => waiting.push(table.cells(record)),
            RowWriter::Findings { reader, label, offset, lines } => {
                let Some(finding) = reader.read(record) else { return };
                if self.is_interleaved {
                    lines
                        .extend_from_slice(format!("finding  {}\n", finding.line(label, *offset)).as_bytes());
                } else {
                    self.ranked.groups.add(module, &finding);
                }
            }
        }
    }

    /// Writes the rows since the last call.
    ///
    /// # Errors
    /// Standard output cannot be written, but for a closed pipe.
    pub fn flush(&mut self) -> io::Result<()> {
        for module in 0..self.modules.len() {
            for stream in 0..self.modules[module].len() {
                let may_print = self.is_interleaved || self.last.is_none_or(|last| last == (module, stream));
                if may_print && self.has_waiting(module, stream) {
                    self.print_table(module, stream);
                }
            }
        }
        self.write()
    }

    /// Writes the rows that waited for the end, and the number of rows that were not printed.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        // The table that was printed during the run is still the last one.
        let leading = self.last;
        if let Some((module, stream)) = leading {
            self.print_count(module, stream);
        }
        for module in 0..self.modules.len() {
            for stream in 0..self.modules[module].len() {
                if self.has_waiting(module, stream) {
                    self.print_table(module, stream);
                }
                if leading != Some((module, stream)) {
                    self.print_count(module, stream);
                }
            }
        }
        if !self.is_interleaved && self.ranked.groups.total() > 0 {
            if self.last.is_some() {
                self.buffer.push(b'\n');
            }
            self.buffer.extend_from_slice(self.ranked.text().as_bytes());
        }
        self.write()
    }

    fn has_waiting(&self, module: usize, stream: usize) -> bool {
        let stream = self.modules.get(module).and_then(|streams| streams.get(stream)?.as_ref());
        stream.is_some_and(|stream| match &stream.writer {
            RowWriter::Table { waiting, .. } => !waiting.is_empty(),
            RowWriter::Findings { lines, .. } => !lines.is_empty(),
            RowWriter::Json(_) | RowWriter::Eve(_) | RowWriter::Csv(_) => false,
        })
    }

    /// Prints the waiting rows of a stream, after its title and heading unless its table was printed last.
    fn print_table(&mut self, module: usize, stream: usize) {
        let is_first = self.last.is_none();
        let is_continued = self.last == Some((module, stream));
        let Some(Some(row_stream)) = self.modules.get_mut(module).and_then(|streams| streams.get_mut(stream))
        else {
            return;
        };
        let (table, title, waiting, has_heading) = match &mut row_stream.writer {
            RowWriter::Table { table, title, waiting, has_heading } => (table, title, waiting, has_heading),
            RowWriter::Findings { lines, .. } => {
                if !is_first && !is_continued {
                    self.buffer.push(b'\n');
                }
                self.buffer.append(lines);
                self.last = Some((module, stream));
                return;
            }
            RowWriter::Json(_) | RowWriter::Eve(_) | RowWriter::Csv(_) => return,
        };
        let mut text = String::new();
        if !is_continued {
            let mut heading = String::new();
            table.push_heading(&mut heading, waiting);
            text.push_str(if is_first { "" } else { "\n" });
            text.push_str(title);
            if !*has_heading && table.hidden_fields() > 0 {
                let fields = if table.hidden_fields() == 1 { "field does" } else { "fields do" };
                text.push_str(&format!(
                    " ({} {fields} not fit: use a wider terminal or --format json)",
                    table.hidden_fields()
                ));
            }
            text.push('\n');
            text.push_str(&heading);
        }
        *has_heading = true;
        for cells in waiting.drain(..) {
            table.push_row(&mut text, &cells);
        }
        self.buffer.extend_from_slice(text.as_bytes());
        self.last = Some((module, stream));
    }

    /// Prints how many rows of a stream were not printed.
    fn print_count(&mut self, module: usize, stream: usize) {
        let streams = self.modules.get(module);
        let Some(row_stream) = streams.and_then(|streams| streams.get(stream)?.as_ref()) else { return };
        let title = match &row_stream.writer {
            RowWriter::Table { title, .. } => title.clone(),
            RowWriter::Findings { .. } | RowWriter::Json(_) | RowWriter::Eve(_) | RowWriter::Csv(_) => return,
        };
        let more = row_stream.rows.saturating_sub(row_stream.rows_max);
        if more == 0 {
            return;
        }
        let has_no_table = row_stream.rows_max == 0;
        let name = if self.is_interleaved || has_no_table {
            title.split(':').next().unwrap_or_default()
        } else {
            ""
        };
        let rows = if more == 1 { "row" } else { "rows" };
        let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
        let more = weir_rows::text::with_commas(more);
        self.buffer
            .extend_from_slice(format!("… {more} more {rows}{of}, --rows all or --out DIR\n").as_bytes());
    }

    fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() || self.is_closed {
            self.buffer.clear();
            return Ok(());
        }
        let buffer = &self.buffer;
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(buffer).and_then(|()| out.flush())
        };
        let written = match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
        self.buffer.clear();
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_closed = true,
            written => written?,
        }
        Ok(())
    }
}

/// Returns the module and index of each stream.
fn all_streams(modules: &[(String, &Manifest)]) -> Vec<(usize, usize)> {
    (0..modules.len())
        .flat_map(|module| (0..modules[module].1.streams.len()).map(move |stream| (module, stream)))
        .collect()
}

/// Returns the module and index of each stream of `--stream`; `None` without `--stream`.
///
/// # Errors
/// An argument does not name one stream.
pub fn chosen_streams(
    args: &RowArgs,
    modules: &[(String, &Manifest)],
) -> Result<Option<Vec<(usize, usize)>>, StreamArgError> {
    let all = all_streams(modules);
    let named = args.streams.iter().map(|given| find(modules, &all, given));
    let chosen = named.collect::<Result<Vec<_>, _>>()?;
    Ok((!chosen.is_empty()).then_some(chosen))
}

/// Finds the stream that an argument of `--stream` names: `MODULE.STREAM`, or a name that only one module has.
fn find(
    modules: &[(String, &Manifest)],
    all: &[(usize, usize)],
    given: &str,
) -> Result<(usize, usize), StreamArgError> {
    let name_of = |(module, stream): (usize, usize)| modules[module].1.streams[stream].name.as_str();
    let found: Vec<(usize, usize)> = all
        .iter()
        .copied()
        .filter(|&place| match given.split_once('.') {
            Some((label, name)) => modules[place.0].0 == label && name_of(place) == name,
            None => name_of(place) == given,
        })
        .collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(StreamArgError::Unknown { given: given.to_owned(), streams: names(modules, all) }),
        several => {
            Err(StreamArgError::Ambiguous { given: given.to_owned(), streams: names(modules, several) })
        }
    }
}

/// Returns the full names of these streams, as a list.
fn names(modules: &[(String, &Manifest)], places: &[(usize, usize)]) -> String {
    let name = |&(module, stream): &(usize, usize)| {
        format!("{}.{}", modules[module].0, modules[module].1.streams[stream].name)
    };
    places.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Returns the width of the terminal on standard output, in columns; `None` if it is no terminal.
fn line_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Returns false once the reader of a pipe on standard output has closed it.
pub fn has_reader() -> bool {
    weir_os::has_reader(&io::stdout())
}
