//! Revocation by delegators, within their share.

use super::{dated, ids, list, root};
use crate::people::{
    Counting, FRIEND, OPERATOR, Person, RESEARCHER, STUDENT, THIEF, granted_at, now, second, show, until_2027,
};
use weir_trust::credential::{Credential, CredentialRefusal, DatedId, DelegationId, VerifiedCredential};
use weir_trust::grant::{Grant, UnixSecond};
use weir_trust::key::Identity;
use weir_trust::revocation::{
    Accepted, DELEGATED_ENTRIES_MAX, Issuer, ListReception, ROOT_ENTRIES_MAX, RevocationError,
    RevocationList, Revocations, RevokedSet, RootRevocations,
};

/// A chain of three credentials: the researcher's, the student's and the friend's.
fn chain() -> [Credential; 3] {
    let first = granted_at("2026-11-01T00:00:00Z", |_| ());
    let at = second("2026-11-02");
    let second = first
        .delegate(&RESEARCHER.identity(), STUDENT.key(), Grant::default(), Some(at), &mut Counting(10))
        .unwrap();
    let third = second
        .delegate(&STUDENT.identity(), FRIEND.key(), Grant::default(), Some(at), &mut Counting(20))
        .unwrap();
    [first, second, third]
}

fn last(credential: &Credential) -> DelegationId {
    credential.claimed_blocks().last().unwrap().id
}

fn verified(credential: &Credential, peer: Person) -> VerifiedCredential {
    show(credential, peer, &Revocations::default()).unwrap()
}

fn by(who: &Identity, under: DelegationId, number: u64, revoked: impl Into<RevokedSet>) -> RevocationList {
    let issuer = Issuer::delegator(root(), who.public(), under);
    RevocationList::sign_as(who, issuer, number, now(), revoked.into()).unwrap()
}

fn shown(
    known: &mut Revocations,
    list: &RevocationList,
    shown: Option<&VerifiedCredential>,
) -> Result<Accepted, RevocationError> {
    known.accept(list, &ListReception { roots: &[root()], credential: shown, now: now() })
}

#[test]
fn a_holder_revokes_only_what_it_delegated() {
    let [first, second, third] = chain();
    let mut known = Revocations::default();
    let researchers = verified(&first, RESEARCHER);
    // The friend's block is two links beneath the researcher's.
    let list = by(&RESEARCHER.identity(), last(&first), 1, [last(&third)]);
    assert!(shown(&mut known, &list, Some(&researchers)).unwrap().has_changed);
    assert_eq!(show(&third, FRIEND, &known), Err(CredentialRefusal::Revoked { block: 2, id: last(&third) }));
    assert!(show(&second, STUDENT, &known).is_ok() && show(&first, RESEARCHER, &known).is_ok());
    // A holder cannot revoke its own block, or those before it: the entry is kept, but affects no chain.
    let own = by(&STUDENT.identity(), last(&second), 1, [last(&second), last(&first)]);
    shown(&mut known, &own, Some(&verified(&second, STUDENT))).unwrap();
    assert!(show(&second, STUDENT, &known).is_ok() && show(&first, RESEARCHER, &known).is_ok());
    // Nor the delegation of another holder from another credential.
    let theirs = granted_at("2026-11-05T00:00:00Z", |_| ());
    let others = theirs
        .delegate(&RESEARCHER.identity(), THIEF.key(), Grant::default(), Some(now()), &mut Counting(30))
        .unwrap();
    let stolen = by(&STUDENT.identity(), last(&second), 2, [last(&others), last(&theirs)]);
    shown(&mut known, &stolen, Some(&verified(&second, STUDENT))).unwrap();
    assert!(show(&others, THIEF, &known).is_ok());
}

#[test]
fn a_right_to_revoke_is_shown_by_a_credential_that_has_the_link() {
    let [first, second, third] = chain();
    let list = by(&RESEARCHER.identity(), last(&first), 1, [last(&second)]);
    let refused = RevocationError::UnprovenRight { signer: RESEARCHER.key(), own_block: last(&first) };
    let mut known = Revocations::default();
    assert_eq!(shown(&mut known, &list, None), Err(refused.clone()));
    let other = granted_at("2026-11-05T00:00:00Z", |_| ());
    assert_eq!(shown(&mut known, &list, Some(&verified(&other, RESEARCHER))), Err(refused));
    // The signer claims another holder's link.
    let claimed = by(&THIEF.identity(), last(&first), 1, [last(&second)]);
    assert!(matches!(
        shown(&mut known, &claimed, Some(&verified(&first, RESEARCHER))),
        Err(RevocationError::UnprovenRight { .. })
    ));
    assert_eq!(known, Revocations::default());
    // Any credential whose chain has the link proves it, and once it is proven it is known.
    assert!(shown(&mut known, &list, Some(&verified(&third, FRIEND))).unwrap().has_changed);
    let more = by(&RESEARCHER.identity(), last(&first), 2, [last(&third)]);
    assert!(shown(&mut known, &more, None).unwrap().has_changed);
}

