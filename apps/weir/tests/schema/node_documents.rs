//! The JSON documents of commands that connect to a node, and of a ledger. The values have all fields, and none of those that may be
//! absent. They list every field, so that a new field is added to them, and then to its schema.

use crate::control::FakeNode;
use crate::policy::{setup, succeeds};
use crate::run::outside::python;
use crate::run::run;
use crate::run::schema_coverage::SchemaCoverage;
use serde_json::{Value, json};
use std::path::Path;
use weir_admission::Name;
use weir_ledger::Usage;
use weir_node::control::protocol::{Explanation, RecordFile, RequestVerdict, SharedStatus, UsedStatus};
use weir_node::control::services::{CallPayer, OfferSpec, UseSpec};
use weir_node::control::status::{
    CeilingStatus, ChannelStatus, CredentialTree, DelegatedStatus, DelegationStatus, FindingStatus,
    FindingsStatus, LimitsStatus, LinkStatus, ModuleStatus, OutputStatus, RevocationsStatus, RootStatus,
    ServicesStatus, SessionStatus, Snapshot, VirtualCpuStatus,
};
use weir_trust::grant::Resource;
use weir_units::Nanos;

/// A text that no field may print as it is: it would clear the screen.
const TEXT: &str = "a \"text\"\u{1b}[2J";

