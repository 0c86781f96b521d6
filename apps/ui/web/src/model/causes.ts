// Causes of loss in words, after `core/ledger/src/cause.rs` and the documents, with what helps against each.

export interface Cause {
  /** The unit that the cause counts. */
  unit: "packets" | "records" | "messages";
  /** A few words, for a table. */
  short: string;
  /** The meaning. */
  text: string;
  /** The remedy; empty if nothing has to be done. */
  help: string;
}

function cause(unit: Cause["unit"], short: string, text: string, help: string): Cause {
  return { unit, short, text, help };
}

const CAUSES: Record<string, Cause> = {
  "interface-down": cause("packets", "interface down", "Not sent: the interface was down or gone.", "Check the link's interface."),
  "queue-full": cause("packets", "queue full", "The channel's queue was full: the modules took longer than packets arrived.", "Give the virtual CPU a larger slice, the channel a longer queue, or a narrower filter."),
  lagged: cause("packets", "module lags", "The module was further behind than the channel allows, and lost its oldest packets.", "Give the virtual CPU a larger slice, or raise lag_max."),
  "reader-ended": cause("packets", "module ended by its lag", "The module was further behind than allowed and was ended, with packets in its queue.", "Give the virtual CPU a larger slice, or set on_lag to drop."),
  closed: cause("packets", "closed", "The packet waited when the session was closed or the module was unloaded.", ""),
  shed: cause("packets", "core overloaded", "The core was overloaded: sessions without a reservation lose packets, the lowest priority first.", "Reserve processor time with period and slice, or raise the session's priority."),
  "no-memory": cause("packets", "no memory", "There was no memory for the packet: the memory for packets or the session's reservation was used up.", "Raise the session's memory, or packet_memory of the node."),
  "frame-limit": cause("packets", "too many kept packets", "Delivered but not kept: the modules keep as many packets as the session may.", "Raise kept_packets."),
  reassembly: cause("packets", "datagram incomplete", "A fragment of a datagram that was never completed.", ""),
  "bad-checksum": cause("packets", "wrong checksum", "The packet has a wrong checksum, and the channel asked for validation.", "On a virtual interface, turn off checksum offloading."),
  "module-fault": cause("packets", "module fault", "The module trapped while it handled the packet.", "See the module's last fault."),
  "over-limit": cause("packets", "call aborted", "The call for the packet was aborted: it reached its limit, its memory was needed for newer packets, or the module was stopped.", "See the module's strikes; a larger slice can help."),
  verdict: cause("packets", "dropped by the module", "The module decided to drop the packet. This is no fault.", ""),
  refused: cause("packets", "not allowed to send", "Not sent: the session has no right to send this packet, or to send on this interface.", "Check the output's filter and the credential."),
  "too-long": cause("packets", "frame too long", "Not sent: the packet is longer than the interface takes.", "Turn off merging of packets (gro, lro) on the interface that it came from."),
  "link-queue-full": cause("packets", "output queue full", "Not sent: the queue of the output channel was full, for instance because it exceeded its cap.", "Raise the output's reserve or cap, or its queue."),
  "send-failed": cause("packets", "sending failed", "Not sent: the kernel or the device refused the packet.", "Check the link's interface."),
  "record-limit": cause("records", "too many records in a call", "The call emitted more records than are allowed for a packet or a call.", "The module's profile sets this limit."),
  "record-rate": cause("records", "too many records per second", "The session emitted more records per second than it may.", "Raise records_per_second."),
  "record-bytes": cause("records", "too many bytes of records", "The session emitted more bytes of records per second than it may.", "Raise record_bytes."),
  "record-of-lost-call": cause("records", "call lost", "The call that emitted the record was lost, so the record was removed.", "See the module's last fault."),
  "disk-full": cause("records", "disk full", "The disk or its quota was full.", "Free space in the node's state folder."),
  "write-failed": cause("records", "writing failed", "The file could not be written, or the records thread was too far behind.", "See the node's log."),
  deadline: cause("messages", "no answer in time", "A service did not answer by the caller's deadline.", "Give the service's session more processor time."),
  "service-gone": cause("messages", "service closed", "The service was closed before it answered.", ""),
};

/** Returns a cause in words. An unknown one, of a newer node, stands for itself. */
export function causeOf(name: string): Cause {
  return Object.hasOwn(CAUSES, name) ? (CAUSES[name] as Cause) : cause("packets", name, "", "");
}

/** Returns true if a cause is a loss that should worry: not a verdict of a module, and not the end of a session. */
export function isLoss(name: string): boolean {
  return name !== "verdict" && name !== "closed";
}

/** The names of all known causes. */
export const CAUSE_NAMES = Object.keys(CAUSES);
