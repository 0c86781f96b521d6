//! The engine: it connects elements, and takes packets through them.
//!
//! A [`Router`] is a graph with its elements. Its driver runs the tasks of elements, which emit packets, or pull them
//! from others. Packets go through the graph in batches: 64 of them through one element, then through the next. The
//! results are those of packets that go one by one; [`plan`] states where that could be seen, and those places get
//! their packets one by one.
//!
//! - E. Kohler, R. Morris, B. Chen, J. Jannotti, M. F. Kaashoek: "The Click Modular Router", ACM Transactions on Computer
//!   Systems 18(3), 2000.

mod batch;
mod build;
mod class;
mod clock;
mod context;
mod driver;
mod effects;
mod element;
mod endpoints;
mod handler;
mod measures;
mod names;
mod order;
mod packet;
mod plan;
mod ports;
mod pull;
mod rank;
mod replace;
mod router;
mod run;
mod schedule;
mod search;
mod sets;
mod signal;
mod threads;

pub use crate::annotations::*;
pub use batch::Batch;
pub use build::BuildContext;
pub use class::{
    ClassCodeError, Effects, ElementClass, ElementCost, OrderDependence, OutputCount, PortCounts, Processing,
    processing,
};
pub use clock::{GraphClock, SimulatedClock};
pub use context::{ElementContext, Services, next_random};
pub use effects::{
    BlockPacket, CaptureReader, CaptureWriter, CapturedBlock, DeviceMethod, DeviceOptions, DeviceState,
    DeviceWaker, InterfaceAddresses, LineReader, NoFiles, OnlyInterfaces, ReceivedPacket, ReceivingDevice,
    SendingDevice, SentPackets, System, TextLines, TextOutput,
};
pub use element::{
    BuiltElement, Destination, Element, EmittingElement, HandlerDefinition, MeasureKind, Reason, RouteBatch,
    RoutingElement, TaskRun, most_packets, route_each,
};
pub use endpoints::{
    CallAnswer, ControlPlace, ControlPort, HostDevice, HostDeviceKind, HostDeviceOptions, PacketSocket,
    SocketEvents, SocketOptions, SocketSend, SocketState, SocketTransport,
};
pub use handler::{HandlerError, HandlerFault, REPLACES};
pub use measures::{ElementMeasure, MEASURES, read_measures};
pub use names::DefinedNames;
pub use packet::{
    ArrivedPackets, GraphPacket, HEADROOM, PACKET_BYTES_MAX, PacketPool, PacketType, SourceBlock,
    TransferredPackets,
};
pub use plan::{OneByOne, Plan};
pub use ports::{ElementPorts, PortConnection, PortReference};
pub(crate) use router::connect_ports;
pub use router::{ElementClasses, ElementGraph, GraphError, Router, RunOptions};
pub use schedule::{TICKETS_DEFAULT, TICKETS_MAX};
pub use signal::{SignalId, SignalTable, WaitsFor};
pub use threads::{
    ForcedTogether, QueueCounts, QueueDiscipline, QueueSide, QueueThreads, RunningPlacement, THREADS_MAX,
    ThreadCall, ThreadLink, ThreadMessage, ThreadOrder, ThreadPart, ThreadPlacement, ThreadQueue, ThreadWait,
    ThreadedGraph, WaitGraph,
};
