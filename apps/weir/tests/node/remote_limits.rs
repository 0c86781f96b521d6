//! What a credential limits beside processor time and memory: each limit is held, and whoever got the right from one and the same holder shares it.

use crate::limits::{shown, teller};
use crate::place::{is_inside, udp};
use crate::remote::{Net, Person, modest};
use weir_trust::grant::{Ceilings, CpuShare, Grant};

/// A module's file, for the program that sends it.
fn file(net: &Net, name: &str, bytes: &[u8]) -> String {
    let path = net.folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn create<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let session = ["session", "create", "s", "--memory", "1 MiB", "--channel", "interface=b"];
    [&session[..], &["--cpu", "period=10ms,slice=1ms"], more].concat()
}

#[test]
fn delegates_share_records_and_none_has_more_taken() {
    if !is_inside("remote_limits::delegates_share_records_and_none_has_more_taken") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        records_per_second: Some(10),
        sessions: Some(5),
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let students: Vec<Person> =
        (0..3).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    net.refused(
        &researcher,
        &create(&["--records", "11"]),
        "records per second: asked for 11; of the 10 given",
    );
    net.done(&students[0], &create(&["--records", "0"]));
    net.done(&students[1], &create(&["--records", "4"]));
    // Where nothing is said it is all that was granted, of which a part is taken.
    net.refused(&students[2], &create(&[]), "records per second: asked for 10; of the 10 given to");
    net.done(&students[2], &create(&["--records", "6"]));
    // Nor can one be changed beyond what is left; and who says nothing keeps what he has.
    let change = |records: &'static str| ["session", "change", "s", "--records", records];
    net.refused(&students[1], &change("5"), "asked for 5; of the 10 given to");
    net.done(&students[1], &["session", "change", "s", "--memory", "2 MiB"]);
    let name = students[0].name_of("s");
    let module = file(&net, "teller.wasm", &teller("teller"));
    net.done(&students[0], &["load", "s", &module]);
    net.place.send(&vec![udp(7, b"x"); 100]);
    net.place.until("all are lost", |place| place.count(&name, "teller", "records_lost") == 100);
    assert_eq!(shown(&net.place, &name)["limits"]["records_over_rate"], 100);
    let told = net.done(&students[0], &["session", "show", "s"]);
    assert!(told.contains("limits: 0 records a second (100 lost)"), "{told}");
    // What one gives back another can have, and one alone has the whole.
    net.done(&students[1], &change("1"));
    for student in &students {
        net.done(student, &["session", "close", "s"]);
    }
    net.done(&students[2], &create(&[]));
    assert_eq!(shown(&net.place, &students[2].name_of("s"))["limits"]["records_per_second"], 10);
    assert!(net.place.stop().success());
}