#[test]
fn all_before_of_a_holder_affects_only_its_own_delegations() {
    let [first, second, third] = chain();
    let later = first
        .delegate(&RESEARCHER.identity(), THIEF.key(), Grant::default(), Some(now()), &mut Counting(40))
        .unwrap();
    let mut all = RevokedSet::default();
    all.revoke_all_before(crate::people::second("2026-11-10"));
    let mut known = Revocations::default();
    shown(&mut known, &by(&RESEARCHER.identity(), last(&first), 1, all), Some(&verified(&first, RESEARCHER)))
        .unwrap();
    assert!(show(&first, RESEARCHER, &known).is_ok() && show(&later, THIEF, &known).is_ok());
    for (credential, peer) in [(&second, STUDENT), (&third, FRIEND)] {
        assert!(matches!(
            show(credential, peer, &known),
            Err(CredentialRefusal::RevokedBefore { block: 1, .. })
        ));
    }
}

#[test]
fn entries_of_a_delegator_end_with_the_link_and_are_dropped_when_the_link_is_revoked() {
    let [first, second, third] = chain();
    let mut known = Revocations::default();
    let researchers = verified(&first, RESEARCHER);
    let end = DatedId::of_chain(first.claimed_blocks()).next().unwrap().expires;
    let list_1 = by(&RESEARCHER.identity(), last(&first), 1, dated(last(&second), "2500-01-01"));
    shown(&mut known, &list_1, Some(&researchers)).unwrap();
    let students = verified(&second, STUDENT);
    shown(&mut known, &by(&STUDENT.identity(), last(&second), 1, [last(&third)]), Some(&students)).unwrap();
    let state = known.by_root(&root()).unwrap();
    // The student's own link is revoked until it expires, so the student's entries are dropped.
    assert_eq!(state.delegators().map(|(holder, ..)| *holder).collect::<Vec<_>>(), [RESEARCHER.key()]);
    assert_eq!(state.delegators().next().unwrap().2.iter().next().unwrap().expires, end);
    assert!(show(&third, FRIEND, &known).is_err());
    // An entry that expires before the link would revive the dropped ones, so they stay.
    let mut known = Revocations::default();
    shown(&mut known, &by(&STUDENT.identity(), last(&second), 1, [last(&third)]), Some(&students)).unwrap();
    let soon = by(&RESEARCHER.identity(), last(&first), 1, dated(last(&second), "2026-11-22"));
    shown(&mut known, &soon, Some(&researchers)).unwrap();
    let long_after = list(1, dated(super::id(1), "2500-01-01"));
    known.accept(&long_after, &ListReception::new(&[root()], crate::people::second("2026-12-01"))).unwrap();
    assert!(show(&second, STUDENT, &known).is_ok());
    assert_eq!(show(&third, FRIEND, &known), Err(CredentialRefusal::Revoked { block: 2, id: last(&third) }));
    // The root's entry drops the holder's entries with its link.
    let whole = list(2, DatedId { id: last(&first), expires: end });
    known.accept(&whole, &ListReception::new(&[root()], now())).unwrap();
    assert_eq!(known.by_root(&root()).unwrap().delegated_count(), 0);
    assert!(show(&third, FRIEND, &known).is_err());
    // After the link has expired, nothing of it is kept.
    let mut known = Revocations::default();
    shown(&mut known, &list_1, Some(&researchers)).unwrap();
    known.accept(&long_after, &ListReception::new(&[root()], crate::people::second("2499-01-01"))).unwrap();
    assert_eq!(known.by_root(&root()).unwrap().delegated_count(), 0);
}

#[test]
fn a_delegators_list_whose_entries_were_skipped_or_forgotten_under_a_wrong_clock_is_taken_again() {
    let [first, second, third] = chain();
    let researchers = verified(&first, RESEARCHER);
    let revoked: RevokedSet =
        [dated(last(&second), "2026-12-01"), dated(last(&third), "2026-12-20")].into_iter().collect();
    let revoking = by(&RESEARCHER.identity(), last(&first), 1, revoked);
    let at = |known: &mut Revocations, list: &RevocationList, time: UnixSecond| {
        let roots = [root()];
        known
            .accept(list, &ListReception { roots: &roots, credential: Some(&researchers), now: time })
            .unwrap()
    };
    let mut known = Revocations::default();
    // The clock is ahead when the list arrives, and again when the next one arrives.
    let later = crate::people::second("2026-12-10");
    assert!(at(&mut known, &revoking, later).has_changed);
    assert!(show(&second, STUDENT, &known).is_ok());
    assert!(at(&mut known, &revoking, now()).has_changed);
    assert!(show(&second, STUDENT, &known).is_err());
    assert!(!at(&mut known, &revoking, now()).has_changed);
    at(&mut known, &by(&RESEARCHER.identity(), last(&first), 2, [super::id(1)]), later);
    assert!(show(&second, STUDENT, &known).is_ok());
    assert!(at(&mut known, &revoking, now()).has_changed);
    assert!(show(&second, STUDENT, &known).is_err());
}

