//! The parts that the manuals of rewriters share.

/// Returns the sentences about a full table.
macro_rules! full_table {
    () => {
        "A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires \
first. If all are guaranteed, the packet is discarded."
    };
}
/// Returns the arguments of TCP.
macro_rules! tcp_arguments {
    () => {
        "  TCP_TIMEOUT       the timeout of connections with data in both directions. Default 24 hours. TIMEOUT is another name.
  TCP_DONE_TIMEOUT  the timeout of connections that have ended, by FIN or RST. Default 4 minutes.
  TCP_NODATA_TIMEOUT
                    the timeout of connections without data in one direction. Default 5 minutes.
  TCP_GUARANTEE     the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
"
    };
}
/// Returns the arguments of the table.
macro_rules! table_arguments {
    () => {
        "  REAP_INTERVAL     mappings that have expired are removed every REAP_INTERVAL. Default 15 minutes; 0 for never.
  MAPPING_CAPACITY  the most mappings, default 1048576 and at most 16777216; or the name of a rewriter whose table is \
used. CAPACITY is another name.
"
    };
}
/// Returns the last argument.
macro_rules! reply_argument {
    () => {
        "  REPLY_ANNO        an annotation of one byte: replies get the value of the packet that began the mapping
"
    };
}
/// Returns the handlers of all rewriters.
macro_rules! common_handlers {
    () => {
        "  table_size        r   the number of mappings of this rewriter; nmappings is another name
  mapping_failures  r   the number of packets that got no mapping, because no port or address was free or the table was full
  patterns          r   the INPUTSPECs, with the numbers of their mappings
  patternN          rw  the INPUTSPEC of input N. Writing it removes the mappings of the input.
  size              r   the number of mappings in the table, which rewriters can share
  capacity          rw  the most mappings in the table
  drops             r   the number of packets that were discarded because they are not of this rewriter, or by drop
  clear             w   removes all mappings of the table"
    };
}
pub(super) use {common_handlers, full_table, reply_argument, table_arguments, tcp_arguments};
