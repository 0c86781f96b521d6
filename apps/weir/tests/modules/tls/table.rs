//! The table of handshakes, threads, findings and bounds of the module `tls`.

use super::super::capture::{MILLISECOND, SECOND, samples};
use super::super::weir::{run, run_file};
use super::messages::{
    ClientHello, Connection, HANDSHAKE, alert, captures, certificate, common_name, record, server_flight,
    server_hello_of,
};
use super::{CLIENT, EXAMPLE_JA4, SERVER, findings, leaf, module, run_tls, text, tls12};
use std::path::PathBuf;
use std::process::Command;

/// Connections that begin at the same time, from different clients, with only a ClientHello each.
fn pending(count: u32) -> Vec<Connection> {
    let client =
        |number: u32| format!("10.1.{}.{}:{}", number >> 8 & 255, number & 255, 1024 + (number >> 16));
    let hello = ClientHello::example().record();
    (0..count)
        .map(|number| {
            Connection::open(&client(number), SERVER).after(u64::from(number) * 1000).client(&hello)
        })
        .collect()
}

#[test]
fn a_full_table_gives_the_oldest_handshake_its_row() {
    let capture = captures(&pending(3000));
    let rows = run(&capture, &["-m", &module(",handshakes=1024")]).rows("tls", "handshakes");
    assert_eq!(rows.len(), 3000);
    let evicted = rows.iter().filter(|row| text(row, "end") == "evicted").count();
    // Of 1,024 contexts one in each set of 16 stays free.
    assert!((2040..2300).contains(&evicted), "{evicted}");
    assert!(rows.iter().all(|row| text(row, "ja4") == EXAMPLE_JA4 && row.number("evicted") == 0));
    let all = run(&capture, &["-m", &module(",handshakes=16384")]).rows("tls", "handshakes");
    assert!(all.iter().all(|row| text(row, "end") != "evicted"), "a larger table holds them");

    // ClientHellos that are not complete have no row; the next row counts them.
    let mut halves = pending(3000);
    halves.iter_mut().for_each(|half| half.packets[3].1.payload.truncate(100));
    halves.extend(pending(3000).into_iter().map(|connection| {
        let mut later = connection.after(SECOND);
        later.packets.iter_mut().for_each(|(_, packet)| {
            let end = if packet.to == SERVER.parse().unwrap() { &mut packet.from } else { &mut packet.to };
            end.set_port(50000);
        });
        later
    }));
    let rows = run(&captures(&halves), &["-m", &module(",handshakes=1024")]).rows("tls", "handshakes");
    assert_eq!(rows.len(), 3000);
    let lost: i128 = rows.iter().map(|row| row.number("evicted")).sum();
    assert!((2900..=3000).contains(&lost), "{lost}");
}

#[test]
fn rows_do_not_depend_on_the_number_of_threads() {
    let mut connections = pending(4000);
    connections.extend((0..200_u64).map(|number| tls12(16384, 300).after(number * 50 * MILLISECOND)));
    for (number, connection) in connections.iter_mut().enumerate().skip(4000) {
        let client = format!("10.2.0.{}:{}", number % 200, 2000 + number).parse().unwrap();
        for (_, packet) in &mut connection.packets {
            if packet.to == SERVER.parse().unwrap() { packet.from = client } else { packet.to = client }
        }
    }
    let capture = captures(&connections);
    let module = module(",handshakes=1024,streams=1024");
    let generated = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(generated.path(), capture.to_pcap()).unwrap();
    for path in samples().iter().map(PathBuf::as_path).chain([generated.path()]) {
        let files = ["1", "2", "3"].map(|jobs| run_file(path, &["-m", &module, "--jobs", jobs]).files());
        assert!(files[0].iter().all(|(_, bytes)| bytes.len() > 500), "{}", path.display());
        assert!(files[0] == files[1] && files[0] == files[2], "{}", path.display());
    }
}

#[test]
fn findings_name_certificates_versions_and_refusals_once_an_hour() {
    let handshake = |flight: Vec<u8>| {
        Connection::open(CLIENT, SERVER)
            .client(ClientHello::example().record())
            .server(record(HANDSHAKE, &flight))
    };
    let expired = certificate(&common_name("CA"), &common_name("a"), ["200101000000Z", "231112221320Z"], 10);
    let early = certificate(&common_name("CA"), &common_name("a"), ["231115000000Z", "300101000000Z"], 10);
    for (leaf, expected) in [
        (
            expired,
            "The certificate of 192.0.2.7, port 8443 (www.example.com) has expired 2 days ago: renew it",
        ),
        (
            early,
            "The certificate of 192.0.2.7, port 8443 (www.example.com) is not yet valid: check the clocks",
        ),
    ] {
        let run = run_tls(&handshake(server_flight(&leaf)).capture());
        assert_eq!(findings(&run), [(3, expected.to_owned())]);
        assert_eq!(run.rows("tls", "findings")[0].text("filter"), "tcp port 8443 and host 192.0.2.7");
        assert_eq!(run.rows("tls", "findings")[0].text("evidence"), "handshakes");
    }
    assert_eq!(findings(&run_tls(&handshake(server_flight(&leaf())).capture())), []);

    // Many connections with one server: findings are few, and come again after an hour.
    let many = |flight: &dyn Fn(Connection) -> Connection, after: u64| {
        let client = |number: u64| format!("10.3.{}.{}:40000", number >> 8, number & 255);
        (0..1000_u64)
            .map(|number| {
                flight(
                    Connection::open(&client(number), SERVER)
                        .after(after + number * 1000)
                        .client(ClientHello::example().record()),
                )
            })
            .collect::<Vec<_>>()
    };
    let old = |connection: Connection| {
        connection.server(record(HANDSHAKE, &server_hello_of(0x0301, &[1; 32], &[], 0x002F, &[]))).reset()
    };
    let hour = 3601 * SECOND;
    let run = run_tls(&captures(&[many(&old, 0), many(&old, hour)].concat()));
    let texts = findings(&run);
    assert_eq!(run.rows("tls", "handshakes").len(), 2000);
    assert_eq!(texts.len(), 16, "eight parts of the hash space, twice");
    let expected = "The server 192.0.2.7, port 8443 (www.example.com) uses the obsolete version TLS 1.0: allow TLS 1.2 or 1.3 on both sides";
    assert!(texts.iter().all(|finding| *finding == (2, expected.to_owned())), "{texts:?}");

    let refused = |connection: Connection| connection.server(alert(2, 40));
    let texts = findings(&run_tls(&captures(&many(&refused, 0))));
    assert_eq!(texts.len(), 8);
    assert!(
        texts[0]
            .1
            .starts_with("The server 192.0.2.7, port 8443 (www.example.com) refused 4 handshakes or more"),
        "{texts:?}"
    );
}

#[test]
fn the_module_is_proved_with_its_defaults_and_with_the_largest_parameters() {
    for parameters in ["", ",streams=1048576,handshakes=131072"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(module(parameters)).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("Tier: proved"), "{said}");
    }
}
