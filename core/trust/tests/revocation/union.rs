//! Tests of the union of all entries, each kept until it expires.

use super::{dated, first_version, id, ids, list, root, taken};
use crate::people::{
    Counting, OPERATOR, OTHER_OPERATOR, RESEARCHER, STUDENT, granted_at, node, now, second, show, show_at,
    until_2027,
};
use proptest::prelude::*;
use weir_trust::credential::{Credential, CredentialRefusal, DatedId};
use weir_trust::grant::Grant;
use weir_trust::revocation::{
    DELEGATED_ENTRIES_MAX, KEPT_AFTER_SECONDS, ListHeader, ListReception, ListUse, ROOT_ENTRIES_MAX,
    RevocationError, RevocationList, Revocations, RevokedSet, RootRevocations, StateError,
};

#[test]
fn two_machines_that_sign_with_one_key_lose_no_revocation() {
    let (a, b, c) = (id(1), id(2), id(3));
    let mut known = Revocations::default();
    assert!(taken(&mut known, &list(1, [a]), now()).unwrap().has_changed);
    // A list of another machine that knows nothing of the first: with the same number, and with the next one.
    assert!(taken(&mut known, &list(1, [b]), now()).unwrap().has_changed);
    assert!(taken(&mut known, &list(2, [b, c]), now()).unwrap().has_changed);
    // A list with a lower number adds its entries.
    assert!(taken(&mut known, &list(0, [id(4)]), now()).unwrap().has_changed);
    assert!([a, b, c, id(4)].iter().all(|id| known.contains(&root(), id)));
    assert_eq!(known.by_root(&root()).unwrap().sequence(), 2);
    // An empty one removes nothing.
    assert!(!taken(&mut known, &list(9, []), now()).unwrap().has_changed);
    assert_eq!(known.by_root(&root()).unwrap().entry_count(), 4);
}

#[test]
fn of_two_times_for_one_identifier_the_later_one_applies_in_either_order() {
    let (early, late) = (dated(id(1), "2027-01-01"), dated(id(1), "2028-01-01"));
    let at = |known: &Revocations| known.by_root(&root()).unwrap().own().expiry(&id(1)).unwrap();
    for lists in [[early, late], [late, early]] {
        let mut known = Revocations::default();
        for (number, entry) in (1..).zip(lists) {
            taken(&mut known, &list(number, entry), now()).unwrap();
        }
        assert_eq!(at(&known), late.expires);
    }
    // A list without a time does not replace a time.
    let mut known = Revocations::default();
    taken(&mut known, &list(1, [id(1)]), now()).unwrap();
    assert_eq!(at(&known), None);
    taken(&mut known, &list(2, early), now()).unwrap();
    assert_eq!(at(&known), early.expires);
    assert!(!taken(&mut known, &list(3, [id(1)]), now()).unwrap().has_changed);
}

#[test]
fn an_entry_is_forgotten_a_day_after_its_credential_has_expired_and_without_a_time_never() {
    let mut known = Revocations::default();
    let entries: RevokedSet = [dated(id(1), "2027-01-01"), id(2).into()].into_iter().collect();
    taken(&mut known, &list(1, entries), now()).unwrap();
    let after = |seconds| {
        let end = second("2027-01-01").number();
        weir_trust::grant::UnixSecond::new(end + seconds).unwrap()
    };
    taken(&mut known, &list(2, [id(3)]), after(KEPT_AFTER_SECONDS - 1)).unwrap();
    assert!(known.contains(&root(), &id(1)));
    taken(&mut known, &list(3, [id(4)]), after(KEPT_AFTER_SECONDS)).unwrap();
    assert!(!known.contains(&root(), &id(1)) && known.contains(&root(), &id(2)));
    // Expired entries are not added.
    let late = list(4, dated(id(5), "2027-01-01"));
    assert!(!taken(&mut known, &late, after(0)).unwrap().has_changed);
}

