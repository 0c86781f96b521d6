//! What is made of the records of the shipped modules: a file each.

mod flood;
mod flows;
mod hits;
mod ports;
mod rtt;
mod scaling;

use crate::sinks::Finding;
use crate::value;
use weir_admission::{Manifest, StreamField};

/// What is made of a module's records. Modules are known by name, and have to have the streams and fields that are needed.
pub(crate) fn of(manifest: &Manifest) -> Option<Box<dyn Finding>> {
    fn boxed(finding: impl Finding + 'static) -> Box<dyn Finding> {
        Box::new(finding)
    }
    match manifest.name.as_str() {
        "rtt" => rtt::Rtt::new(manifest).map(boxed),
        "syn-flood" => flood::Flood::new(manifest).map(boxed),
        "lrd" => scaling::Scaling::new(manifest).map(boxed),
        "trajectory" => flows::Flows::new(manifest).map(boxed),
        "port-count" => ports::Ports::new(manifest).map(boxed),
        "worm" => hits::Hits::worm(manifest).map(boxed),
        "payload-match" => hits::Hits::payload(manifest).map(boxed),
        _ => None,
    }
}

/// A stream's index and the fields with these names.
fn stream<const N: usize>(
    manifest: &Manifest,
    name: &str,
    fields: [&str; N],
) -> Option<(u16, [StreamField; N])> {
    let index = manifest.streams.iter().position(|stream| stream.name.as_str() == name)?;
    Some((u16::try_from(index).ok()?, value::fields(manifest.streams.get(index)?, fields)?))
}
