//! Receiving from captures, with queues whose readers take packets as each test decides.

use super::*;
use crate::overflow::Overflow;
use crate::plan::ModuleWaker;
use crate::queue::{PacketQueue, QueueEntry};
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
    let shared = Arc::new(Shared {
        plan: Mutex::new(Arc::new(Planner::default().plan(routes.to_vec()).unwrap())),
        retired: Mutex::default(),
        is_new: AtomicBool::new(false),
        activity: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        state: Mutex::default(),
    });
    Receiving::new(source, shared, std::sync::mpsc::channel().0, false)
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
