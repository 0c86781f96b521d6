//! The rate at which a view anonymises addresses on one core, and the time to create the view. A table of the part `view`
//! of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::random::Random;
use crate::statistics::{Action, measure_in_turn, nanos_per_call, processor_time, to_f64};
use crate::table::Table;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::cell::RefCell;
use std::hint::black_box;
use weir_wire::PacketView;
use weir_wire::view::{Transform, ViewKey};

/// The number of addresses of a set: 64 times the size of a view's cache, so that different addresses are almost never
/// found in the cache.
const COUNT: usize = 1 << 20;
/// The promised rate of `addresses=anonymised` for mixed IPv4 addresses, in millions per second.
const PROMISED: f64 = 4.0;
/// The two ways to anonymise: names, and views.
const VIEWS: [(&str, &str); 2] =
    [("ipcrypt-pfx", "addresses=anonymised"), ("Crypto-PAn", "addresses=crypto-pan")];

/// Sets of addresses, each with its name in the table.
fn sets() -> Vec<(&'static str, Vec<IpAddr>)> {
    let mut random = Random::new(3);
    let mut bytes = || -> [u8; 16] { std::array::from_fn(|_| random.byte()) };
    let mut set = |name, address: &dyn Fn([u8; 16]) -> IpAddr, different: usize| {
        let addresses: Vec<IpAddr> = (0..different).map(|_| address(bytes())).collect();
        (name, addresses.into_iter().cycle().take(COUNT).collect())
    };
    let v4 = |bytes: [u8; 16]| IpAddr::from(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]));
    let network = |bytes: [u8; 16]| IpAddr::from(Ipv4Addr::new(10, 7, bytes[2], bytes[3]));
    let v6 = |bytes: [u8; 16]| IpAddr::from(Ipv6Addr::from(bytes));
    // The /64 networks of 2001:db8::/56, which differ in byte 7.
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

/// The tables: the promise, and the time for each set of addresses with each construction.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    let key = ViewKey::derive(&[9; 32], b"bench");
    let sets = sets();
    let mut table = Table::new("construction | addresses | ns | quartiles | millions a second");
    let mut creation = Table::new("construction | creating a view, ms | quartiles");
    let mut first = None;
    for (name, text) in VIEWS {
        let view: PacketView = text.parse().context(format_args!("view `{text}`"))?;
        let transform = RefCell::new(Transform::new(view, &key));
        let mut actions: Vec<Action<'_>> =
            vec![Box::new(|| Ok(nanos_per_call(1, || _ = black_box(Transform::new(view, &key))) / 1e6))];
        for (_, addresses) in &sets {
            let transform = &transform;
            actions.push(Box::new(move || {
                let mut transform = transform.borrow_mut();
                let all = || {
                    for address in addresses {
                        black_box(transform.address(black_box(*address)));
                    }
                };
                Ok(processor_time(all).as_secs_f64() * 1e9 / to_f64(addresses.len()))
            }));
        }
        let mut samples = measure_in_turn(rounds, &mut actions)?.into_iter();
        creation.row(format_args!("{name} | {}", samples.next().unwrap_or_default().cells(2)));
        for ((set, _), sample) in sets.iter().zip(samples) {
            let rate = 1000.0 / sample.median();
            first.get_or_insert(rate);
            table.row(format_args!("{name} | {set} | {} | {rate:.2}", sample.cells(1)));
        }
    }
    let what = "mixed IPv4 addresses, none remembered, millions a second";
    let criterion = Criterion::at_least(what, first.unwrap_or(f64::NAN), PROMISED, "");
    Ok(format!(
        "Addresses alone, without packets.\n\n{}\n{table}\n{creation}",
        criterion::table(&[criterion])
    ))
}
