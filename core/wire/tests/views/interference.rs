//! Hidden values have no influence on the output of a view: two packets that differ only in hidden values, with right
//! checksums, give the same bytes. The test uses all packets of [`super::nested`], nested as deep as views look, and
//! one deeper.

use super::nested::{Built, Carrier, Leaf, Values, framed, over};
use super::{described, shown, transform};
use weir_wire::LinkType;
use weir_wire::view::Transform;

/// The number of packets around the innermost that are tried in all combinations.
const WHOLE_DEPTH: usize = 2;
/// The number of packets in random combinations.
const DEEP: usize = 6;
/// The number of random combinations for each leaf.
const DEEP_COUNT: u64 = 300;

/// The packets around the innermost, from the outermost on, each with true for IPv6.
type Path = Vec<(Carrier, bool)>;

fn build(values: &Values, path: &[(Carrier, bool)], leaf: Leaf, is_v6: bool) -> Option<Built> {
    let mut built = leaf.build(values, is_v6)?;
    for &(carrier, is_v6) in path.iter().rev() {
        built = carrier.wrap(values, is_v6, &built)?;
    }
    // Longer ones do not fit the lengths of headers that quote them.
    (built.bytes.len() <= 1000).then(|| framed(values, &built))
}

/// All paths that are tried.
fn paths() -> Vec<Path> {
    let all: Vec<(Carrier, bool)> =
        Carrier::ALL.iter().flat_map(|carrier| [(*carrier, false), (*carrier, true)]).collect();
    let mut paths = vec![Vec::new()];
    let mut last = paths.clone();
    for _ in 0..WHOLE_DEPTH {
        last =
            last.iter().flat_map(|path| all.iter().map(move |one| [&path[..], &[*one]].concat())).collect();
        paths.extend(last.clone());
    }
    let mut state = 7_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % limit
    };
    for _ in 0..DEEP_COUNT {
        let depth = WHOLE_DEPTH + 1 + below(DEEP - WHOLE_DEPTH);
        paths.push((0..depth).map(|_| all[below(all.len())]).collect());
    }
    paths
}

/// The test takes one in this many combinations of more than one packet around the innermost.
#[derive(Clone, Copy)]
struct OneIn(usize);

/// Calls `work` with two packets that differ in the values changed by `vary`, for these combinations. Returns the
/// number of pairs.
fn each_pair(
    OneIn(step): OneIn,
    vary: impl Fn(&mut Values, &Values),
    mut work: impl FnMut(&Built, &Built, &Path, Leaf),
) -> usize {
    let values = Values::from_seed(1);
    let mut other = values.clone();
    vary(&mut other, &Values::from_seed(2));
    let (mut count, mut number) = (0, 0_usize);
    let paths = paths();
    for leaf in Leaf::ALL {
        for is_v6 in [false, true] {
            for path in &paths {
                number += 1;
                if path.len() > 1 && !number.is_multiple_of(step) {
                    continue;
                }
                let Some(one) = build(&values, path, leaf, is_v6) else { continue };
                let two = build(&other, path, leaf, is_v6).unwrap();
                work(&one, &two, path, leaf);
                count += 1;
            }
        }
    }
    count
}

fn show(transform: &mut Transform, bytes: &[u8]) -> Vec<u8> {
    shown(transform, bytes, bytes.len(), LinkType::Ethernet).0
}