#[test]
fn a_full_state_keeps_what_fits_reports_the_rest_and_still_accepts_all_before() {
    let mut known = Revocations::default();
    let most = u32::try_from(ROOT_ENTRIES_MAX).unwrap();
    let dates = |from, count| ids(from, count).map(|id| dated(id, "2027-01-01")).collect::<RevokedSet>();
    assert_eq!(taken(&mut known, &list(1, dates(0, most - 1)), now()).unwrap().left_out, None);
    let two = taken(&mut known, &list(2, dates(most - 1, 2)), now()).unwrap();
    assert_eq!((two.has_changed, two.left_out), (true, Some(RevocationError::Full { left_out: 1 })));
    assert_eq!(known.by_root(&root()).unwrap().entry_count(), ROOT_ENTRIES_MAX);
    // A held entry can get another time.
    let later = list(3, dated(ids(0, 1).next().unwrap(), "2028-01-01"));
    assert_eq!(taken(&mut known, &later, now()).unwrap().left_out, None);
    let mut all = RevokedSet::default();
    all.revoke_all_before(now());
    let all = taken(&mut known, &list(4, all), now()).unwrap();
    assert_eq!((all.has_changed, all.left_out), (true, None));
    // The list that did not fit is not known: it is read again when there is room.
    let then = second("2027-01-01");
    let expired = taken(&mut known, &list(5, [id(7)]), then).unwrap();
    assert_eq!((expired.has_changed, expired.left_out), (true, None));
    assert_eq!(known.by_root(&root()).unwrap().entry_count(), 2);
    assert_eq!(DELEGATED_ENTRIES_MAX * 2, ROOT_ENTRIES_MAX);
}

#[test]
fn everything_that_a_root_signed_before_a_time_is_revoked_as_one_entry() {
    let first = granted_at("2026-11-01T00:00:00Z", |_| ());
    let later = granted_at("2026-11-02T00:00:00Z", |_| ());
    let undated =
        Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), until_2027(|_| ()), None, &mut Counting(7))
            .unwrap();
    let passed_on = first
        .delegate(
            &RESEARCHER.identity(),
            STUDENT.key(),
            Grant::default(),
            Some(second("2026-11-03")),
            &mut Counting(3),
        )
        .unwrap();
    let mut known = Revocations::default();
    for (credential, peer) in
        [(&first, RESEARCHER), (&later, RESEARCHER), (&undated, RESEARCHER), (&passed_on, STUDENT)]
    {
        assert!(show(credential, peer, &known).is_ok());
    }
    let mut all = RevokedSet::default();
    all.revoke_all_before(second("2026-11-02T00:00:00Z"));
    taken(&mut known, &list(1, all), now()).unwrap();
    let before = second("2026-11-02T00:00:00Z");
    for (credential, peer) in [(&first, RESEARCHER), (&undated, RESEARCHER), (&passed_on, STUDENT)] {
        let id = credential.claimed_blocks()[0].id;
        let refused = show(credential, peer, &known).unwrap_err();
        assert!(refused.is_revocation());
        assert_eq!(refused, CredentialRefusal::RevokedBefore { block: 0, id, before });
    }
    assert!(show(&later, RESEARCHER, &known).is_ok());
    // An earlier time revokes no less, and a later one revokes more.
    for (time, is_worth) in [("2026-10-01", true), ("2026-11-03", false)] {
        let mut all = RevokedSet::default();
        all.revoke_all_before(second(time));
        taken(&mut known, &list(2, all), now()).unwrap();
        assert_eq!(show(&later, RESEARCHER, &known).is_ok(), is_worth);
        assert!(show(&first, RESEARCHER, &known).is_err());
    }
}

#[test]
fn a_revoked_credential_is_made_anew_with_the_same_rights() {
    let first = granted_at("2026-11-01T00:00:00Z", |_| ());
    let again = granted_at("2026-11-01T00:00:01Z", |_| ());
    let mut known = Revocations::default();
    taken(&mut known, &list(1, [first.claimed_blocks()[0].id]), now()).unwrap();
    assert!(show(&first, RESEARCHER, &known).is_err() && show(&again, RESEARCHER, &known).is_ok());
}

#[test]
fn a_list_is_known_by_its_header_and_one_of_another_root_is_none() {
    let (one, other) = (list(1, [id(1)]), list(1, [id(2)]));
    let roots = [root()];
    let reception = ListReception::new(&roots, now());
    let mut known = Revocations::default();
    let offered = |known: &Revocations, list: &RevocationList| {
        let header = list.header().unwrap();
        let (header, rest) = weir_trust::revocation::ListHeader::read(&header).unwrap();
        assert_eq!(rest, "");
        known.check_header(&header, &reception)
    };
    use weir_trust::revocation::ListUse::{Known, Wanted};
    assert_eq!(offered(&known, &one), Ok(Wanted));
    taken(&mut known, &one, now()).unwrap();
    assert_eq!((offered(&known, &one), offered(&known, &other)), (Ok(Known), Ok(Wanted)));
    let theirs = RevocationList::sign(&OTHER_OPERATOR.identity(), 1, now(), [id(1)].into()).unwrap();
    let unknown = RevocationError::UnknownRoot(OTHER_OPERATOR.key());
    assert_eq!(offered(&known, &theirs), Err(unknown.clone()));
    assert_eq!(known.accept(&theirs, &reception), Err(unknown));
    // Where both count, each revokes only its own.
    let both = [root(), OTHER_OPERATOR.key()];
    let theirs = RevocationList::sign(&OTHER_OPERATOR.identity(), 1, now(), [id(3)].into()).unwrap();
    assert!(known.accept(&theirs, &ListReception::new(&both, now())).unwrap().has_changed);
    assert!(known.contains(&both[1], &id(3)) && !known.contains(&both[0], &id(3)));
}

