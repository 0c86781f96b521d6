//! An operator's policy on compiler keys, with bundles of a shipped module. No compiler runs: the policy does not look into object
//! files, so any bytes stand for one.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use weir_admission::{Admitted, ParameterSetting, Profile, VerifiedUse};
use weir_compilation::bundle::{Bundle, Member, ObjectForm};
use weir_compilation::compiler_keys::{
    CompilerKey, CompilerPolicy, Judgement, RecordRefusal, UntrustedSigner, VouchedCode, VouchedFor, Vouchers,
};
use weir_compilation::envelope::{Envelope, EnvelopeError};
use weir_compilation::expected::{Compiled, profile_digest, profile_of_record};
use weir_compilation::statement::{Bounds, Compilation, Inputs, Isolated, Statement, StatementError};
use weir_trust::digest::Sha256Digest;
use weir_trust::grant::UnixSecond;
use weir_trust::key::{Identity, PublicKey};
use weir_verify::CpuFeatures;

/// The nanoseconds that 1000 units of fuel can take, as the records state them.
const NANOSECONDS: u64 = 300;
/// The object file of the bundles.
const OBJECT: &[u8] = b"\x7fELF, and machine code";
const NOW: u64 = 1_800_000_000;

fn identity(number: u8) -> Identity {
    Identity::from_seed(&[number; 32])
}

fn public(number: u8) -> PublicKey {
    identity(number).public()
}

fn second(number: u64) -> UnixSecond {
    UnixSecond::new(number).unwrap()
}

/// A key that is trusted for both statements and does not expire.
fn trusted(number: u8) -> CompilerKey {
    let trusted_for = BTreeSet::from(VouchedFor::ALL);
    CompilerKey { key: public(number), trusted_for, expires: None, revoked_by: None }
}

fn policy(keys: impl Into<Vec<CompilerKey>>, signatures: usize) -> CompilerPolicy {
    CompilerPolicy { keys: keys.into(), signatures }
}

fn is_never_revoked(_: &CompilerKey) -> bool {
    false
}

/// The judgement at [`NOW`], without revocations.
fn judgement() -> Judgement<'static> {
    Judgement { now: second(NOW), is_revoked: &is_never_revoked }
}

/// A value of a parameter of the module `rtt`.
fn settings(entries: &str) -> Vec<ParameterSetting> {
    vec![("table-size".to_owned(), vec![entries.to_owned()])]
}

fn admit(module: &str, settings: &[ParameterSetting], profile: Profile) -> Admitted {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules");
    let wasm = std::fs::read(path.join(module).join(format!("{module}.wasm"))).unwrap();
    let terms = profile_of_record(profile, NANOSECONDS).unwrap();
    Admitted::admit_by(wasm, settings, &terms).unwrap()
}

fn rtt() -> Admitted {
    admit("rtt", &settings("1024"), Profile::default())
}

/// The statements about [`OBJECT`] as the code of [`rtt`], as JSON.
struct Statements {
    form: ObjectForm,
    record: Value,
    bounds: Value,
}

impl Statements {
    fn new(form: ObjectForm) -> Self {
        let admitted = rtt();
        let inputs = Inputs::of(Compiled {
            customisation_type: Sha256Digest([1; 32]),
            admitted: &admitted,
            settings: &settings("1024"),
            form,
            features: CpuFeatures::BitManipulation,
            nanoseconds_per_1000_fuel: NANOSECONDS,
            isolated: Isolated::At(vec![5, 9]),
            text: Sha256Digest([4; 32]),
        });
        let (name, object) = (form.object().name().to_owned(), Sha256Digest::of(OBJECT));
        let predicate = Compilation::new("urn:weir:test".to_owned(), inputs, Vec::new());
        let record = Statement { name: name.clone(), object, predicate };
        let bounds = Statement { name, object, predicate: Bounds::of(&admitted, Some(160)) };
        let [record, bounds] =
            [record.to_json(), bounds.to_json()].map(|text| serde_json::from_str(&text).unwrap());
        Self { form, record, bounds }
    }