fn party(number: u8) -> (Identity, Credential) {
    let who = Identity::from_seed(&[100 + number; 32]);
    let grant = until_2027(|_| ());
    let random = &mut Counting(u64::from(number) * 1000);
    let credential =
        Credential::mint(&OPERATOR.identity(), who.public(), grant, Some(now()), random).unwrap();
    (who, credential)
}

fn worth(credential: &Credential) -> VerifiedCredential {
    let (roots, known, node) = ([root()], Revocations::default(), crate::people::node());
    let peer = credential.claimed_holder();
    let situation = weir_trust::credential::VerificationContext {
        roots: &roots,
        revocations: &known,
        peer,
        node: &node,
        now: now(),
    };
    credential.verify(&situation).unwrap()
}

/// The number of entries that a delegator gets in, of a longest list.
fn filled(known: &mut Revocations, who: &Identity, credential: &Credential, from: u32) -> usize {
    let before = known.by_root(&root()).map_or(0, RootRevocations::delegated_count);
    let many = u32::try_from(DELEGATED_ENTRIES_MAX).unwrap();
    let list = by(who, last(credential), 1, ids(from, many).collect::<RevokedSet>());
    let accepted = shown(known, &list, Some(&worth(credential))).unwrap();
    let taken = known.by_root(&root()).unwrap().delegated_count() - before;
    let left_out = DELEGATED_ENTRIES_MAX - taken;
    assert_eq!(accepted.left_out, (left_out > 0).then_some(RevocationError::ShareFull { left_out }));
    taken
}

#[test]
fn one_delegator_never_fills_the_half_of_all_and_the_root_has_the_other_half() {
    let mut known = Revocations::default();
    let parties: Vec<_> = (0..6).map(party).collect();
    let taken: Vec<usize> = (0_u32..)
        .zip(&parties)
        .map(|(n, (who, credential))| filled(&mut known, who, credential, n << 16))
        .collect();
    assert_eq!(taken, [4096, 2048, 1024, 512, 256, 128]);
    // The same party gets no more in; the root has its half.
    assert_eq!(filled(&mut known, &parties[0].0, &parties[0].1, 9 << 16), 0);
    let own = u32::try_from(ROOT_ENTRIES_MAX - taken.iter().sum::<usize>()).unwrap();
    assert!(own as usize >= ROOT_ENTRIES_MAX / 2);
    let mine = list(1, ids(1 << 24, own + 1).collect::<RevokedSet>());
    let accepted = known.accept(&mine, &ListReception::new(&[root()], now())).unwrap();
    assert_eq!(accepted.left_out, Some(RevocationError::Full { left_out: 1 }));
    // A state of this size is stored and read again.
    let state = known.by_root(&root()).unwrap();
    assert_eq!(state.entry_count(), ROOT_ENTRIES_MAX);
    assert_eq!(RootRevocations::from_text(&state.to_text(&root())), Ok((root(), state.clone())));
}

#[test]
fn a_delegator_with_many_keys_is_one_party_and_keeps_room_for_itself() {
    let mut known = Revocations::default();
    let (who, credential) = party(0);
    let mut all = 0;
    for number in 150..180_u8 {
        let next = Identity::from_seed(&[number; 32]);
        let passed_on = credential
            .delegate(&who, next.public(), Grant::default(), Some(now()), &mut Counting(u64::from(number)))
            .unwrap();
        all += filled(&mut known, &next, &passed_on, u32::from(number) << 16);
    }
    // All keys together, then their delegator, then another party.
    assert!((2_600..=DELEGATED_ENTRIES_MAX / 3).contains(&all), "{all}");
    let own = filled(&mut known, &who, &credential, 40 << 16);
    assert!(own > 1_000, "{own}");
    let (other, others) = party(1);
    let theirs = filled(&mut known, &other, &others, 41 << 16);
    assert!(theirs > 1_500, "{theirs}");
    // Finally the root revokes the party, which makes room.
    let end = DatedId::of_chain(credential.claimed_blocks()).next().unwrap();
    let accepted = known.accept(&list(1, end), &ListReception::new(&[root()], now())).unwrap();
    assert_eq!(accepted.left_out, None);
    assert_eq!(known.by_root(&root()).unwrap().delegated_count(), theirs);
    assert!(end.expires < Some(UnixSecond::MAX));
}
