//! Tests of the text of lists.

use super::{dated, first_version, id, ids, list};
use crate::people::{OPERATOR, RESEARCHER, THIEF, now, second};
use proptest::prelude::*;
use weir_trust::grant::UnixSecond;
use weir_trust::revocation::{
    HEADER_BYTES_MAX, Issuer, LIST_BYTES_MAX, LIST_IDS_MAX, ListHeader, RevocationError, RevocationList,
    RevokedSet,
};

fn read(text: &str) -> Result<RevocationList, RevocationError> {
    text.parse()
}

fn mixed() -> RevokedSet {
    let mut set: RevokedSet = [dated(id(1), "2027-01-01"), id(2).into()].into_iter().collect();
    set.revoke_all_before(second("2026-01-01"));
    set
}

#[test]
fn a_list_is_written_and_read_again() {
    for list in [list(7, mixed()), list(0, []), list(u64::MAX, [id(3)])] {
        assert_eq!(read(&list.to_string()), Ok(list));
    }
    let text = list(7, mixed()).to_string();
    assert!(text.starts_with("weir revocation list 2\nsigner weir-key:"), "{text}");
    assert!(text.contains("\nsequence 7\nissued 2026-11-21T12:00:00Z\nbody "), "{text}");
    assert!(text.contains("\nall-before 2026-01-01T00:00:00Z\nweir-id:"), "{text}");
}