    /// Returns the statement with this change of the record.
    fn with_record(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.record);
        self
    }

    /// Returns the statement with this change of one of the compilation's inputs.
    fn with_input(self, name: &str, value: Value) -> Self {
        self.with_record(|record| {
            let input = &mut record["predicate"]["buildDefinition"]["externalParameters"][name];
            assert!(!input.is_null(), "{name}");
            *input = value;
        })
    }

    /// Returns the statement with this change of the bounds.
    fn with_bounds(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.bounds);
        self
    }

    /// Returns a bundle with both records, each signed by these keys.
    fn signed_by(&self, record: &[u8], bounds: &[u8]) -> Bundle {
        let mut bundle = Bundle::new(rtt().bytes().to_vec());
        bundle.set(self.form.object(), OBJECT.to_vec());
        bundle.set(self.form.record(), sealed(&self.record, record));
        bundle.set(self.form.bounds(), sealed(&self.bounds, bounds));
        bundle
    }
}

fn sealed(statement: &Value, signers: &[u8]) -> Vec<u8> {
    let mut envelope = Envelope::new(statement.to_string().into_bytes());
    signers.iter().for_each(|number| envelope.sign(&identity(*number)));
    envelope.to_json().into_bytes()
}

/// A bundle for nodes whose records are signed by these keys.
fn bundle(record: &[u8], bounds: &[u8]) -> Bundle {
    Statements::new(ObjectForm::Suspendable).signed_by(record, bounds)
}

/// The decision of a policy on a bundle for nodes, by the default profile.
fn decide(policy: &CompilerPolicy, bundle: &Bundle) -> Result<VouchedCode, RecordRefusal> {
    decide_as(policy, bundle, judgement())
}

fn decide_as(
    policy: &CompilerPolicy,
    bundle: &Bundle,
    judgement: Judgement<'_>,
) -> Result<VouchedCode, RecordRefusal> {
    policy.vouched(bundle, ObjectForm::Suspendable, (&Profile::default(), NANOSECONDS), judgement)
}

/// The refusal for too few signatures, of which none counts but `found`.
fn too_few(
    what: VouchedFor,
    (found, needed): (usize, usize),
    others: &[(u8, &'static str)],
) -> RecordRefusal {
    let member = match what {
        VouchedFor::Semantics => Member::NodeRecord,
        VouchedFor::Bounds => Member::NodeBounds,
    };
    let others = others.iter().map(|(number, why)| UntrustedSigner { key: public(*number), why }).collect();
    RecordRefusal::Signatures { member, what, found, needed, others }
}

#[test]
fn records_by_a_trusted_key_give_the_code_with_its_vouchers() {
    for form in ObjectForm::ALL {
        let bundle = Statements::new(form).signed_by(&[1], &[1]);
        let profile = Profile::default();
        let vouched =
            policy([trusted(1)], 1).vouched(&bundle, form, (&profile, NANOSECONDS), judgement()).unwrap();
        assert_eq!((vouched.form, vouched.object.as_slice()), (form, OBJECT));
        assert_eq!(vouched.digest, Sha256Digest::of(OBJECT));
        assert_eq!(vouched.features, CpuFeatures::BitManipulation);
        assert_eq!(vouched.inputs.isolated_accesses, Isolated::At(vec![5, 9]));
        assert_eq!(vouched.vouchers, Vouchers { semantics: vec![public(1)], bounds: vec![public(1)] });
        vouched.check(&rtt(), &settings("1024")).unwrap();
    }
}

#[test]
fn without_trusted_keys_no_code_is_used() {
    let refusal = decide(&CompilerPolicy::default(), &bundle(&[1], &[1])).unwrap_err();
    assert_eq!(refusal, RecordRefusal::NoKeys);
    assert_eq!(refusal.to_string(), "no key of a compiler is trusted here");
}

#[test]
fn a_record_needs_a_signature_of_a_trusted_key() {
    let policy = policy([trusted(1)], 1);
    let refusal = decide(&policy, &bundle(&[], &[1])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (0, 1), &[]));
    assert_eq!(
        refusal.to_string(),
        "`node.intoto.json` has 0 of 1 signatures that are trusted for `semantics`"
    );
    let refusal = decide(&policy, &bundle(&[1], &[])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Bounds, (0, 1), &[]));
    let unknown = "is not trusted here";
    let refusal = decide(&policy, &bundle(&[1], &[2, 3])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Bounds, (0, 1), &[(2, unknown), (3, unknown)]));
    assert_eq!(
        refusal.to_string(),
        format!(
            "`node.bounds.intoto.json` has 0 of 1 signatures that are trusted for `bounds`: \
             {} is not trusted here; {} is not trusted here",
            public(2),
            public(3)
        )
    );
    // Other signatures do no harm.
    let vouched = decide(&policy, &bundle(&[2, 1], &[1, 3])).unwrap();
    assert_eq!(vouched.vouchers, Vouchers { semantics: vec![public(1)], bounds: vec![public(1)] });
}

