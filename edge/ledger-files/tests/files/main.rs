//! The ledger's files: killed nodes, disks that fail, folders that are not written to.

mod faults;
mod full;
mod killed;
mod make;
mod memory_disk;
mod reading;
mod refused;
