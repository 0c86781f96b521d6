// The snapshot of a node, as `apps/node/src/control/status` serialises it, and its rates, as `weir top` computes them.
// A field that serde leaves out if it is empty is optional here.

/** Counts by name, such as losses by cause. */
export type Counts = Record<string, number>;

/** A rate; `null` if it is unknown, as without an earlier snapshot. */
export type Rate = number | null;

export interface Snapshot {
  node: string;
  version: string;
  uptime_ns: number;
  at_ns: number;
  cores: CoreStatus[];
  interfaces: InterfaceStatus[];
  links?: LinkStatus[];
  sessions: SessionStatus[];
  memory: { reserved: number; reservable: number };
  views?: ViewStatus[];
  tables?: TableStatus[];
  remote?: RemoteStatus;
}

export interface RemoteStatus {
  connections: number;
  clients: number;
  refused: Counts;
}

export interface CoreStatus {
  core: number;
  reserved_ppm: number;
  reservable_ppm: number;
  busy_ns: number;
  overhead_ns: number;
  stolen_ns: number;
}

export interface InterfaceStatus {
  name: string;
  state: string;
  packets: number;
  bytes: number;
  missed: number;
  unmatched: number;
  fragments?: Counts;
}

export interface LinkStatus {
  name: string;
  state: string;
  rate_bits: number;
  reserved_bits: number;
  reservable_bits: number;
  packets: number;
  bytes: number;
  lost: number;
}

export interface ViewStatus {
  number: number;
  interface: string;
  view: string;
  owner: string | null;
  packets: number;
  readers: string[];
}

export interface TableStatus {
  name: string;
  publisher: string | null;
  version: number;
  bytes: number | null;
  readers: string[];
  problems?: string[];
}

export interface SessionStatus {
  name: string;
  /** Tells successive sessions with the same name apart. Nodes before this field leave it out. */
  id?: number;
  credential?: string;
  priority: number;
  memory_reserved: number;
  memory_used: number;
  memory_max?: number;
  memory_low?: number;
  memory_refused?: number;
  limits?: Record<string, unknown>;
  cpu: VirtualCpuStatus[];
  channels: ChannelStatus[];
  outputs?: OutputStatus[];
  modules: ModuleStatus[];
  ended?: ModuleStatus[];
  used?: { drops?: Counts } & Record<string, unknown>;
  findings?: { counts?: Counts; latest?: FindingStatus[] };
  share?: string[];
  sums_only?: boolean;
}

export interface VirtualCpuStatus {
  name: string;
  core: number;
  period_ns: number;
  slice_ns: number;
  borrow: boolean;
  /** Weight in the division of spare time. Nodes before this field leave it out. */
  weight?: number;
  used_ns: number;
  spare_ns: number;
  periods_missed: number;
  overruns: number;
}

export interface ChannelStatus {
  name: string;
  interface: string;
  filter: string;
  view?: string;
  waiting: number;
  queue: number;
  packets: number;
  bytes: number;
  drops: Counts;
  findings?: Counts;
}

export interface OutputStatus {
  name: string;
  link: string;
  tap: string | null;
  reserved_bits: number;
  cap_bits: number;
  weight: number;
  /** Filter and period of the reservation. Nodes before these fields leave them out. */
  filter?: string;
  period_ns?: number;
  waiting: number;
  queue: number;
  packets: number;
  bytes: number;
  wire_bytes: number;
  drops: Counts;
}

export interface ModuleStatus {
  name: string;
  module: string;
  tier: string;
  state: string;
  packets: number;
  records: number;
  records_lost: number;
  faults: number;
  isolation?: string;
  back_end?: string;
  compiled_by?: string[];
  /** The bound of a packet in words, such as `at most 1.2 us`. Nodes before this field leave it out. */
  bound?: string;
  strikes: number;
  used_ns: number;
  memory: number;
  last_fault: string | null;
  streams: string[];
  findings?: Counts;
}

export interface FindingStatus {
  module: string;
  time_ns: number;
  severity: number;
  text: string;
  filter?: string;
  evidence?: string;
}

export interface SnapshotRates {
  cores: { busy: Rate; overhead: Rate; stolen: Rate }[];
  interfaces: { packets: Rate; bits: Rate; missed: Rate; unmatched: Rate }[];
  links: OutputRates[];
  views: Rate[];
  sessions: SessionRates[];
}

export interface OutputRates {
  packets: Rate;
  bits: Rate;
  drops: Rate;
}

export interface SessionRates {
  cpu: Rate;
  spare: Rate;
  packets: Rate;
  drops: Rate;
  records: Rate;
  processors: { used: Rate; spare: Rate; missed: Rate }[];
  channels: OutputRates[];
  outputs: OutputRates[];
  modules: { packets: Rate; records: Rate; used: Rate; per_packet: Rate }[];
}
