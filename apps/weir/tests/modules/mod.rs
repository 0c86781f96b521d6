//! The shipped modules, run on generated packets, the sample capture and, if present, shared traces. Expected results come from
//! independent sources: etherparse, simple code in the test, tshark, and theory.

mod arm;
mod beacon;
pub(crate) mod capture;
mod dns;
mod dscp_mark;
mod entropy;
mod findings_of_traces;
mod flows;
mod http;
mod jobs;
mod latency;
mod layers;
mod loads;
mod loss;
mod lrd;
mod manifests;
mod noise;
pub(crate) mod packet;
mod parsed_packet;
mod payload_match;
mod port_count;
mod quic;
mod rebuild;
mod rtt;
mod rtt_captures;
mod scan;
mod syn_flood;
mod talkers;
mod tls;
mod trajectory;
mod weir;
mod worm;
