//! Receiving from captures, with queues whose readers take packets as each test decides.

use super::*;
use crate::overflow::Overflow;
use crate::plan::{LagPolicy, ModuleWaker};
use crate::queue::{PacketQueue, QueueEntry};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use weir_demux::{FilterProgram, Instruction};
use weir_netio::{Capture, CaptureInput};

/// Records the positions that modules were told to release.
#[derive(Debug, Default)]
struct Released(Mutex<Vec<(u64, u64)>>);

impl ModuleWaker for Released {
    fn wake(&self, _: u64) {}

    fn release(&self, module: u64, position: u64) {
        lock(&self.0).push((module, position));
    }
}

const PACKETS: u64 = 20;
const LEN: u32 = 60_000;

/// A channel for all packets, with one reader.
fn route(number: u64, selection: &Arc<Mutex<Selection>>, waker: &Arc<Released>) -> Route {
    let all = [Instruction { code: 6, jt: 0, jf: 0, k: 1 }];
    let waker: Arc<dyn ModuleWaker> = Arc::<Released>::clone(waker);
    let queue = Arc::new(PacketQueue::new(1000, 1));
    Route {
        channel: number,
        owner: number,
        priority: 0,
        program: Arc::new(FilterProgram::new(&all).unwrap()),
        visibility: Visibility::Selected(Arc::clone(selection)),
        filters_view: false,
        flows: None,
        readers: vec![PlanReader { module: number, queue, waker, account: Arc::default() }],
        on_no_module: None,
        counters: Arc::default(),
        account: Arc::default(),
    }
}

/// A capture of `packets` packets of `len` bytes each, and its only block.
fn capture(packets: u64, len: u32) -> (PacketSource, Arc<Block>) {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
    for _ in 0..packets {
        [0, 0, len, len].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
        bytes.resize(bytes.len() + len as usize, 0);
    }
    let capture = Capture::open(CaptureInput::Bytes(bytes)).unwrap();
    let mut source = PacketSource::Capture(Box::new(capture));
    let Ok(Poll::Block(block)) = source.next(Nanos(0)) else { panic!("the capture has a block") };
    (source, Arc::new(block))
}

/// A receive thread's state for these channels.
fn receiving(source: PacketSource, routes: &[Route]) -> Receiving {
    let shared = Shared::new(Arc::new(Planner::default().plan(routes.to_vec()).unwrap()), 1);
    shared.threads[0].is_new.store(false, Ordering::Relaxed);
    let threads = ReceiveThreads { count: 1, delivery: Delivery::default(), polls: false };
    Receiving::new(source, shared, 0, std::sync::mpsc::channel().0, threads)
}

#[test]
fn waiting_packets_that_arrived_far_apart_are_moved_out_of_a_full_selection() {
    const QUEUE: u32 = 200;
    // Longer together than a chunk of the memory.
    let (source, block) = capture(1000, 1500);
    let selection = Arc::new(Mutex::new(Selection::new().unwrap()));
    let mut route = route(1, &selection, &Arc::default());
    let queue = Arc::new(PacketQueue::new(QUEUE, 1).with_overflow(Some(Overflow::unreserved(QUEUE))));
    route.readers[0].queue = Arc::clone(&queue);
    let mut receiving = receiving(source, std::slice::from_ref(&route));
    receiving.distribute(&block);
    // The reader takes one packet before each block, so each waiting packet came with another block.
    for _ in 0..2 * QUEUE {
        assert!(queue.take(1).is_some());
        queue.release();
        receiving.distribute(&block);
    }
    assert_eq!((queue.waiting(), route.counters.no_memory.load(Ordering::Relaxed)), (QUEUE, 0));
    assert!(route.counters.queue_full.load(Ordering::Relaxed) > 0 && queue.has_mapped_memory());
}

#[test]
fn suspended_readers_release_a_full_selection_in_the_order_in_which_they_were_suspended() {
    const READERS: u64 = 64;
    let (source, block) = capture(PACKETS, LEN);
    let selection = Arc::new(Mutex::new(Selection::new().unwrap()));
    let waker: Arc<Released> = Arc::default();
    let routes: Vec<Route> = (1..=READERS).map(|number| route(number, &selection, &waker)).collect();
    let mut receiving = receiving(source, &routes);
    let lost = || routes.iter().map(|route| route.counters.no_memory.load(Ordering::Relaxed)).sum::<u64>();
    // Each reader takes one batch and is suspended with it; its other packets are evicted.
    let mut hands: VecDeque<QueueEntry> = VecDeque::new();
    for route in &routes {
        receiving.distribute(&block);
        if lost() > 0 {
            break;
        }
        hands.extend(route.readers[0].queue.take(64));
        routes.iter().for_each(|route| _ = route.readers[0].queue.evict_all());
    }
    assert!(lost() > 0 && hands.len() > 10, "{} readers are suspended with all memory", hands.len());
    assert_eq!(*lock(&waker.0), [(1, 1)]);
    // The reader releases its packets, which makes space for the next ones. Then it is the second reader's turn.
    hands.pop_front();
    routes[0].readers[0].queue.release();
    let before = lost();
    for _ in 0..3 {
        routes.iter().for_each(|route| _ = route.readers[0].queue.evict_all());
        receiving.distribute(&block);
        hands.extend(routes[0].readers[0].queue.take(64));
    }
    assert!(lost() - before < 3 * PACKETS * READERS, "some packets have arrived");
    let second = (2, PACKETS * u64::from(LEN) + 1);
    assert_eq!(lock(&waker.0).get(1), Some(&second));
}