/// A view, and a function that replaces the values it hides by those of another packet.
type Hidden = (&'static str, fn(&mut Values, &Values));

const HIDDEN: [Hidden; 19] = [
    ("payload=none", |values, other| values.secret = other.secret),
    ("payload=none,macs=zeroed", |values, other| (values.secret, values.macs) = (other.secret, other.macs)),
    ("payload=none,ports=zeroed", |values, other| {
        (values.secret, values.ports) = (other.secret, other.ports)
    }),
    ("payload=none,ttl=zeroed", |values, other| (values.secret, values.ttl) = (other.secret, other.ttl)),
    ("addresses=zeroed", |values, other| {
        (values.secret, values.v4, values.v6, values.macs) = (other.secret, other.v4, other.v6, other.macs)
    }),
    ("addresses=zeroed,payload=all", |values, other| {
        (values.v4, values.v6, values.macs) = (other.v4, other.v6, other.macs)
    }),
    ("addresses=anonymised", |values, other| (values.secret, values.macs) = (other.secret, other.macs)),
    ("macs=zeroed", |values, other| values.macs = other.macs),
    ("ports=zeroed", |values, other| values.ports = other.ports),
    ("ttl=zeroed", |values, other| values.ttl = other.ttl),
    ("dscp=zeroed", |values, other| values.dscp = other.dscp),
    ("ip-id=zeroed", |values, other| values.ip_id = other.ip_id),
    ("flow-label=zeroed", |values, other| values.flow_label = other.flow_label),
    ("vlan=zeroed", |values, other| values.vlan = other.vlan),
    ("tcp-seq=zeroed", |values, other| values.sequence = other.sequence),
    ("tcp-ack=zeroed", |values, other| values.acknowledgement = other.acknowledgement),
    ("tcp-window=zeroed", |values, other| values.window = other.window),
    ("tcp-timestamps=zeroed", |values, other| values.timestamps = other.timestamps),
    ("icmp-echo=zeroed", |values, other| values.echo = other.echo),
];

#[test]
fn hidden_values_have_no_influence_on_the_output_however_packets_are_nested() {
    let mut failures = Vec::new();
    for (number, (view, vary)) in HIDDEN.into_iter().enumerate() {
        let mut transform = transform(view);
        let mut differing = 0;
        // All combinations for the first view, a part for the others.
        let step = if number == 0 { 1 } else { 17 };
        let count = each_pair(OneIn(step), vary, |one, two, _, _| {
            differing += usize::from(one.bytes != two.bytes);
            let [first, second] = [one, two]
                .map(|built| shown(&mut transform, &built.bytes, built.bytes.len(), LinkType::Ethernet));
            if first != second {
                failures.push(format!("{view}: {}", one.name));
            }
        });
        assert!(count > 40_000 / step && differing > 200, "{view}: {differing} of {count} pairs differ");
    }
    failures.sort_by_key(String::len);
    assert!(
        failures.is_empty(),
        "{} pairs; the shortest are {:#?}",
        failures.len(),
        &failures[..failures.len().min(40)]
    );
}

#[test]
fn hidden_labels_have_no_influence_on_the_output() {
    let mut transform = transform("mpls=zeroed");
    // A label can begin like IP, but the bottom of the stack tells that it is a label.
    each_pair(
        OneIn(17),
        |values, other| values.label = other.label,
        |one, two, _, _| {
            assert_eq!(show(&mut transform, &one.bytes), show(&mut transform, &two.bytes), "{}", one.name)
        },
    );
}

/// The same with captures that end anywhere.
#[test]
fn hidden_values_have_no_influence_wherever_the_capture_ends() {
    for (view, vary) in HIDDEN {
        let mut transform = transform(view);
        each_pair(OneIn(797), vary, |one, two, path, _| {
            for captured in (14..one.bytes.len()).step_by(1 + path.len() * 2) {
                let [first, second] = [one, two].map(|built| {
                    shown(&mut transform, &built.bytes[..captured], built.bytes.len(), LinkType::Ethernet)
                });
                assert_eq!(first, second, "{view}: {captured} bytes of {}", one.name);
            }
        });
    }
}

/// Each checksum that is shown completely is right for the output, or 0.
#[test]
fn each_checksum_of_nested_packets_is_right_or_zero() {
    for (view, vary) in HIDDEN {
        let mut transform = transform(view);
        let (mut right, mut zero) = (0, 0);
        each_pair(OneIn(17), vary, |one, _, _, _| {
            let out = show(&mut transform, &one.bytes);
            for sum in one.sums.iter().filter(|sum| sum.field + 2 <= out.len()) {
                if out[sum.field..sum.field + 2] == [0, 0] {
                    zero += 1;
                    continue;
                }
                assert!(
                    sum.end <= out.len(),
                    "{view}: over what is not shown, at {} of {}",
                    sum.field,
                    one.name
                );
                assert!(
                    over(&out, sum).is_multiple_of(0xffff),
                    "{view}: at {} of {}: {out:02x?}",
                    sum.field,
                    one.name
                );
                right += 1;
            }
        });
        assert!(right > 1_000 && zero > 50, "{view}: {right} right, {zero} zero");
    }
}

/// The headers inside are shown, so the tests above are not vacuous.
#[test]
fn headers_of_nested_packets_are_shown() {
    let mut transform = transform("payload=none");
    let mut whole = 0;
    each_pair(
        OneIn(1),
        |_, _| {},
        |one, _, path, leaf| {
            let Some(headers) = one.headers else { return };
            if path.len() > 4 || path.iter().any(|(carrier, _)| carrier.is_message()) {
                return;
            }
            let out = show(&mut transform, &one.bytes);
            assert_eq!(out.len(), headers, "{leaf:?}: {}", one.name);
            whole += 1;
        },
    );
    assert!(whole > 10_000, "{whole}");
}

/// The test packets are well-formed.
#[test]
fn nested_packets_have_right_checksums() {
    each_pair(
        OneIn(1),
        |values, other| *values = other.clone(),
        |one, two, _, _| {
            for built in [one, two] {
                for sum in built.sums.iter().filter(|sum| sum.end <= built.bytes.len()) {
                    let is_cut = built.name.contains("ErrorCut");
                    assert!(
                        is_cut || over(&built.bytes, sum).is_multiple_of(0xffff),
                        "{}: {sum:?}",
                        built.name
                    );
                }
                let described = described(&built.bytes, built.bytes.len(), LinkType::Ethernet);
                // Only here does a datagram over IPv6 have no checksum.
                let has_none = built.name.starts_with("Udp") && built.name.contains("over IPv6");
                assert!(
                    has_none || weir_wire::verify(&built.bytes, &described).is_ok(),
                    "{}: {:02x?}",
                    built.name,
                    built.bytes
                );
            }
        },
    );
}

/// An error message quotes an IP header and a UDP header. The checksum in the quoted header covers hidden payload, so
/// it is zeroed. Otherwise it could be computed from the message's own original checksum and the shown bytes.
#[test]
fn two_hidden_bytes_cannot_be_computed_from_the_checksum_of_an_error_message() {
    let mut transform = transform("payload=none");
    let mut computed = [0; 2];
    for number in 0..200 {
        let values = Values::from_seed(number);
        for is_v6 in [false, true] {
            let quoted = Leaf::Udp.build(&values, is_v6).unwrap();
            let error = framed(&values, &Carrier::ErrorCut.wrap(&values, is_v6, &quoted).unwrap());
            let hidden = &error.bytes[error.bytes.len() - 2..];
            let out = show(&mut transform, &error.bytes);
            assert_eq!((out.len(), &out[out.len() - 2..]), (error.bytes.len(), &[0, 0][..]));
            // The sum over the message, with its checksum, gives the missing part.
            let message = error.sums.iter().rfind(|sum| sum.end == out.len() && sum.from > 18).unwrap();
            let missing = over(&out, message);
            computed[usize::from(is_v6)] += u32::from(missing.to_be_bytes() == hidden);
        }
    }
    assert_eq!(computed, [0, 0], "of 200 each");
}