#[test]
fn a_key_counts_only_for_the_statement_that_it_is_trusted_for() {
    let only = |number, what| CompilerKey { trusted_for: BTreeSet::from([what]), ..trusted(number) };
    let other = "is trusted for another statement alone";
    let semantics = policy([only(1, VouchedFor::Semantics)], 1);
    let refusal = decide(&semantics, &bundle(&[1], &[1])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Bounds, (0, 1), &[(1, other)]));
    let bounds = policy([only(1, VouchedFor::Bounds)], 1);
    let refusal = decide(&bounds, &bundle(&[1], &[1])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (0, 1), &[(1, other)]));
    // Two keys share the work.
    let shared = policy([only(1, VouchedFor::Semantics), only(2, VouchedFor::Bounds)], 1);
    let vouched = decide(&shared, &bundle(&[1, 2], &[1, 2])).unwrap();
    assert_eq!(vouched.vouchers, Vouchers { semantics: vec![public(1)], bounds: vec![public(2)] });
    assert!(decide(&shared, &bundle(&[2], &[1])).is_err());
}

#[test]
fn a_key_expires_with_the_second_of_its_expiry() {
    let policy = policy([CompilerKey { expires: Some(second(NOW)), ..trusted(1) }], 1);
    let at = |now| {
        let judgement = Judgement { now: second(now), is_revoked: &is_never_revoked };
        decide_as(&policy, &bundle(&[1], &[1]), judgement)
    };
    let vouched = at(NOW - 1).unwrap();
    for now in [NOW, NOW + 1] {
        assert_eq!(
            at(now).unwrap_err(),
            too_few(VouchedFor::Semantics, (0, 1), &[(1, "has expired")]),
            "{now}"
        );
    }
    let again = |now| {
        let judgement = Judgement { now: second(now), is_revoked: &is_never_revoked };
        policy.check_again(ObjectForm::Suspendable, &vouched.vouchers, judgement)
    };
    assert_eq!(again(NOW - 1), Ok(()));
    assert_eq!(again(NOW), Err(too_few(VouchedFor::Semantics, (0, 1), &[(1, "has expired")])));
}

#[test]
fn a_revoked_key_counts_no_more_and_others_still_do() {
    let policy = policy([trusted(1), trusted(2)], 1);
    let is_revoked = |key: &CompilerKey| key.key == public(1);
    let judgement = Judgement { now: second(NOW), is_revoked: &is_revoked };
    let refusal = decide_as(&policy, &bundle(&[1], &[1]), judgement).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (0, 1), &[(1, "is revoked")]));
    let vouched = decide_as(&policy, &bundle(&[1, 2], &[1, 2]), judgement).unwrap();
    assert_eq!(vouched.vouchers, Vouchers { semantics: vec![public(2)], bounds: vec![public(2)] });
}

#[test]
fn two_signatures_must_be_by_two_keys() {
    let policy = policy([trusted(1), trusted(2)], 2);
    let vouched = decide(&policy, &bundle(&[2, 1], &[1, 2])).unwrap();
    assert_eq!(vouched.vouchers.semantics, [public(2), public(1)]);
    assert_eq!(vouched.vouchers.bounds, [public(1), public(2)]);
    let refusal = decide(&policy, &bundle(&[1, 2], &[2])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Bounds, (1, 2), &[]));
    let refusal = decide(&policy, &bundle(&[1, 3], &[1, 2])).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (1, 2), &[(3, "is not trusted here")]));
    // The same signature twice counts once. `sign` replaces the first, so the second is added to the text.
    let mut twice = bundle(&[1], &[1, 2]);
    let mut json: Value = serde_json::from_slice(twice.get(Member::NodeRecord).unwrap()).unwrap();
    let signatures = json["signatures"].as_array_mut().unwrap();
    signatures.push(signatures[0].clone());
    twice.set(Member::NodeRecord, json.to_string().into_bytes());
    let refusal = decide(&policy, &twice).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (1, 2), &[]));
}