#[test]
fn a_delegators_list_names_its_link() {
    let issuer = Issuer::delegator(OPERATOR.key(), RESEARCHER.key(), id(9));
    let list = RevocationList::sign_as(&RESEARCHER.identity(), issuer, 1, now(), mixed()).unwrap();
    assert_eq!(read(&list.to_string()), Ok(list.clone()));
    assert!(list.header().unwrap().contains(&format!("\nunder {} of {}\n", id(9), OPERATOR.key())));
    // Without that line the text is not the signed one.
    let text = list.to_string();
    let without: String =
        text.lines().filter(|line| !line.starts_with("under ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(read(&without), Err(RevocationError::Forged(RESEARCHER.key())));
    let by_other = RevocationList::sign_as(&THIEF.identity(), issuer, 1, now(), mixed());
    assert!(matches!(by_other, Err(RevocationError::OtherSigner { .. })));
}

#[test]
fn a_changed_list_is_forged_and_a_cut_one_is_recognised() {
    let text = list(7, mixed()).to_string();
    let forged = Err(RevocationError::Forged(OPERATOR.key()));
    for changed in [
        text.replace("sequence 7", "sequence 8"),
        text.replace("12:00", "12:01"),
        text.replace("sequence 7", "sequence 07"),
        text.replace("body ", "body 0"),
    ] {
        assert_ne!(changed, text);
        assert_eq!(read(&changed), forged, "{changed}");
    }
    let other = text.replace(&OPERATOR.key().to_string(), &THIEF.key().to_string());
    assert_eq!(read(&other), Err(RevocationError::Forged(THIEF.key())));
    let cut = Err(RevocationError::Body(OPERATOR.key()));
    for changed in [
        text.replace(&format!("{}@2027-01-01T00:00:00Z\n", id(1)), ""),
        text.replace(&id(2).to_string(), &id(3).to_string()),
        text.replace("all-before 2026-01-01", "all-before 2025-01-01"),
        text.trim_end().to_owned(),
        format!("{text}\n"),
    ] {
        assert_ne!(changed, text);
        assert_eq!(read(&changed), cut, "{changed}");
    }
    // Two bodies under one header.
    let (header, _) = text.split_at(list(7, mixed()).header().unwrap().len());
    let body = list(7, [id(2)]).to_string();
    let body = &body[list(7, [id(2)]).header().unwrap().len()..];
    assert_eq!(read(&format!("{header}{body}")), cut);
}

#[test]
fn an_error_in_a_text_names_its_line() {
    assert_eq!(read(""), Err(RevocationError::NotAList));
    assert_eq!(read("weir revocation list 3\n"), Err(RevocationError::NotAList));
    assert_eq!(read(&"x".repeat(LIST_BYTES_MAX + 1)), Err(RevocationError::TooLong(LIST_BYTES_MAX + 1)));
    let header = list(7, [id(1)]).header().unwrap();
    let lines: Vec<&str> = header.lines().collect();
    for kept in 1..lines.len() {
        let text: String = lines[..kept].iter().map(|line| format!("{line}\n")).collect();
        let cut = read(&text);
        assert!(
            matches!(cut, Err(RevocationError::Line { line, .. }) if line == kept + 1),
            "{kept}: {cut:?}"
        );
    }
    let many = RevocationList::sign(
        &OPERATOR.identity(),
        1,
        UnixSecond::default(),
        ids(0, u32::try_from(LIST_IDS_MAX).unwrap() + 1).collect(),
    );
    assert_eq!(many, Err(RevocationError::TooMany(LIST_IDS_MAX + 1)));
}

#[test]
fn the_longest_list_can_be_read_and_its_header_is_short() {
    let mut most: RevokedSet =
        ids(0, u32::try_from(LIST_IDS_MAX).unwrap()).map(|id| dated(id, "2554-01-01")).collect();
    most.revoke_all_before(UnixSecond::MAX);
    let issuer = Issuer::delegator(OPERATOR.key(), RESEARCHER.key(), id(9));
    let list =
        RevocationList::sign_as(&RESEARCHER.identity(), issuer, u64::MAX, UnixSecond::MAX, most).unwrap();
    assert!(list.to_string().len() <= LIST_BYTES_MAX);
    assert!(list.header().unwrap().len() <= HEADER_BYTES_MAX, "{}", list.header().unwrap().len());
    assert_eq!(read(&list.to_string()), Ok(list));
}

#[test]
fn a_list_of_the_old_format_is_read_and_a_changed_one_is_forged() {
    let text = first_version(OPERATOR, 7, &[id(1), id(2)]);
    let list = read(&text).unwrap();
    assert_eq!((list.sequence(), list.revoked().len(), list.header()), (7, 2, None));
    assert_eq!(list.to_string(), text);
    let forged = Err(RevocationError::Forged(OPERATOR.key()));
    for changed in [
        text.replace("sequence 7", "sequence 8"),
        text.replace(&format!("{}\n", id(1)), ""),
        text.trim_end().to_owned(),
        format!("{text}more"),
    ] {
        assert_eq!(read(&changed), forged, "{changed}");
    }
    // That format has no times after identifiers.
    let with_time = text.replace(&id(1).to_string(), &format!("{}@2027-01-01T00:00:00Z", id(1)));
    assert!(matches!(read(&with_time), Err(RevocationError::Line { .. })));
}

#[test]
fn a_signature_for_another_purpose_is_refused() {
    // A header whose signature was made over the same bytes in the old context.
    let text = list(7, []).header().unwrap();
    let (signed, _) = text.split_at(text.find("signature ").unwrap());
    let other = OPERATOR
        .identity()
        .sign(weir_trust::key::SignatureContext::new("revocation list"), signed.as_bytes());
    let forged = format!("{signed}signature {}\n", super::base32(&other.0));
    assert_eq!(read(&forged), Err(RevocationError::Forged(OPERATOR.key())));
}

proptest! {
    /// Cut, changed or other bytes: an error, and never a panic.
    #[test]
    fn no_bytes_panic_and_no_changed_ones_are_a_list(
        at in 0..2000_usize,
        with in any::<char>(),
        cut in any::<bool>(),
        is_first in any::<bool>(),
        other in "\\PC{0,80}",
    ) {
        let whole = if is_first { first_version(OPERATOR, 3, &[id(1)]) } else { list(3, mixed()).to_string() };
        let at = at % whole.len();
        let changed = if cut { whole[..at].to_owned() } else { format!("{}{with}{}", &whole[..at], &whole[at + 1..]) };
        if changed != whole {
            prop_assert!(read(&changed).is_err(), "{changed}");
        }
        let _ = ListHeader::read(&changed);
        prop_assert!(read(&other).is_err() && ListHeader::read(&other).is_err());
        for first in ["weir revocation list 1\n", "weir revocation list 2\n"] {
            let text = format!("{first}{other}");
            prop_assert!(read(&text).is_err());
        }
    }
}
