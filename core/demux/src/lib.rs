//! Many packet filters at once: one look at each field of a packet says who wants it.

#![forbid(unsafe_code)]