#[test]
fn a_forged_signature_is_found_also_beside_enough_good_ones() {
    let policy = policy([trusted(1), trusted(2)], 1);
    for member in [Member::NodeRecord, Member::NodeBounds] {
        for forger in [2, 9] {
            let mut forged = bundle(&[1], &[1]);
            let mut json: Value = serde_json::from_slice(forged.get(member).unwrap()).unwrap();
            let signatures = json["signatures"].as_array_mut().unwrap();
            let signature = signatures[0]["sig"].clone();
            signatures.push(json!({ "keyid": public(forger).to_string(), "sig": signature }));
            forged.set(member, json.to_string().into_bytes());
            let refusal = decide(&policy, &forged).unwrap_err();
            let error = EnvelopeError::Forged(public(forger));
            assert_eq!(refusal, RecordRefusal::Envelope { member, error });
            assert!(refusal.to_string().contains(&format!("it was not made by {}", public(forger))));
        }
        // A statement that was changed after it was signed.
        let mut changed = bundle(&[1], &[1]);
        let other = Statements::new(ObjectForm::Suspendable)
            .with_input("tier", json!("metered"))
            .with_bounds(|bounds| bounds["predicate"]["tier"] = json!("metered"))
            .signed_by(&[], &[]);
        let payload = |bundle: &Bundle| {
            let json: Value = serde_json::from_slice(bundle.get(member).unwrap()).unwrap();
            json["payload"].clone()
        };
        let mut json: Value = serde_json::from_slice(changed.get(member).unwrap()).unwrap();
        assert_ne!(payload(&other), json["payload"]);
        json["payload"] = payload(&other);
        changed.set(member, json.to_string().into_bytes());
        let error = EnvelopeError::Forged(public(1));
        assert_eq!(decide(&policy, &changed).unwrap_err(), RecordRefusal::Envelope { member, error });
    }
}

#[test]
fn records_must_be_about_the_object_file_of_the_bundle() {
    let policy = policy([trusted(1)], 1);
    let other = Sha256Digest::of(b"another object file");
    let names_other = |statement: &mut Value| {
        statement["subject"][0]["digest"]["sha256"] = json!(other.to_string());
    };
    let good = || Statements::new(ObjectForm::Suspendable);
    for (member, statements) in [
        (Member::NodeRecord, good().with_record(names_other)),
        (Member::NodeBounds, good().with_bounds(names_other)),
    ] {
        let refusal = decide(&policy, &statements.signed_by(&[1], &[1])).unwrap_err();
        let (object, actual) = (Member::NodeObject, Sha256Digest::of(OBJECT));
        assert_eq!(refusal, RecordRefusal::Object { member, object, stated: other, actual });
        let expected =
            format!("`{}` is about the object file {other}, and `node.o` is {actual}", member.name());
        assert_eq!(refusal.to_string(), expected);
    }
    // A good record beside another object file.
    let mut replaced = bundle(&[1], &[1]);
    replaced.set(Member::NodeObject, b"another object file".to_vec());
    let refusal = decide(&policy, &replaced).unwrap_err();
    assert!(matches!(refusal, RecordRefusal::Object { actual, .. } if actual == other), "{refusal}");
}

#[test]
fn a_missing_member_is_named() {
    let policy = policy([trusted(1)], 1);
    for form in ObjectForm::ALL {
        let members = [form.object(), form.record(), form.bounds()];
        for missing in members {
            let whole = Statements::new(form).signed_by(&[1], &[1]);
            let mut bundle = Bundle::new(whole.module().to_vec());
            for member in members.into_iter().filter(|member| *member != missing) {
                bundle.set(member, whole.get(member).unwrap().to_vec());
            }
            let profile = Profile::default();
            let refusal = policy.vouched(&bundle, form, (&profile, NANOSECONDS), judgement()).unwrap_err();
            assert_eq!(refusal, RecordRefusal::Missing(missing));
            assert_eq!(refusal.to_string(), format!("it has no `{}`", missing.name()));
        }
    }
    // The members of one form do not stand for those of the other.
    let refusal = decide(&policy, &Statements::new(ObjectForm::ToCompletion).signed_by(&[1], &[1]));
    assert_eq!(refusal.unwrap_err(), RecordRefusal::Missing(Member::NodeObject));
}

