//! Calls between sessions, and what hostile callers and callees can do to each other.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_abi::limit;
use weir_session::services::{
    CallOutcome, CallRefusal, EndpointId, Payer, ReplyRefusal, ServiceExchange, ServiceOffer, ServiceUse,
};
use weir_units::{Bytes, Nanos};
use {
    weir_admission::Name,
    weir_session::{MemoryReservation, NodeMemory},
};

const CALLEE: EndpointId = EndpointId(1);
const ALICE: EndpointId = EndpointId(2);
const BOB: EndpointId = EndpointId(3);
const QUEUE: u32 = 4;
const MS: Nanos = Nanos(1_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn memory() -> Arc<MemoryReservation> {
    MemoryReservation::new(&NodeMemory::new(Bytes(1 << 20)), Bytes(1 << 20), Bytes(1 << 20)).unwrap()
}

fn offer() -> ServiceOffer {
    let callers = vec![name("alice"), name("bob")];
    ServiceOffer { callers, queue: QUEUE, request: 16, answer: 32, payer: Payer::Callee }
}

fn lookup() -> ServiceUse {
    ServiceUse { provider: name("asn"), service: name("lookup"), pays: None }
}

/// `asn` offers `lookup` to alice and bob.
fn exchange(offer: ServiceOffer) -> (ServiceExchange, Arc<MemoryReservation>) {
    let mut it = ServiceExchange::default();
    let memory = memory();
    it.add_module(CALLEE, &name("asn"), &memory);
    it.add_module(ALICE, &name("alice"), &memory);
    it.add_module(BOB, &name("bob"), &memory);
    assert!(it.offer(CALLEE, &name("lookup"), 7, offer));
    (it, memory)
}

fn status(it: &mut ServiceExchange, party: EndpointId) -> Vec<(u64, CallOutcome)> {
    std::iter::from_fn(|| it.next_reply(party)).map(|answer| (answer.ticket, answer.outcome)).collect()
}

#[test]
fn a_call_is_served_and_answered_and_leaves_nothing_behind() {
    let (mut it, memory) = exchange(offer());
    let (ticket, callee) = it.call(Nanos(0), ALICE, Some(&lookup()), b"10.0.0.1", MS).unwrap();
    assert_eq!((callee, it.has_pending(CALLEE), it.has_pending(ALICE)), (CALLEE, true, false));
    assert_eq!(memory.state().used, Bytes(8 + 32));
    let request = it.next_call(Nanos(1), CALLEE).unwrap();
    assert_eq!((request.service, request.message.as_slice(), request.paid), (7, &b"10.0.0.1"[..], None));
    assert_eq!(it.reply(Nanos(2), CALLEE, request.call, b"AS64496"), Ok(ALICE));
    let answer = it.next_reply(ALICE).unwrap();
    assert_eq!(
        (answer.ticket, answer.outcome, answer.message.as_slice()),
        (ticket, CallOutcome::Answered, &b"AS64496"[..])
    );
    drop(answer);
    assert_eq!(memory.state().used, Bytes(0));
    assert!(!it.has_pending(ALICE) && !it.has_pending(CALLEE) && it.next_deadline(ALICE).is_none());
    // A second answer to the same call goes nowhere.
    assert_eq!(it.reply(Nanos(3), CALLEE, request.call, b"again"), Err(ReplyRefusal::Unknown));
    assert_eq!(
        (it.counters(ALICE).answered, it.counters(CALLEE).served, it.counters(CALLEE).discarded),
        (1, 1, 1)
    );
}

#[test]
fn a_caller_that_is_not_named_asks_for_too_much_or_does_not_pay_is_refused() {
    let (mut it, memory) = exchange(ServiceOffer { payer: Payer::Caller, ..offer() });
    let eve = EndpointId(9);
    it.add_module(eve, &name("eve"), &memory);
    let free = lookup();
    let paying = ServiceUse { pays: Some(MS), ..lookup() };
    let mut call = |from, what: Option<&ServiceUse>, len: usize, within| {
        it.call(Nanos(0), from, what, &vec![0; len], within).map(|(ticket, _)| ticket)
    };
    assert_eq!(call(eve, Some(&paying), 1, MS), Err(CallRefusal::Denied));
    assert_eq!(call(ALICE, None, 1, MS), Err(CallRefusal::Denied), "the session uses none");
    assert_eq!(call(ALICE, Some(&free), 1, MS), Err(CallRefusal::Denied), "it has not agreed to pay");
    assert_eq!(call(ALICE, Some(&paying), 17, MS), Err(CallRefusal::Range));
    assert_eq!(call(ALICE, Some(&paying), 1, Nanos(0)), Err(CallRefusal::Range));
    assert_eq!(call(ALICE, Some(&paying), 1, Nanos(limit::DEADLINE_MIN_NS - 1)), Err(CallRefusal::Range));
    assert_eq!(call(ALICE, Some(&paying), 1, Nanos(limit::DEADLINE_NS + 1)), Err(CallRefusal::Range));
    let absent = ServiceUse { service: name("other"), ..paying.clone() };
    assert_eq!(call(ALICE, Some(&absent), 1, MS), Err(CallRefusal::Absent));
    assert_eq!(call(EndpointId(77), Some(&paying), 1, MS), Err(CallRefusal::Absent), "it is not on the node");
    assert_eq!(call(ALICE, Some(&paying), 16, Nanos(limit::DEADLINE_NS)), Ok(1));
    assert_eq!(it.next_call(Nanos(0), CALLEE).unwrap().paid, Some((ALICE, MS)));
    assert_eq!(it.counters(ALICE).refused, 7);
    // Nobody else of the session can take the service over.
    it.add_module(EndpointId(10), &name("asn"), &memory);
    assert!(!it.offer(EndpointId(10), &name("lookup"), 0, offer()));
}

#[test]
fn a_callee_that_never_answers_delays_no_caller_beyond_the_deadline() {
    let (mut it, memory) = exchange(offer());
    let ms = |count: u64| Nanos(count * MS.0);
    for within in [3, 1, 2] {
        it.call(Nanos(0), ALICE, Some(&lookup()), b"x", ms(within)).unwrap();
    }
    let first = it.next_call(Nanos(0), CALLEE).unwrap();
    assert_eq!(it.next_deadline(ALICE), Some(ms(1)));
    it.expire(ms(2), ALICE);
    assert_eq!(status(&mut it, ALICE), [(2, CallOutcome::Late), (3, CallOutcome::Late)]);
    // What nobody waits for is not even served.
    assert!(it.next_call(ms(2), CALLEE).is_none());
    // An answer that comes too late is discarded, also where the caller has not looked yet.
    assert_eq!(it.reply(ms(3), CALLEE, first.call, b"late"), Err(ReplyRefusal::Unknown));
    it.expire(ms(3), ALICE);
    assert_eq!(status(&mut it, ALICE), [(1, CallOutcome::Late)]);
    assert_eq!((memory.state().used, it.counters(ALICE).late), (Bytes(0), 3));
}

#[test]
fn a_caller_that_floods_fills_only_its_own_queue() {
    let (mut it, memory) = exchange(offer());
    for _ in 0..QUEUE {
        it.call(Nanos(0), ALICE, Some(&lookup()), b"a", MS).unwrap();
    }
    for _ in 0..1000 {
        assert_eq!(it.call(Nanos(0), ALICE, Some(&lookup()), b"a", MS), Err(CallRefusal::Full));
    }
    it.call(Nanos(0), BOB, Some(&lookup()), b"b", MS).unwrap();
    // Bob is second, though four of alice's were there before.
    let order: Vec<Vec<u8>> =
        std::iter::from_fn(|| it.next_call(Nanos(0), CALLEE)).map(|request| request.message).collect();
    assert_eq!(order, [b"a", b"b", b"a", b"a", b"a"]);
    // What is being served does not wait, and still counts against the caller.
    let mut accepted = u64::from(QUEUE);
    while it.call(Nanos(0), ALICE, Some(&lookup()), b"a", MS).is_ok() {
        accepted += 1;
        it.next_call(Nanos(0), CALLEE).unwrap();
    }
    assert_eq!(accepted, u64::from(limit::CALLS));
    assert_eq!(memory.state().used, Bytes((accepted + 1) * 33));
    // Its answers are as bounded: until it has heard them it can make no more calls.
    it.expire(MS, ALICE);
    assert_eq!(it.call(MS, ALICE, Some(&lookup()), b"a", MS), Err(CallRefusal::Full));
    assert_eq!(status(&mut it, ALICE).len() as u64, accepted);
    it.call(MS, ALICE, Some(&lookup()), b"a", MS).unwrap();
}

#[test]
fn messages_are_taken_from_the_callers_memory() {
    let mut it = ServiceExchange::default();
    let poor = MemoryReservation::new(&NodeMemory::new(Bytes(100)), Bytes(100), Bytes(100)).unwrap();
    it.add_module(CALLEE, &name("asn"), &memory());
    it.add_module(ALICE, &name("alice"), &poor);
    it.offer(CALLEE, &name("lookup"), 0, offer());
    it.call(Nanos(0), ALICE, Some(&lookup()), &[0; 16], MS).unwrap();
    it.call(Nanos(0), ALICE, Some(&lookup()), &[0; 16], MS).unwrap();
    assert_eq!(it.call(Nanos(0), ALICE, Some(&lookup()), &[0; 16], MS), Err(CallRefusal::Full));
    assert_eq!(poor.state().used, Bytes(96));
    it.remove_module(ALICE);
    assert_eq!(poor.state().used, Bytes(0));
    assert!(it.next_call(Nanos(0), CALLEE).is_none(), "its caller has gone");
}

#[test]
fn numbers_of_no_call_answer_nothing() {
    let (mut it, _) = exchange(offer());
    it.call(Nanos(0), ALICE, Some(&lookup()), b"x", MS).unwrap();
    // Not given to it yet.
    assert_eq!(it.reply(Nanos(0), CALLEE, 1, b"y"), Err(ReplyRefusal::Unknown));
    let request = it.next_call(Nanos(0), CALLEE).unwrap();
    for forged in [0, request.call + 1, u64::MAX] {
        assert_eq!(it.reply(Nanos(0), CALLEE, forged, b"y"), Err(ReplyRefusal::Unknown));
    }
    // Nor can others answer it, the caller included.
    assert_eq!(it.reply(Nanos(0), BOB, request.call, b"y"), Err(ReplyRefusal::Unknown));
    assert_eq!(it.reply(Nanos(0), ALICE, request.call, b"y"), Err(ReplyRefusal::Unknown));
    assert_eq!(it.reply(Nanos(0), CALLEE, request.call, &[0; 33]), Err(ReplyRefusal::Range));
    assert!(status(&mut it, ALICE).is_empty());
    assert_eq!(it.reply(Nanos(0), CALLEE, request.call, &[0; 32]), Ok(ALICE));
}

#[test]
fn callers_are_answered_at_once_when_a_callee_fails_or_leaves() {
    let (mut it, memory) = exchange(offer());
    for _ in 0..3 {
        it.call(Nanos(0), ALICE, Some(&lookup()), b"x", MS).unwrap();
    }
    let failed = it.next_call(Nanos(0), CALLEE).unwrap();
    assert_eq!(it.fail(CALLEE, failed.call), Some(ALICE));
    assert_eq!(it.fail(CALLEE, failed.call), None);
    let _served = it.next_call(Nanos(0), CALLEE).unwrap();
    let (told, tally) = it.remove_module(CALLEE);
    assert_eq!((told.into_iter().collect::<Vec<_>>(), tally.served), (vec![ALICE], 2));
    let [_, (_, two), (_, three)] = status(&mut it, ALICE)[..] else { panic!("three calls, three answers") };
    assert_eq!((two, three, it.counters(ALICE).failed), (CallOutcome::Gone, CallOutcome::Gone, 3));
    assert_eq!(it.call(Nanos(0), ALICE, Some(&lookup()), b"x", MS), Err(CallRefusal::Absent));
    assert_eq!(memory.state().used, Bytes(0));
}

proptest! {
    /// Whatever anybody does, each call that was accepted is answered once, nothing is left behind, and nothing waits without bounds.
    #[test]
    fn every_call_is_answered_exactly_once(
        steps in prop::collection::vec((0u8..9, 0usize..2, 0u64..70, 1u64..50), 1..400)
    ) {
        let (mut it, memory) = exchange(offer());
        let callers = [ALICE, BOB];
        let mut now = 0;
        let mut open: BTreeMap<(EndpointId, u64), ()> = BTreeMap::new();
        let mut given = Vec::new();
        for (what, who, number, time) in steps {
            let party = callers[who];
            match what {
                0..3 => {
                    if let Ok((ticket, _)) = it.call(Nanos(now), party, Some(&lookup()), b"m", Nanos(time)) {
                        prop_assert!(open.insert((party, ticket), ()).is_none());
                    }
                }
                3 => given.extend(it.next_call(Nanos(now), CALLEE).map(|request| request.call)),
                4 => _ = it.reply(Nanos(now), CALLEE, number, b"r"),
                5 if !given.is_empty() => {
                    _ = it.reply(Nanos(now), CALLEE, given.swap_remove(usize::try_from(number).unwrap() % given.len()), b"r");
                }
                6 => _ = it.fail(CALLEE, number),
                7 => now += time,
                _ => it.expire(Nanos(now), party),
            }
            for answer in std::iter::from_fn(|| it.next_reply(party)).take(2) {
                prop_assert!(open.remove(&(party, answer.ticket)).is_some());
            }
            prop_assert!(it.waiting(CALLEE) <= 2 * QUEUE as usize);
            prop_assert!(open.len() <= 2 * limit::CALLS as usize);
        }
        for party in callers {
            it.expire(Nanos(u64::MAX), party);
            while let Some(answer) = it.next_reply(party) {
                prop_assert!(open.remove(&(party, answer.ticket)).is_some());
            }
        }
        prop_assert!(open.is_empty());
        prop_assert_eq!(memory.state().used, Bytes(0));
    }
}

#[test]
fn offers_can_change_and_accepted_calls_are_still_answered() {
    let (mut it, _memory) = exchange(offer());
    it.call(Nanos(0), ALICE, Some(&lookup()), b"a", MS).unwrap();
    it.call(Nanos(0), BOB, Some(&lookup()), b"b", MS).unwrap();
    // Bob may not call any more, and alice pays.
    let dearer = ServiceOffer { callers: vec![name("alice")], payer: Payer::Caller, ..offer() };
    it.replace_offers(CALLEE, vec![(name("lookup"), 8, dearer)]);
    let agreed = ServiceUse { pays: Some(MS), ..lookup() };
    assert_eq!(it.call(Nanos(1), BOB, Some(&agreed), b"b", MS), Err(CallRefusal::Denied));
    assert_eq!(it.call(Nanos(1), ALICE, Some(&lookup()), b"a", MS), Err(CallRefusal::Denied));
    it.call(Nanos(1), ALICE, Some(&agreed), b"a", MS).unwrap();
    let given: Vec<_> = std::iter::from_fn(|| it.next_call(Nanos(2), CALLEE)).collect();
    let terms: Vec<_> = given.iter().map(|request| (request.service, request.paid)).collect();
    assert_eq!(terms, [(7, None), (7, None), (8, Some((ALICE, MS)))]);
    for request in given {
        it.reply(Nanos(3), CALLEE, request.call, b"x").unwrap();
    }
    assert_eq!((status(&mut it, ALICE).len(), status(&mut it, BOB).len()), (2, 1));
    // It is offered by nobody, and then by another module of the same session.
    it.replace_offers(CALLEE, Vec::new());
    assert_eq!(it.call(Nanos(4), ALICE, Some(&agreed), b"a", MS), Err(CallRefusal::Absent));
    let (other, memory) = (EndpointId(9), memory());
    it.add_module(other, &name("asn"), &memory);
    it.replace_offers(other, vec![(name("lookup"), 0, offer())]);
    assert_eq!(it.call(Nanos(5), BOB, Some(&lookup()), b"b", MS).map(|(_, callee)| callee), Ok(other));
}
