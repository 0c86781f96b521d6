//! Queues between threads lose no packet, keep the order, and wake both sides.

use super::support::start_text;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_graph::engine::{ArrivedPackets, PacketPool, QueueDiscipline, ThreadQueue};

const PACKETS: u32 = 300_000;

fn number(packet: &weir_graph::engine::GraphPacket) -> u32 {
    u32::from_be_bytes(packet.bytes()[..4].try_into().unwrap())
}

/// One thread adds numbered packets in batches, another one removes them. Neither looks at the other: they spin. Each
/// packet is either removed once, in order, or counted as dropped.
fn stress(discipline: QueueDiscipline, capacity: usize, batch: u32) {
    let queue = ThreadQueue::default();
    queue.begin(capacity);
    let (wakes, finished) = (AtomicU64::new(0), AtomicU64::new(0));
    let (removed, highest_length) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pool = PacketPool::default();
            let mut next = 0;
            while next < PACKETS {
                let end = (next + 1 + next % batch).min(PACKETS);
                let packets: Vec<_> = (next..end).map(|it| pool.of_bytes(&it.to_be_bytes())).collect();
                if queue.add(packets.into_iter(), discipline, false, &mut pool) {
                    wakes.fetch_add(1, Ordering::SeqCst);
                }
                next = end;
            }
            finished.store(1, Ordering::SeqCst);
        });
        let remover = scope.spawn(|| {
            let mut pool = PacketPool::default();
            let mut taken = ArrivedPackets::default();
            let (mut removed, mut last, mut highest_length) = (0_u64, None, 0);
            loop {
                let is_finished = finished.load(Ordering::SeqCst) == 1;
                highest_length = highest_length.max(queue.len());
                if taken.is_empty() {
                    match queue.take_group() {
                        Some(group) => taken = group,
                        None if is_finished => break,
                        None => {
                            std::thread::yield_now();
                            continue;
                        }
                    }
                }
                let packet = taken.next(&mut pool).unwrap();
                queue.removed(1);
                let this = number(&packet);
                assert!(last.is_none_or(|last| last < this), "{last:?} before {this}");
                last = Some(this);
                removed += 1;
                pool.discard(packet);
            }
            (removed, highest_length)
        });
        remover.join().unwrap()
    });
    assert_eq!(removed + queue.drops(), u64::from(PACKETS), "{discipline:?}");
    assert_eq!(queue.len(), 0);
    assert!(removed > 0 && wakes.load(Ordering::SeqCst) > 0);
    // A group that is taken apart counts to its end, and one that is being added counts already.
    assert!(
        queue.highwater() <= capacity && highest_length <= capacity,
        "{} of {capacity}",
        queue.highwater()
    );
}

#[test]
fn each_packet_is_removed_once_in_order_or_counted_as_dropped() {
    for (capacity, batch) in [(1, 1), (3, 7), (64, 64), (1000, 200)] {
        stress(QueueDiscipline::DropsNew, capacity, batch);
    }
}

#[test]
fn a_queue_that_drops_the_oldest_keeps_the_order() {
    let queue = ThreadQueue::default();
    queue.begin(3);
    let mut pool = PacketPool::default();
    let packets: Vec<_> = (0..5_u32).map(|it| pool.of_bytes(&it.to_be_bytes())).collect();
    assert!(queue.add(packets.into_iter(), QueueDiscipline::DropsOldest, false, &mut pool));
    let mut left = Vec::new();
    while let Some(mut group) = queue.take_group() {
        left.push(number(&group.next(&mut pool).unwrap()));
        queue.removed(1);
    }
    assert_eq!((left, queue.drops(), queue.highwater()), (vec![2, 3, 4], 2, 3));
}

/// A source that waits for room and a task that waits for packets, with queues so short that both sleep all the time. If a
/// wake were lost, the graph would stop early, since nothing is left to do.
#[test]
fn no_wake_is_lost_between_threads() {
    for capacity in [1, 2, 3, 100] {
        let mut graph = start_text(
            &format!(
                "InfiniteSource(LIMIT 50000) -> a :: Queue({capacity}) -> Unqueue -> b :: ThreadSafeQueue({capacity})
                 -> Unqueue(BURST 7) -> c :: Counter -> Discard;"
            ),
            3,
        );
        graph.run(|| false).unwrap();
        let mut read = |call: &str| graph.read_handler(call).unwrap().trim().to_owned();
        assert_eq!(read("c.count"), (50_000 - read("b.drops").parse::<u64>().unwrap()).to_string());
        assert_eq!([read("a.drops"), read("a.length"), read("b.length")], ["0", "0", "0"]);
        assert!(read("a.highwater_length").parse::<usize>().unwrap() <= capacity);
    }
}

#[test]
fn handlers_of_a_queue_between_threads_change_it() {
    let mut graph = start_text(
        "InfiniteSource(LIMIT 10, BURST 10) -> q :: Queue(4) -> u :: Unqueue(ACTIVE false) -> c :: Counter -> Discard;",
        2,
    );
    graph.run(|| false).unwrap();
    let mut read = |call: &str| graph.read_handler(call).unwrap().trim().to_owned();
    assert_eq!([read("q.length"), read("q.capacity"), read("q.highwater_length")], ["4", "4", "4"]);
    let drops: u64 = read("q.drops").parse().unwrap();
    graph.write_handler("q.capacity 3").unwrap();
    let mut read = |call: &str| graph.read_handler(call).unwrap().trim().to_owned();
    assert_eq!([read("q.length"), read("q.drops")], ["3".to_owned(), (drops + 1).to_string()]);
    graph.write_handler("q.reset").unwrap();
    graph.write_handler("q.reset_counts").unwrap();
    let mut read = |call: &str| graph.read_handler(call).unwrap().trim().to_owned();
    assert_eq!([read("q.length"), read("q.drops"), read("q.highwater_length")], ["0", "0", "0"]);
}