#[test]
fn a_signed_statement_of_another_kind_is_refused() {
    let policy = policy([trusted(1)], 1);
    let good = || Statements::new(ObjectForm::Suspendable);
    let twice = |statement: &mut Value| {
        let subjects = statement["subject"].as_array_mut().unwrap();
        subjects.push(subjects[0].clone());
    };
    let refuses = |member, statements: &Statements, says: &str| {
        let refusal = decide(&policy, &statements.signed_by(&[1], &[1])).unwrap_err();
        assert!(
            matches!(&refusal, RecordRefusal::Statement { member: of, .. } if *of == member),
            "{refusal}"
        );
        assert!(refusal.to_string().contains(says), "{refusal}");
        refusal
    };
    let refusal =
        refuses(Member::NodeRecord, &good().with_record(twice), "`node.intoto.json`: the record has 2");
    let error = StatementError::Subjects(2);
    assert_eq!(refusal, RecordRefusal::Statement { member: Member::NodeRecord, error });
    refuses(Member::NodeBounds, &good().with_bounds(twice), "2 subjects");
    refuses(
        Member::NodeRecord,
        &good().with_record(|record| record["predicateType"] = json!("https://slsa.dev/provenance/v2")),
        "the record's predicate type is `https://slsa.dev/provenance/v2`; expected `https://slsa.dev/provenance/v1`",
    );
    // The two statements of a bundle do not stand for each other, though the same key signs both.
    let swapped = Statements { bounds: good().record, ..good() };
    refuses(Member::NodeBounds, &swapped, "expected `urn:weir:bounds:1`");
    let swapped = Statements { record: good().bounds, ..good() };
    refuses(Member::NodeRecord, &swapped, "predicate type is `urn:weir:bounds:1`");
    // Bytes that are no envelope at all.
    let mut broken = bundle(&[1], &[1]);
    broken.set(Member::NodeBounds, b"{}".to_vec());
    let refusal = decide(&policy, &broken).unwrap_err();
    assert!(matches!(refusal, RecordRefusal::Envelope { member: Member::NodeBounds, .. }), "{refusal}");
}

#[test]
fn a_record_is_for_one_profile() {
    let policy = policy([trusted(1)], 1);
    let other = Profile { verified: VerifiedUse::Only, ..Profile::default() };
    let refusal = policy
        .vouched(&bundle(&[1], &[1]), ObjectForm::Suspendable, (&other, NANOSECONDS), judgement())
        .unwrap_err();
    let (stated, actual) = (profile_digest(&Profile::default()), profile_digest(&other));
    assert_ne!(stated, actual);
    assert_eq!(refusal, RecordRefusal::Profile { member: Member::NodeRecord, stated, actual });
    assert!(refusal.to_string().contains("compile it with the node's profile (--profile)"));
    // The profile of the node is the instance. The type alone does not make a record fit.
    let stated = json!({ "sha256": actual.to_string() });
    let statements = Statements::new(ObjectForm::Suspendable).with_input("customisationInstance", stated);
    let refusal = decide(&policy, &statements.signed_by(&[1], &[1])).unwrap_err();
    assert!(matches!(refusal, RecordRefusal::Profile { .. }), "{refusal}");
}

#[test]
fn a_record_for_a_faster_machine_is_refused_and_one_for_a_slower_machine_is_not() {
    let policy = policy([trusted(1)], 1);
    let on = |own| {
        let of_node = (&Profile::default(), own);
        policy.vouched(&bundle(&[1], &[1]), ObjectForm::Suspendable, of_node, judgement())
    };
    let refusal = on(NANOSECONDS + 1).unwrap_err();
    let (stated, own) = (NANOSECONDS, NANOSECONDS + 1);
    assert_eq!(refusal, RecordRefusal::Calibration { member: Member::NodeRecord, stated, own });
    assert!(refusal.to_string().contains("take at most 300 ns, and here they can take 301 ns"), "{refusal}");
    for own in [1, NANOSECONDS] {
        assert_eq!(on(own).unwrap().inputs.nanoseconds_per_1000_fuel, NANOSECONDS);
    }
}

