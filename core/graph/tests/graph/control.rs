//! The protocol of control sockets, without sockets.

use proptest::prelude::*;
use weir_graph::control::*;
use weir_graph::engine::{HandlerError, HandlerFault};

/// A graph of three handlers, which writes down the calls.
#[derive(Default)]
struct Recorded(Vec<HandlerCall>);

impl ControlHandlers for Recorded {
    fn call(&mut self, call: HandlerCall) -> Result<String, HandlerError> {
        let fail = |fault, text: &str| Err(HandlerError { fault, text: text.to_owned() });
        let result = match (call.name.as_str(), call.action) {
            ("e.echo", _) => Ok(call.value.clone()),
            ("e.wrong", _) => fail(HandlerFault::Failed, "first reason\nsecond reason"),
            ("e.fixed", HandlerAction::Read | HandlerAction::CheckRead) => Ok("7\n".to_owned()),
            ("e.fixed", _) => fail(HandlerFault::OtherDirection, "handler 'e.fixed' can be read"),
            ("gone", _) => fail(HandlerFault::NoGraph, "the graph has ended"),
            (name, _) if name.starts_with("e.") => fail(HandlerFault::NoHandler, "no handler"),
            _ => fail(HandlerFault::NoElement, "no element"),
        };
        self.0.push(call);
        result
    }
}

/// Sends chunks to a session and then ends the input. Returns the answers and the calls.
fn exchange(chunks: &[&[u8]]) -> (String, Vec<HandlerCall>) {
    let mut session = ControlSession::default();
    let mut handlers = Recorded::default();
    let mut output = Vec::new();
    let mut advance = |session: &mut ControlSession| {
        loop {
            let again = session.advance(&mut handlers);
            output.extend_from_slice(session.output());
            session.sent(session.output().len());
            if !again {
                return;
            }
        }
    };
    for chunk in chunks {
        let mut rest = *chunk;
        while !rest.is_empty() && !session.is_closed() {
            assert!(session.room() > 0, "a session without room never goes on");
            let taken = session.receive(rest);
            rest = &rest[taken..];
            advance(&mut session);
        }
    }
    session.end_input();
    advance(&mut session);
    assert!(session.is_closed());
    (String::from_utf8(output).unwrap(), handlers.0)
}

fn answers(input: &str) -> String {
    let (output, _) = exchange(&[input.as_bytes()]);
    output.strip_prefix("Click::ControlSocket/1.3\r\n").unwrap().to_owned()
}

#[test]
fn each_command_gets_its_answer() {
    let cases = [
        ("READ e.fixed\n", "200 Read handler 'e.fixed' OK\r\nDATA 2\r\n7\n"),
        ("read e.echo  a b \r\n", "200 Read handler 'e.echo' OK\r\nDATA 3\r\na b"),
        ("GET e.echo\r", "200 Read handler 'e.echo' OK\r\nDATA 0\r\n"),
        ("READDATA e.echo 4\r\na\r\nb", "200 Read handler 'e.echo' OK\r\nDATA 4\r\na\r\nb"),
        (
            "READUNTIL e.echo END\n one\n END\nEND  \n",
            "200 Read handler 'e.echo' OK\r\nDATA 10\r\n one\n END\n",
        ),
        ("READUNTIL e.echo\na\r\n\r\n", "200 Read handler 'e.echo' OK\r\nDATA 2\r\na\n"),
        ("WRITE e.echo x\n", "200 Write handler 'e.echo' OK\r\n"),
        ("WRITEDATA e.echo 0\n", "200 Write handler 'e.echo' OK\r\n"),
        (
            "WRITE e.wrong\n",
            "520-Write handler 'e.wrong' error:\r\n520-first reason\r\n520 second reason\r\n",
        ),
        ("READ e.none\n", "511 no handler\r\n"),
        ("READ none\n", "510 no element\r\n"),
        ("READ gone\n", "540 the graph has ended\r\n"),
        ("WRITE e.fixed 1\n", "530 handler 'e.fixed' can be read\r\n"),
        ("CHECKREAD e.fixed\n", "200 Read handler 'e.fixed' OK\r\n"),
        ("CHECKWRITE e.fixed\n", "511 handler 'e.fixed' can be read\r\n"),
        ("CHECKREAD e.fixed 1\n", "500 wrong number of arguments\r\n"),
        ("READ\n", "500 wrong number of arguments\r\n"),
        ("WRITEDATA e.echo x\n", "500 expected: WRITEDATA HANDLER N\r\n"),
        ("WRITEDATA e.echo -1\n", "500 expected: WRITEDATA HANDLER N\r\n"),
        ("LLRPC e#1\n", "501 LLRPC is not implemented\r\n"),
        // The data of an LLRPC is no command.
        (
            "LLRPC e#1 5\nREAD\nNOTHING\n",
            "501 LLRPC is not implemented\r\n501 command 'NOTHING' unimplemented\r\n",
        ),
        ("\n\r\n \n", ""),
        ("QUIT\nREAD e.fixed\n", "200 goodbye\r\n"),
        // The last line needs no end.
        ("READ e.none", "511 no handler\r\n"),
        ("WRITEDATA e.echo 5\nab", "500 not enough data\r\n"),
        ("WRITEUNTIL e.echo END\nab\n", "500 not enough data\r\n"),
    ];
    for (input, expected) in cases {
        assert_eq!(answers(input), expected, "{input:?}");
    }
    let help = answers("HELP\n");
    let lines: Vec<&str> = help.lines().collect();
    assert!(lines.len() > 10 && lines.iter().rev().skip(1).all(|line| line.starts_with("200-")), "{help}");
    assert!(lines.last().is_some_and(|line| line.starts_with("200 QUIT")), "{help}");
}

