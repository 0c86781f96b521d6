//! The shipped modules, run on generated packets, the sample capture and, if present, shared traces. Expected results come from
//! independent sources: etherparse, simple code in the test, tshark, and theory.

mod arm;
mod capture;
mod dscp_mark;
mod jobs;
mod loads;
mod lrd;
mod manifests;
mod noise;
mod packet;
mod parsed_packet;
mod payload_match;
mod port_count;
mod rebuild;
mod rtt;
mod rtt_captures;
mod syn_flood;
mod trajectory;
mod weir;
mod worm;