/// A capture of UDP packets, a first fragment and a later fragment of a datagram, and its only block.
fn capture_with_fragments(count: usize) -> (PacketSource, Arc<Block>) {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
    for number in 0..count {
        // The third packet from the end is a first fragment, and the last one a later fragment.
        let fragment = match count - number {
            3 => [0x20, 0],
            1 => [0, 2],
            _ => [0, 0],
        };
        let packet = [
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 36, 0, 7][..],
            &fragment,
            &[64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 53, 0, 16, 0, 0],
            &[0; 8],
        ]
        .concat();
        let len = u32::try_from(packet.len()).unwrap();
        [0, 0, len, len].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
        bytes.extend(packet);
    }
    let capture = Capture::open(CaptureInput::Bytes(bytes)).unwrap();
    let mut source = PacketSource::Capture(Box::new(capture));
    let Ok(Poll::Block(block)) = source.next(Nanos(0)) else { panic!("the capture has a block") };
    (source, Arc::new(block))
}

/// The packets that the readers of channels get from a block, and the packets and bytes that the channels count.
fn received(routes: &[Route], source: PacketSource, block: &Arc<Block>) -> Vec<(Vec<u32>, u64, u64)> {
    let mut receiving = receiving(source, routes);
    receiving.distribute(block);
    let numbers = |route: &Route| {
        let mut numbers = Vec::new();
        while let Some(entry) = route.readers[0].queue.take(64) {
            let bits = (0..64).filter(|bit| entry.mask >> bit & 1 == 1);
            numbers.extend(bits.map(|bit| entry.block.descriptors()[entry.batch * 64 + bit].number));
        }
        numbers
    };
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let of = |route: &Route| (numbers(route), count(&route.counters.packets), count(&route.counters.bytes));
    routes.iter().map(of).collect()
}

/// Sets a filter that selects all packets, but reads them.
fn read_packets(route: &mut Route) {
    let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program = [code(0x30, 0, 0, 12), code(0x15, 0, 1, 8), code(6, 0, 0, 1), code(6, 0, 0, 0)];
    route.program = Arc::new(FilterProgram::new(&program).unwrap());
}

#[test]
fn channels_without_a_filter_get_what_they_would_get_with_a_filter_that_selects_everything() {
    let waker: Arc<Released> = Arc::default();
    let all: Vec<u32> = (0..150).collect();
    for reads in [[false, false], [true, true], [true, false]] {
        let (source, block) = capture_with_fragments(150);
        let selections = [(); 2].map(|()| Arc::new(Mutex::new(Selection::new().unwrap())));
        let mut routes: Vec<Route> =
            (1..).zip(&selections).map(|(number, selection)| route(number, selection, &waker)).collect();
        // One channel reads the interface's own memory.
        routes[1].visibility = Visibility::All(LagPolicy { lag_max: u64::MAX, closes_session: false });
        for (route, _) in routes.iter_mut().zip(reads).filter(|(_, reads)| *reads) {
            read_packets(route);
        }
        let expected = (all.clone(), 150, 150 * 50);
        assert_eq!(received(&routes, source, &block), [expected.clone(), expected], "{reads:?}");
    }
}

#[test]
fn a_later_fragment_goes_to_the_channels_that_got_the_first_one_although_no_filter_reads_it() {
    let waker: Arc<Released> = Arc::default();
    let selection = Arc::new(Mutex::new(Selection::new().unwrap()));
    let (source, block) = capture_with_fragments(3);
    let mut routes: Vec<Route> = (1..3).map(|number| route(number, &selection, &waker)).collect();
    for route in &mut routes {
        route.visibility = Visibility::All(LagPolicy { lag_max: u64::MAX, closes_session: false });
    }
    let mut receiving = receiving(source, &routes[..1]);
    receiving.distribute(&block);
    let mut planner = Planner::default();
    planner.plan(routes[..1].to_vec()).unwrap();
    *lock(&receiving.shared.plan) = Arc::new(planner.plan(routes.clone()).unwrap());
    receiving.adopt_plan();
    // The first fragment is repeated, so that its datagram stays one of the first channel only.
    receiving.distribute(&block);
    assert_eq!([0, 1].map(|place: usize| routes[place].readers[0].queue.waiting()), [6, 2]);
    assert_eq!(receiving.matcher.fragments().followed, 2);
}