#[test]
fn pipelined_commands_are_answered_in_their_order() {
    let input: String = (0..2000).map(|index| format!("WRITEDATA e.echo 2\r\n{:02}", index % 100)).collect();
    let (output, calls) = exchange(&[input.as_bytes()]);
    assert_eq!(calls.len(), 2000);
    assert!(calls.iter().enumerate().all(|(index, call)| call.value == format!("{:02}", index % 100)));
    assert_eq!(output.matches("200 Write handler 'e.echo' OK\r\n").count(), 2000);
}

#[test]
fn long_lines_and_values_are_refused() {
    let long = format!("WRITE e.echo {}\nREAD e.fixed\n", "x".repeat(CONTROL_INPUT_MAX));
    let answer = answers(&long);
    assert!(answer.starts_with("500 the line has more than 65536 bytes"), "{answer}");
    assert_eq!(answer.lines().count(), 1, "the rest of the line is no command: {answer}");

    let too_long = CONTROL_VALUE_MAX + 1;
    let data = [
        format!("WRITEDATA e.echo {too_long}\n").into_bytes(),
        vec![b'x'; too_long],
        b"READ e.fixed\n".to_vec(),
    ];
    let (output, calls) = exchange(&[&data.concat()]);
    assert!(output.contains("\r\n521 the value has more than"), "{output}");
    assert_eq!(calls.len(), 1, "the value is skipped, and the next command is executed");

    let lines = [
        b"WRITEUNTIL e.echo END\n".to_vec(),
        b"line\n".repeat(too_long / 5 + 1),
        b"END\nREAD e.fixed\n".to_vec(),
    ];
    let (output, calls) = exchange(&[&lines.concat()]);
    assert!(output.contains("\r\n521 the value has more than"), "{output}");
    assert_eq!(calls.len(), 1);
}

/// A peer that announces the greatest number waits for ever, and takes no memory.
#[test]
fn an_announced_length_takes_no_memory() {
    let mut session = ControlSession::default();
    session.receive(format!("WRITEDATA e.echo {}\n", usize::MAX).as_bytes());
    assert!(!session.advance(&mut Recorded::default()));
    assert_eq!(session.room(), CONTROL_INPUT_MAX);
    assert_eq!(session.output().len(), "Click::ControlSocket/1.3\r\n".len());
}

/// A peer that reads nothing stops its own commands.
#[test]
fn a_session_pauses_until_its_output_is_sent() {
    let mut session = ControlSession::default();
    let mut handlers = Recorded::default();
    let mut sent = 0;
    while session.room() > 100 {
        sent += session.receive("READ e.fixed\n".repeat(100).as_bytes());
        session.advance(&mut handlers);
        assert!(session.output().len() < 100 << 10);
        assert!(sent < 10 << 20);
    }
    let before = handlers.0.len();
    assert!(session.advance(&mut handlers), "it goes on later");
    assert_eq!(handlers.0.len(), before);
    session.sent(usize::MAX);
    session.advance(&mut handlers);
    assert!(handlers.0.len() > before);
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "READ",
        "WRITE",
        "READDATA",
        "WRITEDATA",
        "WRITEUNTIL",
        "READUNTIL",
        "CHECKREAD",
        "LLRPC",
        "HELP",
        "e.echo",
        "e.fixed",
        "e.wrong",
        " ",
        " ",
        "\n",
        "\r",
        "\r\n",
        "3",
        "0",
        "12",
        "END",
        "\u{e4}",
    ];
    let word = prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn the_answers_do_not_depend_on_the_pieces_in_which_bytes_come(
        input in pieces(),
        cuts in proptest::collection::vec(1..20usize, 1..40),
    ) {
        let whole = exchange(&[&input]);
        let single: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&exchange(&single), &whole);
        let mut rest = &input[..];
        let mut chunks = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at((*cut).min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        prop_assert_eq!(&exchange(&chunks), &whole);
        let codes = ["200", "500", "501", "510", "511", "520", "521", "530", "540", "DAT", "Cli"];
        prop_assert!(whole.0.is_empty() || codes.iter().any(|code| whole.0.starts_with(code)));
    }
}