/// The use of a root's list, by its header.
fn offered(known: &Revocations, list: &RevocationList) -> ListUse {
    let header = list.header().unwrap();
    let (header, _) = ListHeader::read(&header).unwrap();
    known.check_header(&header, &ListReception::new(&[root()], now())).unwrap()
}

#[test]
fn a_list_whose_entries_were_skipped_or_forgotten_under_a_wrong_clock_is_taken_again() {
    let later = second("2100-01-01");
    let revoked: RevokedSet = [dated(id(1), "2027-01-01"), dated(id(2), "2500-01-01")].into_iter().collect();
    let first = list(1, revoked);
    let is_held = |known: &Revocations| [id(1), id(2)].map(|id| known.contains(&root(), &id));
    // The clock is ahead when the list arrives.
    let mut known = Revocations::default();
    assert!(taken(&mut known, &first, later).unwrap().has_changed);
    assert_eq!(is_held(&known), [false, true]);
    assert_eq!(offered(&known, &first), ListUse::Wanted);
    assert!(taken(&mut known, &first, now()).unwrap().has_changed);
    assert_eq!((is_held(&known), offered(&known, &first)), ([true, true], ListUse::Known));
    // The clock is ahead when the next list arrives: entries of the first one are removed.
    taken(&mut known, &list(2, [id(3)]), later).unwrap();
    assert_eq!(is_held(&known), [false, true]);
    assert!(taken(&mut known, &first, now()).unwrap().has_changed);
    assert_eq!((is_held(&known), offered(&known, &first)), ([true, true], ListUse::Known));
    // The same holds for the stored text.
    taken(&mut known, &list(4, [id(4)]), later).unwrap();
    let (of, kept) = RootRevocations::from_text(&known.by_root(&root()).unwrap().to_text(&root())).unwrap();
    let mut known = Revocations::default();
    known.insert(of, kept);
    assert!(taken(&mut known, &first, now()).unwrap().has_changed);
    assert_eq!(is_held(&known), [true, true]);
}

#[test]
fn a_list_is_known_again_while_entries_that_have_expired_are_still_held() {
    let mut known = Revocations::default();
    let first =
        list(1, [dated(id(1), "2027-01-01"), dated(id(2), "2500-01-01")].into_iter().collect::<RevokedSet>());
    taken(&mut known, &first, now()).unwrap();
    // An entry of another list is removed, and with it all known lists. That of the first list expired an hour ago.
    taken(&mut known, &list(2, dated(id(3), "2026-12-30")), now()).unwrap();
    let later = second("2027-01-01T01:00:00Z");
    assert!(!taken(&mut known, &list(3, []), later).unwrap().has_changed);
    assert!(!known.contains(&root(), &id(3)) && known.contains(&root(), &id(1)));
    assert_eq!(offered(&known, &first), ListUse::Wanted);
    assert!(!taken(&mut known, &first, later).unwrap().has_changed);
    assert_eq!(offered(&known, &first), ListUse::Known);
}

#[test]
fn a_list_whose_entries_were_forgotten_to_make_room_is_taken_again() {
    let mut known = Revocations::default();
    let most = u32::try_from(ROOT_ENTRIES_MAX).unwrap();
    let first = list(1, dated(id(1), "2027-01-01"));
    taken(&mut known, &first, now()).unwrap();
    let full = list(2, ids(0, most).map(|id| dated(id, "2500-01-01")).collect::<RevokedSet>());
    // The entry has expired by a clock that is less than a day ahead, so it is kept while there is room.
    let later = second("2027-01-01T01:00:00Z");
    taken(&mut known, &list(3, [id(2)]), later).unwrap();
    assert!(known.contains(&root(), &id(1)));
    taken(&mut known, &full, later).unwrap();
    assert!(!known.contains(&root(), &id(1)));
    assert_eq!(offered(&known, &first), ListUse::Wanted);
}

