//! Tests of `weir extcap`, with tshark as the program that starts it and reads its packets. `node/extcap.rs` tests sessions.

use crate::run::net::{cables, send, shell, wait_for, wait_until_it_reads};
use crate::run::packets::{Packet, pcap, read_pcap, traffic};
use crate::run::process::ended;
use crate::run::{outside, run, sample, weir};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// A configuration folder of Wireshark, in which weir is installed as an extcap program.
struct Wireshark {
    folder: TempDir,
}

impl Wireshark {
    /// Returns `None`, with a message on standard error, without tshark.
    fn with_weir() -> Option<Self> {
        if !outside::has("tshark") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let made = Self { folder };
        let mut install = weir();
        install.args(["extcap", "--install", "--socket", "/no/such/socket"]);
        made.finish(&mut install);
        Some(made)
    }

    fn extcap_folder(&self) -> PathBuf {
        self.folder.path().join("wireshark/extcap")
    }

    /// Runs a command with this configuration, and returns its standard output.
    #[track_caller]
    fn finish(&self, command: &mut Command) -> String {
        outside::output(command.env("XDG_CONFIG_HOME", self.folder.path()))
    }

    fn tshark(&self, arguments: &[&str]) -> String {
        self.finish(Command::new("tshark").args(arguments))
    }

    /// Captures from a source with these settings into a file, and returns the file.
    fn capture(&self, source: &str, settings: &[(&str, &str)], rest: &[&str]) -> PathBuf {
        let to = self.folder.path().join("captured.pcapng");
        let module = source.replace(|c: char| !c.is_ascii_alphabetic(), "_");
        let options = settings.iter().map(|(key, value)| format!("extcap.{module}.{key}:{value}"));
        let options: Vec<String> = options.flat_map(|option| ["-o".to_owned(), option]).collect();
        let mut command = Command::new("tshark");
        command.args(["-Q", "-i", source, "-w"]).arg(&to).args(options).args(rest);
        self.finish(&mut command);
        to
    }
}

/// Returns these fields of each packet of a file, as tshark reads them.
fn fields(path: &Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]).arg(path);
    command.args(names.iter().flat_map(|name| ["-e", name]));
    let text = outside::output(&mut command);
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

#[test]
fn tshark_lists_the_sources_and_installing_is_undone() {
    let Some(wireshark) = Wireshark::with_weir() else { return };
    let listed = wireshark.tshark(&["-D"]);
    assert!(listed.contains("weir-capture (weir: capture file in a view)"), "{listed}");
    assert!(listed.contains("weir-interface-lo (weir: lo in a view)"), "{listed}");
    let types = wireshark.tshark(&["-i", "weir-interface-lo", "-L"]);
    assert!(types.contains("EN10MB"), "{types}");
    // Installing again replaces the script; a file of another program stays.
    let script = wireshark.extcap_folder().join("weir-extcap");
    assert!(fs::read_to_string(&script).unwrap().contains("'--socket' '/no/such/socket' \"$@\"\n"));
    let folder = wireshark.extcap_folder();
    let folder = folder.to_str().unwrap();
    run(["extcap", "--install", folder]).succeeds();
    assert!(!fs::read_to_string(&script).unwrap().contains("--socket"));
    run(["extcap", "--uninstall", folder]).succeeds();
    assert!(!script.exists());
    assert!(!wireshark.tshark(&["-D"]).contains("weir"));
    fs::write(&script, "#!/bin/sh\n").unwrap();
    run(["extcap", "--install", folder]).fails(1, &["not made by `weir extcap --install`"]);
    run(["extcap", "--uninstall", folder]).fails(1, &["not made by `weir extcap --install`"]);
    assert_eq!(fs::read_to_string(&script).unwrap(), "#!/bin/sh\n");
}

