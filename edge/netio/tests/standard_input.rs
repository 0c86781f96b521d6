//! Standard input: a pipe, a file, or a file that was partly read before. The test runs itself as the reading
//! process.

use crate::builders::many;
use crate::exercise::read;
use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use weir_netio::{CaptureInput, CaptureOptions};

const CHILD: &str = "WEIR_NETIO_TEST_STDIN";

fn packets_read_from(stdin: Stdio, bytes: Option<&[u8]>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "standard_input::standard_input_is_a_capture", "--nocapture"]).env(CHILD, "1");
    let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    if let (Some(bytes), Some(mut pipe)) = (bytes, child.stdin.take()) {
        pipe.write_all(bytes).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .find_map(|line| line.split_once("read: "))
        .map_or(text.clone(), |(_, found)| found.to_owned())
}

#[test]
fn standard_input_is_a_capture() {
    if std::env::var_os(CHILD).is_some() {
        let reading = read(CaptureInput::Stdin, CaptureOptions::default());
        println!("\nread: {}", reading.map_or_else(|error| error, |r| r.totals.packets.to_string()));
        return;
    }
    let bytes = many(2000);
    assert_eq!(packets_read_from(Stdio::piped(), Some(&bytes)), "2000");
    assert_eq!(packets_read_from(Stdio::piped(), Some(&zstd::encode_all(&bytes[..], 1).unwrap())), "2000");

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"not this").unwrap();
    file.write_all(&bytes).unwrap();
    file.seek(SeekFrom::Start(8)).unwrap();
    assert_eq!(packets_read_from(Stdio::from(file.try_clone().unwrap()), None), "2000");

    file.rewind().unwrap();
    let error = packets_read_from(Stdio::from(file), None);
    assert!(
        error.starts_with("standard input is not a capture: its first bytes are \"not this\""),
        "{error}"
    );
    assert!(packets_read_from(Stdio::null(), None).starts_with("standard input is empty"));
}
