//! The shipped modules, over packets that a test makes, over the sample capture and, where they are there, over shared traces. What is
//! expected comes from elsewhere: from etherparse, from straightforward code in the test, from tshark, from theory.

mod arm;
mod capture;
mod dscp_mark;
mod jobs;
mod loads;
mod lrd;
mod noise;
mod packet;
mod payload_match;
mod port_count;
mod rebuild;
mod rtt;
mod rtt_captures;
mod seen;
mod syn_flood;
mod trajectory;
mod weir;
mod worm;