#[test]
fn a_list_of_the_old_format_adds_entries_that_are_kept_until_a_list_gives_a_time() {
    let old: RevocationList = first_version(OPERATOR, 5, &[id(1), id(2)]).parse().unwrap();
    let mut known = Revocations::default();
    taken(&mut known, &old, now()).unwrap();
    assert_eq!(known.by_root(&root()).unwrap().sequence(), 5);
    taken(&mut known, &list(6, dated(id(1), "2027-01-01")), now()).unwrap();
    taken(&mut known, &list(7, [id(3)]), second("2100-01-01")).unwrap();
    let has = [id(1), id(2), id(3)].map(|id| known.contains(&root(), &id));
    assert_eq!(has, [false, true, true]);
    // Continued, it becomes a list of the new format with all entries.
    let next = old.extended(&OPERATOR.identity(), now(), &[id(9)].into()).unwrap();
    assert!(next.to_string().starts_with("weir revocation list 2\n"));
    assert_eq!((next.sequence(), next.revoked().len()), (6, 3));
}

#[test]
fn a_stored_state_is_read_again_and_a_damaged_one_is_recognised() {
    let mut known = Revocations::default();
    let mut set: RevokedSet = [dated(id(1), "2027-01-01"), id(2).into()].into_iter().collect();
    set.revoke_all_before(second("2026-01-01"));
    taken(&mut known, &list(3, set), now()).unwrap();
    let text = known.by_root(&root()).unwrap().to_text(&root());
    assert_eq!(RootRevocations::from_text(&text), Ok((root(), known.by_root(&root()).unwrap().clone())));
    assert_eq!(RootRevocations::from_text("weir revocation list 1\n"), Err(StateError::Other));
    for cut in 0..text.len() - 1 {
        assert!(RootRevocations::from_text(&text[..cut]).is_err(), "{cut}");
    }
    let line = text.lines().position(|line| line.starts_with("weir-id")).unwrap();
    let without: String =
        text.lines().enumerate().filter(|(at, _)| *at != line).map(|(_, line)| format!("{line}\n")).collect();
    assert_eq!(RootRevocations::from_text(&without), Err(StateError::Damaged));
}

#[test]
fn a_clock_that_was_set_back_revives_nothing_on_the_same_day() {
    let credential = granted_at("2026-11-01T00:00:00Z", |_| ());
    let end = DatedId::of_chain(credential.claimed_blocks()).next().unwrap();
    let mut known = Revocations::default();
    taken(&mut known, &list(1, end), now()).unwrap();
    let expires = end.expires.unwrap().number();
    let later = weir_trust::grant::UnixSecond::new(expires + KEPT_AFTER_SECONDS - 1).unwrap();
    taken(&mut known, &list(2, [id(1)]), later).unwrap();
    let earlier = weir_trust::grant::UnixSecond::new(expires - 1).unwrap();
    let shown = show_at(&credential, RESEARCHER, &known, earlier, &node());
    assert!(matches!(shown, Err(CredentialRefusal::Revoked { block: 0, .. })), "{shown:?}");
}

/// Entries of few identifiers and few times, so that they coincide.
fn entry() -> impl Strategy<Value = DatedId> {
    (0..6_u32, prop::option::of(0..4_u64)).prop_map(|(number, year)| {
        let expires = year.map(|year| second(&format!("{}-01-01", 2027 + year)));
        DatedId { id: id(number), expires }
    })
}

proptest! {
    /// Order and repetition of lists make no difference; and each entry of each list takes effect.
    #[test]
    fn the_state_does_not_depend_on_the_order_of_lists(
        entries in prop::collection::vec(prop::collection::vec(entry(), 0..5), 1..5),
        order in prop::collection::vec(0..5_usize, 0..10),
    ) {
        let lists: Vec<_> =
            entries.iter().map(|entries| list(1, entries.iter().copied().collect::<RevokedSet>())).collect();
        let mut straight = Revocations::default();
        for list in &lists {
            taken(&mut straight, list, now()).unwrap();
        }
        let mut other = Revocations::default();
        for at in order.into_iter().chain((0..lists.len()).rev()) {
            if let Some(list) = lists.get(at) {
                taken(&mut other, list, now()).unwrap();
            }
        }
        let own = |known: &Revocations| known.by_root(&root()).map(|root| root.own().clone());
        prop_assert_eq!(own(&straight), own(&other));
        for entry in entries.into_iter().flatten() {
            let held = own(&straight).unwrap().expiry(&entry.id);
            prop_assert!(held.is_some_and(|held| held >= entry.expires));
        }
    }
}
