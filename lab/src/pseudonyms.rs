//! Addresses a second that a view anonymises, on one core, and the time that it takes to make such a view.

use crate::BenchError;
use crate::native::thread_time;
use crate::random::Random;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::hint::black_box;
use weir_wire::View;
use weir_wire::view::{Transform, ViewKey};

/// Addresses of a set: 64 for each that a view remembers, so that next to none is remembered when it comes again.
const COUNT: usize = 1 << 20;
/// Millions of mixed IPv4 addresses that `addresses=anonymised` replaces a second, at least.
const PROMISED: f64 = 4.0;
const VIEWS: [(&str, &str); 2] =
    [("ipcrypt-pfx", "addresses=anonymised"), ("Crypto-PAn", "addresses=crypto-pan")];

/// Addresses of one kind.
struct Set {
    name: &'static str,
    addresses: Vec<IpAddr>,
}

fn sets() -> Vec<Set> {
    let mut random = Random::new(3);
    let mut bytes = || -> [u8; 16] { std::array::from_fn(|_| random.byte()) };
    let mut set = |name, address: &dyn Fn([u8; 16]) -> IpAddr, different: usize| {
        let addresses: Vec<IpAddr> = (0..different).map(|_| address(bytes())).collect();
        Set { name, addresses: addresses.into_iter().cycle().take(COUNT).collect() }
    };
    let v4 = |bytes: [u8; 16]| IpAddr::from(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]));
    let network = |bytes: [u8; 16]| IpAddr::from(Ipv4Addr::new(10, 7, bytes[2], bytes[3]));
    let v6 = |bytes: [u8; 16]| IpAddr::from(Ipv6Addr::from(bytes));
    let networks = |mut bytes: [u8; 16]| {
        bytes[..7].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0]);
        IpAddr::from(Ipv6Addr::from(bytes))
    };
    vec![
        set("IPv4, mixed, none remembered", &v4, COUNT),
        set("IPv4, one /16", &network, COUNT),
        set("IPv4, 1,000 that are remembered", &v4, 1000),
        set("IPv6, mixed, none remembered", &v6, COUNT),
        set("IPv6, 256 networks", &networks, COUNT),
    ]
}

/// The promise, and all sets under both constructions.
///
/// # Errors
///
/// A view's text is wrong.
pub fn tables(rounds: usize) -> Result<String, BenchError> {
    let key = ViewKey::derive(&[9; 32], b"bench");
    let sets = sets();
    let mut measured = Vec::new();
    for (name, text) in VIEWS {
        let view: View = text.parse().map_err(|error: weir_wire::view::ViewError| BenchError::Failed {
            command: format!("view `{text}`"),
            said: error.to_string(),
        })?;
        let samples: Vec<Sample> = sets.iter().map(|_| Sample::default()).collect();
        measured.push((name, view, Transform::new(view, &key), Sample::default(), samples));
    }
    for _ in 0..rounds {
        for (_, view, transform, made, samples) in &mut measured {
            let begin = thread_time();
            black_box(Transform::new(*view, &key));
            made.push(thread_time().saturating_sub(begin).as_secs_f64() * 1e3);
            for (set, sample) in sets.iter().zip(samples) {
                let begin = thread_time();
                for address in &set.addresses {
                    black_box(transform.address(black_box(*address)));
                }
                let nanos = thread_time().saturating_sub(begin).as_secs_f64() * 1e9;
                sample.push(nanos / f64::from(u32::try_from(set.addresses.len()).unwrap_or(u32::MAX)));
            }
        }
    }
    let mut promise =
        Table::new(&["promise, millions of addresses a second", "at least", "measured", "kept"]);
    if let Some((_, _, _, _, samples)) = measured.first()
        && let Some(sample) = samples.first()
    {
        let rate = 1000.0 / sample.median();
        let kept = yes_or_no(rate >= PROMISED);
        promise.row([
            "mixed IPv4 addresses, none remembered".to_owned(),
            format!("{PROMISED:.1}"),
            format!("{rate:.1}"),
            kept,
        ]);
    }
    let mut table = Table::new(&["construction", "addresses", "ns", "quartiles", "millions a second"]);
    let mut making = Table::new(&["construction", "making a view, ms", "quartiles"]);
    for (name, _, _, made, samples) in &measured {
        let quartiles = made.quartiles();
        making.row([(*name).to_owned(), format!("{:.2}", quartiles.median), quartiles.spread(2)]);
        for (set, sample) in sets.iter().zip(samples) {
            let quartiles = sample.quartiles();
            table.row([
                (*name).to_owned(),
                set.name.to_owned(),
                format!("{:.1}", quartiles.median),
                quartiles.spread(1),
                format!("{:.2}", 1000.0 / sample.median()),
            ]);
        }
    }
    Ok(format!("Addresses alone, without packets.\n\n{promise}\n{table}\n{making}"))
}