#[test]
fn the_name_of_an_interface_cannot_break_the_list() {
    if !cables(&[("x}{value=y", "b")]) {
        return;
    }
    let Some(wireshark) = Wireshark::with_weir() else { return };
    let listed = wireshark.tshark(&["-D"]);
    let source = "weir-interface-x%7D%7Bvalue%3Dy";
    assert!(listed.contains(&format!("{source} (weir: x)(value=y in a view)")), "{listed}");
    assert_eq!(listed.matches("weir-interface-").count(), 3, "{listed}");
    // The name that is listed is the interface.
    let types = run(["extcap", "--extcap-interface", source, "--extcap-dlts"]).succeeds();
    assert_eq!(types.text(), "dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    run(["extcap", "--extcap-interface", "weir-interface-x}{value=y", "--extcap-config"])
        .fails(2, &["there is no source"]);
}

#[test]
fn a_capture_file_arrives_as_it_is_and_in_a_view() {
    let Some(wireshark) = Wireshark::with_weir() else { return };
    let file = sample();
    let file = file.to_str().unwrap();
    let names =
        ["frame.time_epoch", "frame.len", "frame.cap_len", "ip.src", "ip.ttl", "tcp.seq_raw", "dns.id"];
    let whole = wireshark.capture("weir-capture", &[("file", file)], &[]);
    assert!(fields(&whole, &names) == fields(Path::new(file), &names));
    let about = fields(&whole, &["frame.interface_name", "frame.interface_description"]);
    assert_eq!(about[0], ["sample.pcap", "view all (everything)"]);
    if outside::has("capinfos") {
        let counted = outside::output(Command::new("capinfos").arg(&whole));
        assert!(counted.contains("Number of stat entries = 1"), "{counted}");
    }

    let view = [("file", file), ("view", "ttl=zeroed,payload=none"), ("select", "udp port 53")];
    let shown = wireshark.capture("weir-capture", &view, &["-f", "src port 53"]);
    let shown = fields(&shown, &["ip.ttl", "udp.srcport", "dns.id", "frame.interface_description"]);
    let answers = fields(Path::new(file), &["udp.srcport"]).iter().filter(|row| row[0] == "53").count();
    assert_eq!(shown.len(), answers);
    assert!(answers > 5);
    let description = "view payload=none,ttl=zeroed (headers only, without times to live), of those that `udp port 53` selects";
    assert!(shown.iter().all(|row| row[..] == ["0", "53", "", description]), "{:?}", shown[0]);
    // The capture filter reads what the view shows, so it cannot select by hidden bytes.
    let filtered = wireshark.capture("weir-capture", &view, &["-f", "ip[8] > 0"]);
    assert_eq!(fields(&filtered, &["ip.ttl"]), [] as [Vec<String>; 0]);
}

#[test]
fn a_capture_is_replayed_at_its_own_pace() {
    let Some(wireshark) = Wireshark::with_weir() else { return };
    let mut packets = traffic(3);
    for (packet, ms) in packets.iter_mut().zip([0, 400, 1200]) {
        packet.ts_ns = 1_700_000_000_000_000_000 + ms * 1_000_000;
    }
    let file = wireshark.folder.path().join("slow.pcap");
    fs::write(&file, pcap(&packets)).unwrap();
    let file = file.to_str().unwrap();
    let time = |pace| {
        let begin = Instant::now();
        let to = wireshark.capture("weir-capture", &[("file", file), ("pace", pace)], &[]);
        assert_eq!(fields(&to, &["frame.number"]).len(), 3);
        begin.elapsed().as_millis()
    };
    assert!(time("own") >= 1200);
}

#[test]
fn errors_are_one_line_and_end_the_capture() {
    let Some(wireshark) = Wireshark::with_weir() else { return };
    let file = sample();
    let file = format!("extcap.weir_capture.file:{}", file.to_str().unwrap());
    for (options, says) in [
        (&["-o", "extcap.weir_capture.file:/no/such/file"][..], "weir: /no/such/file: cannot be opened"),
        (&[], "weir: no capture file is set"),
        (&["-o", &file, "-o", "extcap.weir_capture.view:ttl=no"], "`ttl` cannot be `no`"),
        (&["-o", &file, "-f", "udp prot"], "syntax error"),
    ] {
        let mut command = Command::new("tshark");
        command.args(["-Q", "-i", "weir-capture"]).args(options);
        let output = command.env("XDG_CONFIG_HOME", wireshark.folder.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let line = said.lines().find(|line| line.contains("weir: ")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(says), "{said}");
    }
    // Wireshark checks a filter before the capture: nothing is printed about a valid one.
    let check =
        |filter| run(["extcap", "--extcap-interface", "weir-capture", "--extcap-capture-filter", filter]);
    assert_eq!(check("udp port 53").succeeds().text(), "");
    assert!(check("udp prot").succeeds().text().contains("syntax error"));
    run(["extcap"]).fails(2, &["weir extcap --install"]);
    run(["extcap", "--extcap-interface", "weir-capture", "--capture"]).fails(2, &["--fifo"]);
    let regular = wireshark.folder.path().join("regular");
    fs::write(&regular, "").unwrap();
    let regular = regular.to_str().unwrap();
    run(["extcap", "--extcap-interface", "weir-capture", "--capture", "--fifo", regular])
        .fails(1, &["not a named pipe"]);
}

#[test]
fn packets_of_an_interface_arrive_while_the_capture_goes_on_and_losses_are_comments() {
    if !cables(&[("a", "b")]) || !outside::has("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    shell(&format!("mkfifo {}", fifo.display()));
    let begin = Instant::now();
    let child = weir()
        .args(["extcap", "--capture", "--extcap-interface", "weir-interface-b", "--ring", "1MiB", "--view"])
        .args(["payload=none", "--extcap-capture-filter", "udp", "--fifo"])
        .arg(&fifo)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = File::open(&fifo).unwrap();
    wait_until_it_reads(&child);
    let mut captured = vec![0; 1 << 16];
    // The description of the interface arrives without a packet, and the first packet without a second one.
    let header = pipe.read(&mut captured).unwrap();
    assert!(header > 28);
    let mut len = header;
    let packets = read_pcap(&fs::read(sample()).unwrap());
    let udp: Vec<&Packet> = packets
        .iter()
        .filter(|p| p.bytes.len() > 24 && p.bytes[12..14] == [8, 0] && p.bytes[23] == 17)
        .collect();
    send("a", [udp[0].bytes.as_slice()]);
    len += pipe.read(&mut captured[len..]).unwrap();
    let written = folder.path().join("captured.pcapng");
    fs::write(&written, &captured[..len]).unwrap();
    let names = ["udp.dstport", "frame.interface_name", "frame.interface_description", "frame.comment"];
    let first = fields(&written, &names);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0][1..], ["b", "view payload=none (headers only)", ""]);

    // Nothing reads the pipe for a while, so the memory for packets becomes full.
    let frame = [udp[0].bytes.as_slice(), &[0; 1000]].concat();
    let total = 20_000;
    send("a", (0..total).map(|_| frame.as_slice()));
    let path = fifo.clone();
    let reader = std::thread::spawn(move || {
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).unwrap();
        drop(path);
        rest
    });
    // Further packets show the loss.
    wait_for(|| {
        send("a", [frame.as_slice()]);
        std::thread::sleep(std::time::Duration::from_millis(50));
        begin.elapsed().as_secs() > 3
    });
    shell(&format!("kill -TERM {}", child.id()));
    ended(child, "weir extcap", begin).succeeds();
    let rest = reader.join().unwrap();
    fs::write(&written, [&captured[..len], &rest].concat()).unwrap();
    let rows = fields(&written, &["frame.comment"]);
    let lost = rows
        .iter()
        .filter_map(|row| row[0].strip_prefix("weir: ")?.split_once(" packet")?.0.parse::<usize>().ok());
    let lost: usize = lost.sum();
    assert!(lost > 1000, "{lost} of {}", rows.len());
    // Each packet is there or counted.
    assert!(rows.len() + lost > total, "{} and {lost}", rows.len());
    let statistics =
        String::from_utf8_lossy(&rest).contains(&format!("weir: {} packets shown, {lost} lost", rows.len()));
    assert!(statistics, "{} {lost}", rows.len());
}

#[test]
fn a_capture_ends_without_an_error_when_its_reader_closes_the_pipe() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    shell(&format!("mkfifo {}", fifo.display()));
    let file = sample();
    for source in [&["weir-interface-b"][..], &["weir-capture", "--file", file.to_str().unwrap()]] {
        let begin = Instant::now();
        let mut command = weir();
        command.args(["extcap", "--capture", "--extcap-interface"]).args(source).arg("--fifo").arg(&fifo);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = File::open(&fifo).unwrap();
        pipe.read_exact(&mut [0; 8]).unwrap();
        drop(pipe);
        let ended = ended(child, "weir extcap", begin).succeeds();
        assert_eq!(ended.stderr, "", "{source:?}");
    }
}
