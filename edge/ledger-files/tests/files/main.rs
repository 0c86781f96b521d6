//! The ledger's files: killed nodes, failing disks, refused folders.

mod faults;
mod full;
mod killed;
mod make;
mod memory_disk;
mod reading;
mod refused;
