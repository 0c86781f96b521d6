//! Strangers' filter expressions, each compiled in a process of its own.
//!
//! libpcap compiles in C, takes as long and as much memory as an expression has it take, and looks names up: in files, and by asking name servers. So what a
//! stranger wrote does not reach it here, but in a [child](weir_confine::child) that has little time and memory, and is killed with SIGSYS before it
//! opens a file or makes a socket. Expressions without names need neither.
//!
//! The child is sent the number of the link type (two bytes, lowest first) and then the expression. It answers with the byte [`PROGRAM`] and then the
//! instructions, eight bytes each: code, two jumps, operand, lowest bytes first; or with the byte [`MESSAGE`] and then what libpcap says.

use super::Filter;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use weir_confine::Meter;
use weir_confine::child::{self, ChildError, Cores, Limits, plain};
use weir_demux::{INSTRUCTIONS_MAX, Instruction, Program, ProgramError};
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;

/// The longest expression that is compiled, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;

/// The argument that makes a process of weir the child; it has to answer it with [`filter_child`].
pub const FILTER_CHILD: &str = "compile-filter";

const PROGRAM: u8 = 0;
const MESSAGE: u8 = 1;
/// An encoded instruction.
const INSTRUCTION_BYTES: usize = 8;
/// libpcap's messages have 256 bytes at most (PCAP_ERRBUF_SIZE); ours say no more.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The most that a child has to say.
const ANSWER_BYTES_MAX: usize = 1 + INSTRUCTIONS_MAX * INSTRUCTION_BYTES;
/// The beginning of an expression that an error repeats, in characters.
const SHOWN_MAX: usize = 200;

/// Of a child that was killed as it began to look something up; which name it was, nobody can say.
const LOOKED_UP: &str = "it has the name of a host, network, port or protocol";

/// How libpcap begins to say that something is no name that it knows (1.10, gencode.c), where it finds that out without looking it up.
const UNKNOWN: [&str; 11] = [
    "unknown host",
    "unknown network",
    "unknown port",
    "unknown protocol",
    "unknown ip proto",
    "unknown ether host",
    "unknown FDDI host",
    "unknown token ring host",
    "unknown 802.11 host",
    "unknown Fibre Channel host",
    "decnet name",
];

/// What compiling one expression may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLimits {
    /// Processor time, in whole seconds.
    pub processor: Nanos,
    /// From the start of the process to its end: more, as others want the processor too.
    pub time: Nanos,
    /// Address space.
    pub memory: Bytes,
    /// Its cores; those of the thread that wants it compiled where there are none.
    pub cores: Option<Cores>,
}

impl Default for FilterLimits {
    /// A hundred times what usual expressions take.
    fn default() -> Self {
        Self {
            processor: Nanos::SECOND,
            time: Nanos(20 * Nanos::SECOND.0),
            memory: Bytes(256 << 20),
            cores: None,
        }
    }
}

/// Why an expression of a stranger's has no program. [`FilterFault`] says who is to blame.
#[derive(Debug, thiserror::Error)]
#[error("filter expression `{expression}` for link type {} ({}): {fault}", .link_type.number(), .link_type.name())]
pub struct ApartError {
    /// Its beginning, without control characters.
    pub expression: String,
    /// For which packets it was compiled.
    pub link_type: LinkType,
    /// What is wrong.
    pub fault: FilterFault,
}

/// What is wrong with an expression, or with the process that was to compile it.
#[derive(Debug, thiserror::Error)]
pub enum FilterFault {
    /// To blame is the expression.
    #[error("it has {0} bytes, and {EXPRESSION_BYTES_MAX} is the most")]
    Long(usize),
    /// To blame is the expression: it has a name for what has a number.
    #[error("{0}; names are not looked up: write the address or the number")]
    Name(String),
    /// To blame is the expression. What libpcap says, on one line.
    #[error("{0}; man 7 pcap-filter describes the language")]
    Expression(String),
    /// To blame is the expression: it is hard to compile.
    #[error(
        "compiling it takes more than {} of processor time, {} in all, and was given up; a shorter expression would help",
        .0.processor, .0.time
    )]
    Limits(FilterLimits),
    /// To blame is the request: all that is compiled for it takes too long together.
    #[error(
        "all that this request has to have compiled takes more than {0} of processor time, and was given up; ask for less in one request"
    )]
    Budget(Nanos),
    /// To blame is the load of the node.
    #[error(
        "compiling it gave way to others, whose shares of the processor are larger or less used: try again"
    )]
    GaveWay,
    /// To blame is the expression, most likely: whoever compiled it has been killed.
    #[error(
        "the process that compiled it was killed by signal {signal}, and may have had more than {memory} to keep; a shorter expression would help"
    )]
    Killed {
        /// signal(7).
        signal: i32,
        /// Its limit.
        memory: Bytes,
    },
    /// To blame is the expression: what it compiles to is nothing that a node runs.
    #[error("what it compiles to cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// To blame is whoever took over the child, or a fault of weir's.
    #[error("the process that compiled it gave an answer that is none")]
    Answer,
    /// To blame is the node.
    #[error("there is no process to compile it in: {0}")]
    Process(io::Error),
}