#[test]
fn unknown_features_are_refused() {
    let policy = policy([trusted(1)], 1);
    let good = || Statements::new(ObjectForm::Suspendable);
    for unknown in ["x86-64-v4", "", "X86-64-V3"] {
        let statements = good().with_input("features", json!(unknown));
        let refusal = decide(&policy, &statements.signed_by(&[1], &[1])).unwrap_err();
        let (member, features) = (Member::NodeRecord, unknown.to_owned());
        assert_eq!(refusal, RecordRefusal::Features { member, features });
    }
    let statements = good().with_input("features", json!("x86-64-v2"));
    let vouched = decide(&policy, &statements.signed_by(&[1], &[1])).unwrap();
    assert_eq!(vouched.features, CpuFeatures::Baseline);
}

#[test]
fn trust_is_checked_again_by_the_present_policy() {
    let form = ObjectForm::Suspendable;
    let both = policy([trusted(1), trusted(2)], 1);
    let vouched = decide(&both, &bundle(&[1], &[1, 2])).unwrap();
    let again = |policy: &CompilerPolicy, judgement| policy.check_again(form, &vouched.vouchers, judgement);
    let semantics = |why| Err(too_few(VouchedFor::Semantics, (0, 1), &[(1, why)]));
    assert_eq!(again(&both, judgement()), Ok(()));
    // The bounds have another voucher, semantics has not.
    assert_eq!(again(&policy([trusted(2)], 1), judgement()), semantics("is not trusted here"));
    assert_eq!(again(&policy([trusted(1)], 1), judgement()), Ok(()));
    assert_eq!(again(&CompilerPolicy::default(), judgement()), semantics("is not trusted here"));
    let narrowed = CompilerKey { trusted_for: BTreeSet::from([VouchedFor::Bounds]), ..trusted(1) };
    let why = "is trusted for another statement alone";
    assert_eq!(again(&policy([narrowed, trusted(2)], 1), judgement()), semantics(why));
    let expiring = CompilerKey { expires: Some(second(NOW)), ..trusted(1) };
    assert_eq!(again(&policy([expiring, trusted(2)], 1), judgement()), semantics("has expired"));
    let with = |is_revoked| Judgement { now: second(NOW), is_revoked };
    assert_eq!(again(&both, with(&|key| key.key == public(1))), semantics("is revoked"));
    assert_eq!(again(&both, with(&|key| key.key == public(2))), Ok(()));
    // More signatures are needed than there were at the load.
    let raised = policy([trusted(1), trusted(2)], 2);
    assert_eq!(again(&raised, judgement()), Err(too_few(VouchedFor::Semantics, (1, 2), &[])));
    let vouched = decide(&both, &bundle(&[1, 2], &[1, 2])).unwrap();
    assert_eq!(raised.check_again(form, &vouched.vouchers, judgement()), Ok(()));
    let refused = with(&|key| key.key == public(2));
    let refusal = raised.check_again(form, &vouched.vouchers, refused).unwrap_err();
    assert_eq!(refusal, too_few(VouchedFor::Semantics, (1, 2), &[(2, "is revoked")]));
    // A refusal names the record of the form.
    let refusal = CompilerPolicy::default()
        .check_again(ObjectForm::ToCompletion, &vouched.vouchers, judgement())
        .unwrap_err();
    assert!(refusal.to_string().starts_with("`run.intoto.json` has 0 of 1"), "{refusal}");
}

/// The field in which records differ from what a reader makes of `admitted`, with the member that has it.
fn differs(statements: &Statements, admitted: &Admitted, settings: &[ParameterSetting]) -> (Member, String) {
    let vouched = decide(&policy([trusted(1)], 1), &statements.signed_by(&[1], &[1])).unwrap();
    match vouched.check(admitted, settings).unwrap_err() {
        RecordRefusal::Field { member, difference, .. } => (member, difference.field),
        other => panic!("{other}"),
    }
}