fn text() -> String {
    TEXT.to_owned()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn texts() -> Vec<String> {
    vec![text(), String::new()]
}

/// Returns a reply of a node, as a line.
fn line(reply: &Value) -> String {
    json!({ "weir": 1, "reply": reply }).to_string() + "\n"
}

/// Runs a command with a node that sends these replies, and adds its document.
fn add(coverage: &mut SchemaCoverage, replies: &[Value], arguments: &[&str]) {
    let replies: Vec<String> = replies.iter().map(line).collect();
    let (ended, _) = FakeNode::new(&[replies.concat().as_str()]).run(arguments);
    assert!(!ended.text().contains('\u{1b}'), "{}", ended.text());
    coverage.add(ended.json());
}

fn finish(coverage: &SchemaCoverage) {
    coverage.validate(python(&["jsonschema"]).as_deref());
    coverage.assert_complete(&[]);
}

/// The usage of a session with a number in each counter.
fn used() -> Usage {
    let mut fields: serde_json::Map<_, _> =
        Usage::counters().zip(1..).map(|(counter, n)| (counter.field.to_owned(), json!(n))).collect();
    fields.insert("memory_byte_s".to_owned(), json!(u64::MAX));
    fields.insert("memory_byte_ns".to_owned(), json!(999_999_999));
    fields.insert("drops".to_owned(), json!({ "queue-full": 7, "disk-full": u64::MAX, "deadline": 1 }));
    serde_json::from_value(fields.into()).unwrap()
}

/// The limits of a session with a number in each.
fn limits() -> LimitsStatus {
    let limits = Resource::limits().flat_map(|(_, limit)| {
        let usage = limit.present_use.as_ref().map(|shown| shown.key);
        [limit.key, limit.excess.key].into_iter().chain(usage)
    });
    let mut fields: serde_json::Map<_, _> = limits.map(|key| (key.to_owned(), json!(u64::MAX))).collect();
    fields.insert("writes".to_owned(), json!(["ttl", "dscp"]));
    fields.insert("writes_refused".to_owned(), json!(3));
    serde_json::from_value(fields.into()).unwrap()
}

fn cpu() -> VirtualCpuStatus {
    VirtualCpuStatus {
        name: text(),
        core: u16::MAX,
        period_ns: 1,
        slice_ns: 2,
        borrow: true,
        weight: 3,
        used_ns: u64::MAX,
        spare_ns: 4,
        periods_missed: 5,
        overruns: 6,
        debited_ns: 7,
    }
}

fn channel() -> ChannelStatus {
    ChannelStatus {
        name: text(),
        interface: text(),
        filter: text(),
        view: text(),
        waiting: 1,
        queue: 2,
        packets: u64::MAX,
        bytes: u64::MAX,
        drops: [(text(), 5)].into(),
        findings: [(text(), 6)].into(),
        counts_others: true,
    }
}

fn output() -> OutputStatus {
    OutputStatus {
        name: text(),
        link: text(),
        tap: Some(text()),
        reserved_bits: 1,
        cap_bits: 2,
        period_ns: 13,
        filter: text(),
        weight: u16::MAX,
        waiting: 4,
        queue: 5,
        packets: 6,
        bytes: 7,
        wire_bytes: 8,
        reserved_wire_bytes: 9,
        drops: [(text(), 10)].into(),
        tap_packets: 11,
        tap_lost: 12,
    }
}

fn module() -> ModuleStatus {
    ModuleStatus {
        name: text(),
        module: text(),
        tier: text(),
        bound: Some(text()),
        state: text(),
        packets: 1,
        records: 2,
        records_lost: 3,
        faults: 4,
        isolation: text(),
        back_end: text(),
        compiled_by: texts(),
        strikes: 5,
        used_ns: 6,
        other_threads_ns: 7,
        memory: 8,
        last_fault: Some(text()),
        streams: texts(),
        findings: [(text(), 9)].into(),
    }
}

fn services() -> ServicesStatus {
    ServicesStatus {
        calls: 1,
        refused: 2,
        answered: 3,
        timed_out: 4,
        failed: 5,
        served: 6,
        waiting: 7,
        discarded: 8,
        debit_ns: 9,
        credit_ns: 10,
    }
}

fn finding() -> FindingStatus {
    FindingStatus {
        module: text(),
        time_ns: u64::MAX,
        severity: u8::MAX,
        text: text(),
        filter: text(),
        evidence: text(),
    }
}

fn session(called: &str) -> SessionStatus {
    SessionStatus {
        name: called.to_owned(),
        id: 7,
        credential: Some(text()),
        priority: u8::MAX,
        memory_reserved: 1,
        memory_used: 2,
        memory_max: 3,
        memory_low: 4,
        memory_refused: 5,
        limits: limits(),
        cpu: vec![cpu(), VirtualCpuStatus::default()],
        channels: vec![channel(), ChannelStatus::default()],
        outputs: vec![output(), OutputStatus::default()],
        modules: vec![module(), ModuleStatus::default()],
        ended: vec![module()],
        used: used(),
        services: services(),
        findings: FindingsStatus {
            counts: [("high".to_owned(), 1)].into(),
            latest: vec![finding(), FindingStatus::default()],
        },
        publish: texts(),
        read: texts(),
        offers: vec![OfferSpec {
            service: name("lookup"),
            callers: vec![name("a")],
            queue: 1,
            payer: CallPayer::Caller,
        }],
        uses: vec![
            UseSpec { service: name("lookup"), session: name("b"), cost_max: Some(Nanos(50_000)) },
            UseSpec { service: name("other"), session: name("b"), cost_max: None },
        ],
        share: texts(),
        sums_only: true,
    }
}

#[test]
fn the_state_of_a_session_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("session");
    let empty = SessionStatus { name: "empty".to_owned(), ..SessionStatus::default() };
    // A part of the limits and of the findings.
    let mut some = SessionStatus { name: "some".to_owned(), ..SessionStatus::default() };
    some.limits = serde_json::from_value(json!({ "records_per_second": 5 })).unwrap();
    some.findings.counts = [("low".to_owned(), 1)].into();
    let mut other = SessionStatus { name: "other".to_owned(), ..SessionStatus::default() };
    other.limits = serde_json::from_value(json!({ "writes": [] })).unwrap();
    other.findings.latest = vec![finding()];
    let sessions = vec![session("all"), empty, some, other];
    let reply = json!({ "snapshot": Snapshot { sessions, ..Snapshot::default() } });
    for name in ["all", "empty", "some", "other"] {
        add(&mut coverage, std::slice::from_ref(&reply), &["session", "show", name, "--json"]);
    }
    finish(&coverage);
    let (ended, _) = FakeNode::new(&[&line(&reply)]).run(&["session", "show", "none", "--json"]);
    assert_eq!(ended.fails(1, &["there is no session `none`"]).text(), "");
}