/// Compiles what strangers wrote, each expression in a process of its own.
#[derive(Clone, Debug, Default)]
pub struct FilterCompiler {
    limits: FilterLimits,
    program: Option<PathBuf>,
}

impl FilterCompiler {
    /// With these limits, and this program for the child, which answers [`FILTER_CHILD`] with [`filter_child`]; without one, this program itself.
    pub fn new(limits: FilterLimits, program: Option<PathBuf>) -> Self {
        Self { limits, program }
    }

    /// Compiles an expression for packets of `link_type`. What comes is a program, whoever has made it; of what it selects only the child knows.
    ///
    /// # Errors
    /// [`ApartError`]. There is no child any more afterwards.
    pub fn compile(&self, expression: &str, link_type: LinkType) -> Result<Program, ApartError> {
        self.compile_counting(expression, link_type, &mut Nanos(0))
    }

    /// The same, and takes off `meter` the processor time that the child used, also where it failed.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn compile_counting(
        &self,
        expression: &str,
        link_type: LinkType,
        meter: &mut dyn Meter,
    ) -> Result<Program, ApartError> {
        self.ask(expression, link_type, meter).map_err(|fault| {
            let shown: String = expression.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
            let more = if expression.chars().nth(SHOWN_MAX).is_some() { "..." } else { "" };
            ApartError { expression: shown + more, link_type, fault }
        })
    }

    fn ask(
        &self,
        expression: &str,
        link_type: LinkType,
        meter: &mut dyn Meter,
    ) -> Result<Program, FilterFault> {
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(FilterFault::Long(expression.len()));
        }
        let (left, all) = (meter.left(), meter.limit());
        if left == Nanos(0) {
            return Err(FilterFault::Budget(all));
        }
        let FilterLimits { processor, time, memory, cores } = self.limits;
        let limits = Limits { processor: processor.min(left), time, memory, answer: ANSWER_BYTES_MAX, cores };
        let question = [&link_type.number().to_le_bytes(), expression.as_bytes()].concat();
        let itself = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(FilterFault::Process)?,
        };
        let asked = child::ask(&itself, FILTER_CHILD, &question, &limits, meter);
        let answer = asked.answer.map_err(|error| match error {
            ChildError::Time(_) if left < processor => FilterFault::Budget(all),
            ChildError::GaveWay => FilterFault::GaveWay,
            ChildError::Time(_) => FilterFault::Limits(self.limits),
            ChildError::Killed(libc::SIGSYS) => FilterFault::Name(LOOKED_UP.to_owned()),
            ChildError::Killed(signal) => FilterFault::Killed { signal, memory },
            ChildError::Answer(_) => FilterFault::Answer,
            ChildError::Process(error) => FilterFault::Process(error),
        })?;
        if !answer.is_done {
            return Err(FilterFault::Process(io::Error::other(answer.said)));
        }
        understand(&answer.bytes)
    }
}

/// What a child's answer is: allegations, until they have been looked at.
fn understand(answer: &[u8]) -> Result<Program, FilterFault> {
    match answer.split_first() {
        Some((&PROGRAM, encoded)) => {
            let (instructions, rest) = encoded.as_chunks::<INSTRUCTION_BYTES>();
            if !rest.is_empty() {
                return Err(FilterFault::Answer);
            }
            let instructions: Vec<Instruction> = instructions.iter().map(decode).collect();
            Ok(Program::new(&instructions)?)
        }
        Some((&MESSAGE, message)) if message.len() <= MESSAGE_BYTES_MAX => {
            let message = plain(message);
            Err(if UNKNOWN.iter().any(|begin| message.starts_with(begin)) {
                FilterFault::Name(message)
            } else {
                FilterFault::Expression(message)
            })
        }
        _ => Err(FilterFault::Answer),
    }
}

fn encode(instruction: &Instruction) -> [u8; INSTRUCTION_BYTES] {
    let ([a, b], [k0, k1, k2, k3]) = (instruction.code.to_le_bytes(), instruction.k.to_le_bytes());
    [a, b, instruction.jt, instruction.jf, k0, k1, k2, k3]
}

fn decode(&[a, b, jt, jf, k0, k1, k2, k3]: &[u8; INSTRUCTION_BYTES]) -> Instruction {
    Instruction { code: u16::from_le_bytes([a, b]), jt, jf, k: u32::from_le_bytes([k0, k1, k2, k3]) }
}