#[test]
fn records_must_state_what_a_reader_finds() {
    let good = || Statements::new(ObjectForm::Suspendable);
    let of_record = |field: &str| (Member::NodeRecord, field.to_owned());
    let of_bounds = |field: &str| (Member::NodeBounds, field.to_owned());
    // Another module, and other values of its parameters.
    let other = admit("dns", &[], Profile::default());
    assert_eq!(differs(&good(), &other, &[]), of_record("module"));
    let larger = admit("rtt", &settings("2048"), Profile::default());
    assert_eq!(differs(&good(), &larger, &settings("2048")), of_record("parameters"));
    assert_eq!(differs(&good(), &admit("rtt", &[], Profile::default()), &[]), of_record("parameters"));
    // What the records state is not so.
    for (input, value) in [
        ("tier", json!("metered")),
        ("calls", json!("to-completion")),
        ("backEnd", json!("cranelift")),
        ("target", json!("aarch64-unknown-linux-gnu")),
        ("costTable", json!(good().bounds["predicate"]["costTable"].as_u64().unwrap() + 1)),
        ("parameters", json!({})),
    ] {
        let statements = good().with_input(input, value);
        assert_eq!(differs(&statements, &rtt(), &settings("1024")), of_record(input));
    }
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 7] = [
        ("calls", |calls| calls["weir_packet"]["constant"] = less(&calls["weir_packet"]["constant"])),
        ("calls", |calls| calls["weir_packet"]["perKib"] = json!(1_u64 << 40)),
        ("calls", |calls| _ = calls.as_object_mut().unwrap().remove("weir_packet")),
        ("calls", |calls| calls["weir_more"] = json!({ "constant": 1, "perKib": 0 })),
        ("tier", |tier| *tier = json!("metered")),
        ("memoryBytes", |bytes| *bytes = less(bytes)),
        ("costTable", |version| *version = less(version)),
    ];
    for (field, change) in changes {
        let statements = good().with_bounds(|bounds| {
            let value = &mut bounds["predicate"][field];
            assert!(!value.is_null(), "{field}");
            change(value);
        });
        assert_eq!(differs(&statements, &rtt(), &settings("1024")), of_bounds(field));
    }
}

fn less(number: &Value) -> Value {
    json!(number.as_u64().unwrap() - 1)
}

#[test]
fn a_difference_is_told_with_both_values() {
    let statements = Statements::new(ObjectForm::Suspendable).with_input("tier", json!("metered"));
    let vouched = decide(&policy([trusted(1)], 1), &statements.signed_by(&[1], &[1])).unwrap();
    let refusal = vouched.check(&rtt(), &settings("1024")).unwrap_err();
    let says = refusal.to_string();
    assert!(says.starts_with("`node.intoto.json`: the record states `tier` as "), "{says}");
    assert!(says.contains("metered") && says.contains("and here it is") && says.contains("proved"), "{says}");
}

#[test]
fn a_bundle_for_other_values_is_refused_with_the_command_that_compiles_it_for_these() {
    let statements = Statements::new(ObjectForm::Suspendable);
    let vouched = decide(&policy([trusted(1)], 1), &statements.signed_by(&[1], &[1])).unwrap();
    let refusal = |settings: &[ParameterSetting]| {
        vouched.check(&admit("rtt", settings, Profile::default()), settings).unwrap_err().to_string()
    };
    let says = refusal(&settings("2048"));
    assert!(says.ends_with(", with weir compile rtt.wasm,table-size=2048 -o rtt.weir --key KEY"), "{says}");
    let says = refusal(&[]);
    assert!(says.ends_with(", with weir compile rtt.wasm -o rtt.weir --key KEY"), "{says}");
    // Another difference is not mended by a command.
    let tier = Statements::new(ObjectForm::Suspendable).with_input("tier", json!("metered"));
    let vouched = decide(&policy([trusted(1)], 1), &tier.signed_by(&[1], &[1])).unwrap();
    let says = vouched.check(&rtt(), &settings("1024")).unwrap_err().to_string();
    assert!(!says.contains("weir compile"), "{says}");
}