#[test]
fn the_state_of_a_link_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("link");
    let link = LinkStatus {
        name: "eth1".to_owned(),
        state: text(),
        rate_bits: u64::MAX,
        reserved_bits: 1,
        reservable_bits: 2,
        packets: 3,
        bytes: 4,
        lost: 5,
    };
    let reply = json!({ "snapshot": Snapshot { links: vec![link], ..Snapshot::default() } });
    add(&mut coverage, std::slice::from_ref(&reply), &["link", "show", "eth1", "--json"]);
    finish(&coverage);
    let (ended, _) = FakeNode::new(&[&line(&reply)]).run(&["link", "show", "eth2", "--json"]);
    assert_eq!(ended.fails(1, &["there is no link `eth2`"]).text(), "");
}

#[test]
fn a_list_of_record_files_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("records");
    let file = RecordFile {
        session: "alice".to_owned(),
        folder: "rtt-7".to_owned(),
        file: "rtts.parquet".to_owned(),
        bytes: u64::MAX,
        rows: Some(u64::MAX),
        from_ns: Some(0),
        to_ns: Some(u64::MAX),
        completed_ns: u64::MAX,
        sha256: Some(weir_ledger::Digest::of_bytes(b"")),
    };
    let unknown = RecordFile {
        rows: None,
        from_ns: None,
        to_ns: None,
        sha256: None,
        folder: "rtt-8".to_owned(),
        ..file.clone()
    };
    let done = json!({ "done": { "notes": [] } });
    for files in [vec![file, unknown], vec![]] {
        let list = json!({ "record-files": { "files": files, "open": 1 } });
        add(&mut coverage, &[list, done.clone()], &["records", "--json"]);
    }
    finish(&coverage);
    let refused = line(&json!({ "refused": { "why": "no right" } }));
    let (ended, _) = FakeNode::new(&[&refused]).run(&["records", "--json"]);
    assert_eq!(ended.fails(1, &["no right"]).text(), "");
}

#[test]
fn a_list_of_revocations_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("revocations");
    let delegated =
        DelegatedStatus { holder: text(), under: text(), all_before: Some(text()), entries: texts() };
    let all = RevocationsStatus {
        root: text(),
        sequence: u64::MAX,
        all_before: Some(text()),
        entries: texts(),
        delegated: vec![delegated, DelegatedStatus::default()],
    };
    for roots in [vec![all, RevocationsStatus::default()], vec![]] {
        add(&mut coverage, &[json!({ "revocations": roots })], &["credential", "revocations", "--json"]);
    }
    finish(&coverage);
    let refused = line(&json!({ "refused": { "why": "no right" } }));
    let (ended, _) = FakeNode::new(&[&refused]).run(&["credential", "revocations", "--json"]);
    assert_eq!(ended.fails(1, &["no right"]).text(), "");
}