/// What the child does: gives up what it does not need, reads an expression from standard input, and writes its program, or why there is none, to
/// standard output.
///
/// # Errors
/// One of the two cannot be read or written.
pub fn filter_child() -> io::Result<()> {
    child::confined(weir_confine::translator);
    let mut question = Vec::new();
    // Two for the link type; and one more, for which it is refused.
    io::stdin().lock().take(EXPRESSION_BYTES_MAX as u64 + 3).read_to_end(&mut question)?;
    let mut out = io::stdout().lock();
    out.write_all(&answer(&question))?;
    out.flush()
}

fn answer(question: &[u8]) -> Vec<u8> {
    match compiled(question) {
        Ok(instructions) => [PROGRAM].into_iter().chain(instructions.iter().flat_map(encode)).collect(),
        Err(message) => [MESSAGE].into_iter().chain(message.bytes().take(MESSAGE_BYTES_MAX)).collect(),
    }
}

fn compiled(question: &[u8]) -> Result<Vec<Instruction>, String> {
    let (number, expression) = question.split_first_chunk().ok_or("there is no link type")?;
    let link_type =
        LinkType::try_from(u32::from(u16::from_le_bytes(*number))).map_err(|error| error.to_string())?;
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes"));
    }
    let expression = std::str::from_utf8(expression).map_err(|error| error.to_string())?;
    let instructions =
        Filter::unchecked(expression).instructions(link_type).map_err(|error| match &error.error {
            pcap::Error::PcapError(says) => says.clone(),
            other => other.to_string(),
        })?;
    // The answer has no room for more.
    if instructions.len() > INSTRUCTIONS_MAX {
        let count = instructions.len();
        return Err(format!("it compiles to {count} instructions, and {INSTRUCTIONS_MAX} are the most"));
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(expression: &str) -> Vec<u8> {
        [&LinkType::Ethernet.number().to_le_bytes(), expression.as_bytes()].concat()
    }

    #[test]
    fn what_a_child_answers_is_what_libpcap_made() {
        for expression in ["", "udp port 53", "tcp[13] & 4 != 0", "ether host 02:00:00:00:00:02 or vlan 5"] {
            let here = Filter::new(expression).unwrap().instructions(LinkType::Ethernet).unwrap();
            let there = understand(&answer(&asked(expression))).unwrap();
            assert_eq!(there, Program::new(&here).unwrap(), "{expression}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_no_program() {
        let good = answer(&asked("udp"));
        for cut in 0..good.len() {
            assert!(understand(&good[..cut]).is_err(), "{cut}");
        }
        let refused = |answer: &[u8]| understand(answer).unwrap_err();
        assert!(matches!(refused(&[2]), FilterFault::Answer));
        assert!(matches!(refused(&[&good[..], &[0]].concat()), FilterFault::Answer));
        // As long as the pipe lets it be, and each a return.
        let many: Vec<u8> =
            [PROGRAM].into_iter().chain([6, 0, 0, 0, 0, 0, 0, 0].repeat(INSTRUCTIONS_MAX + 1)).collect();
        assert!(matches!(refused(&many), FilterFault::Program(ProgramError::TooLong(_))));
        // A jump back, and one to nowhere.
        for jump in [[5, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff], [0x15, 0, 200, 200, 0, 0, 0, 0]] {
            let answer = [&[PROGRAM][..], &jump, &[6, 0, 0, 0, 0, 0, 0, 0]].concat();
            assert!(matches!(refused(&answer), FilterFault::Program(ProgramError::JumpOut { .. })));
        }
    }

    #[test]
    fn a_message_of_a_child_forges_no_line_and_is_not_long() {
        let says = |message: &[u8]| understand(&[&[MESSAGE], message].concat()).unwrap_err();
        let told = says(b"all is well\x1b[2J\nweir: and this is not from weir\xff").to_string();
        assert!(!told.contains(['\n', '\x1b']) && told.starts_with("all is well\\u{1b}[2J\\nweir"), "{told}");
        assert!(matches!(says(&[b'a'; MESSAGE_BYTES_MAX + 1]), FilterFault::Answer));
        assert!(matches!(says(b"unknown host 'a.example'"), FilterFault::Name(_)));
    }

    #[test]
    fn a_question_that_is_none_is_answered_with_words() {
        let says = |question: &[u8]| understand(&answer(question)).unwrap_err().to_string();
        assert!(says(&[]).contains("there is no link type"));
        assert!(says(&[77, 77]).contains("link type 19789 is not one"));
        assert!(says(&asked(&"a".repeat(EXPRESSION_BYTES_MAX + 1))).contains("at most 4096 bytes"));
        assert!(says(&[1, 0, 0xff]).contains("invalid utf-8"));
        assert!(says(&asked("udp\0 or tcp")).contains("invalid input string"));
    }
}