#[test]
fn a_tree_of_credentials_fits_its_schema_and_is_printed_without_control_characters() {
    let mut coverage = SchemaCoverage::of("credentials");
    let ceiling = CeilingStatus {
        resource: text(),
        used: u64::MAX,
        granted: u64::MAX,
        used_text: text(),
        granted_text: text(),
    };
    let below = |delegates| DelegationStatus {
        id: text(),
        holder: text(),
        expires_s: Some(u64::MAX),
        revoked: true,
        allows: vec![(text(), text())],
        options: vec![(text(), text())],
        used: vec![ceiling.clone()],
        sessions: texts(),
        delegates,
    };
    // A node of another version or a hostile one may nest deeper than a chain can be.
    let deep = (0..40).fold(Vec::new(), |delegates, _| vec![below(delegates)]);
    let root = RootStatus { root: text(), policy_ceilings: vec![ceiling.clone()], grants: deep };
    let bare = RootStatus { grants: vec![DelegationStatus::default()], ..RootStatus::default() };
    let all = CredentialTree { node: text(), roots: vec![root, bare], left_out: 3 };
    for tree in [&all, &CredentialTree::default()] {
        add(&mut coverage, &[json!({ "credentials": tree })], &["credential", "list", "--json"]);
    }
    finish(&coverage);
    let (ended, _) = FakeNode::new(&[&line(&json!({ "credentials": all }))]).run(&["credential", "list"]);
    let ended = ended.succeeds();
    assert!(!ended.text().contains('\u{1b}'), "{}", ended.text());
    assert!(
        ended.text().contains("the credentials of 3 further sessions are not listed"),
        "{}",
        ended.text()
    );
    assert_eq!(ended.text().matches(", revoked").count(), weir_trust::credential::BLOCKS_MAX);
    let refused = line(&json!({ "refused": { "why": "no right" } }));
    let (ended, _) = FakeNode::new(&[&refused]).run(&["credential", "list", "--json"]);
    assert_eq!(ended.fails(1, &["no right"]).text(), "");
}

/// Explains a credential at a node, and adds the document.
fn add_explanation(coverage: &mut SchemaCoverage, folder: &Path, explanation: &Explanation) {
    let credential = folder.join("researcher.credential");
    add(
        coverage,
        &[json!({ "explained": explanation })],
        &["credential", "explain", credential.to_str().unwrap(), "--json"],
    );
}

#[test]
fn the_explanation_of_a_credential_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("explanation");
    let (folder, researcher) = setup();
    let at = folder.path();
    let grant = format!("grant --key university.key --to {researcher} --until 2027-01-01 --any-module");
    succeeds(at, &format!("{grant} --at * --out researcher.credential"));
    succeeds(at, &format!("{grant} --at *.other --out elsewhere.credential"));
    // Without a node: rights, a request that would be allowed, one that would be refused, and a credential that is not valid.
    for (credential, request, status) in [
        ("researcher", "", 0),
        ("researcher", "load s rtt", 0),
        ("researcher", "session create s --memory 65MiB", 1),
        ("elsewhere", "", 1),
    ] {
        let line = format!("credential explain {credential}.credential -c node.toml --json {request}");
        let output = crate::policy::weir(at, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(status), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        coverage.add(serde_json::from_slice(&output.stdout).unwrap());
    }
    let all = Explanation {
        node: text(),
        at: u64::MAX,
        holder: text(),
        root: text(),
        chain: texts(),
        invalid: Some(text()),
        allows: vec![(text(), text())],
        used: vec![UsedStatus { holder: text(), resource: text(), used: text(), granted: text() }],
        shared: vec![SharedStatus { session: text(), share: text() }],
        verdict: Some(RequestVerdict { refused: Some(text()) }),
    };
    for explanation in [all, Explanation::default()] {
        add_explanation(&mut coverage, at, &explanation);
    }
    finish(&coverage);
}

#[test]
fn a_ledger_fits_its_schemas() {
    let folder = tempfile::tempdir().unwrap();
    super::ledger::write(folder.path(), &used());
    let state = folder.path().to_str().unwrap();
    let [mut usage, mut decisions, mut entries] =
        ["ledger", "ledger-decisions", "ledger-entry"].map(SchemaCoverage::of);
    for range in [&["--since", "2000-01-01"][..], &["--since", "2100-01-01"]] {
        let printed = |more: &[&str]| run([&["ledger", state], range, more].concat()).succeeds();
        usage.add(printed(&["--json"]).json());
        decisions.add(printed(&["--decisions", "--json"]).json());
        for line in printed(&["--entries"]).text().lines() {
            entries.add(serde_json::from_str(line).unwrap());
        }
    }
    [usage, decisions, entries].iter().for_each(finish);
    let ended = run(["ledger", "/nowhere", "--json"]).fails(1, &["there is no ledger in /nowhere"]);
    assert_eq!(ended.text(), "");
}
