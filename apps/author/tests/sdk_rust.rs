//! The SDKs agree with the contract, and the tests of the crate weir-guest pass.

use std::path::Path;
use std::process::Command;
use weir_abi::entry::{self, ENTRY_POINTS, EntryLocation, EntryPresence, EntryResult, EntryType, WorkLimit};
use weir_abi::host::{
    CallCost, CallPhase, HOST_FUNCTIONS, HostDefinition, HostType, RequiredRight, ResultValue,
};

/// The SDK's descriptor, compiled here too.
#[allow(dead_code, rustdoc::broken_intra_doc_links)]
#[path = "../../../guest/sdk-rust/src/descriptor.rs"]
mod guest;

/// The SDK's events of TCP streams, compiled here too.
#[allow(dead_code, rustdoc::broken_intra_doc_links)]
#[path = "../../../guest/sdk-rust/src/stream_event.rs"]
mod guest_stream;

macro_rules! same_fields {
    ($($field:ident)+) => {
        $(
            assert_eq!(
                std::mem::offset_of!(guest::Descriptor, $field),
                std::mem::offset_of!(weir_abi::Descriptor, $field),
                stringify!($field)
            );
        )+
        // Exhaustive patterns: a field missing from the list does not compile.
        let guest::Descriptor { $($field: _),+ } = guest::Descriptor::default();
        let weir_abi::Descriptor { $($field: _),+ } = weir_abi::Descriptor::default();
    };
}

macro_rules! same_values {
    ($guest:path, $abi:path: $($name:ident)+) => {{
        use $guest as ours;
        use $abi as theirs;
        $(assert_eq!(ours::$name, theirs::$name, stringify!($name));)+
    }};
}

#[test]
fn the_sdks_descriptor_equals_the_contracts() {
    assert_eq!(size_of::<guest::Descriptor>(), weir_abi::DESCRIPTOR_BYTES);
    same_fields!(ts_ns data cap_len wire_len flags flow_hash l3_offset l4_offset payload_offset ether_type payload_len src_port
        dst_port ip_proto tcp_flags ttl tos vlan_tci interface link_type vlan_count mpls_count number inner_flow_hash stream annotation inner_offset tunnel tunnel_count
        inner_flags inner_l4_offset inner_payload_offset inner_payload_len inner_src_port inner_dst_port inner_ip_proto inner_tcp_flags inner_ttl inner_tos spare);
    same_values!(guest::flag, weir_abi::flag: IPV4 IPV6 TCP UDP ICMP L4 FRAGMENT LATER_FRAGMENT VLAN MPLS PPPOE CUT MALFORMED OPTIONS);
    same_values!(guest::tunnel, weir_abi::tunnel: NONE IP_IN_IP MPLS_IN_IP GRE VXLAN GENEVE GTP_U TEREDO);
}

#[test]
fn the_sdks_stream_event_equals_the_contracts() {
    use guest_stream::{StreamEventFields as Ours, StreamReply};
    use std::mem::offset_of;
    use weir_abi::stream::TcpStreamEvent as Theirs;
    macro_rules! same_places {
        ($($name:ident)+) => {
            $(assert_eq!(offset_of!(Ours, $name), offset_of!(Theirs, $name), stringify!($name));)+
        };
    }
    assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
    same_places!(ts_ns data len missing stream flow_hash offset first_ns client server client_port server_port kind direction
        cause state tunnel ip_version vlan_tci spare);
    same_values!(guest_stream::kind, weir_abi::stream::kind: OPEN BYTES GAP FIN CONFLICT END);
    same_values!(guest_stream::cause, weir_abi::stream::cause: FIN RST TIMEOUT EVICTED STOP REUSED);
    same_values!(guest_stream::state, weir_abi::stream::state: SYN SYN_ACK TWO_SIDED);
    let replies = [StreamReply::DROP, StreamReply::SKIP, StreamReply::IGNORE];
    let numbers =
        [weir_abi::stream::reply::DROP, weir_abi::stream::reply::SKIP, weir_abi::stream::reply::IGNORE];
    assert_eq!(replies.map(i32::from), numbers);
    let c = include_str!("../../../guest/sdk-c/weir.h");
    for (name, number) in [
        ("STREAM_OPEN", i32::from(weir_abi::stream::kind::OPEN)),
        ("STREAM_END", weir_abi::stream::kind::END.into()),
        ("END_REUSED", weir_abi::stream::cause::REUSED.into()),
        ("STREAM_TWO_SIDED", weir_abi::stream::state::TWO_SIDED.into()),
        ("STREAM_IGNORE", weir_abi::stream::reply::IGNORE),
    ] {
        assert!(c.contains(&format!("WEIR_{name} = {number},")), "weir.h: {name}");
    }
}

#[test]
fn limits_and_codes_equal_the_contracts() {
    let lib = include_str!("../../../guest/sdk-rust/src/lib.rs");
    let number = |text: &str| -> u64 {
        let plain = |text: &str| text.trim().replace('_', "").parse::<u64>().unwrap();
        match text.split_once("<<") {
            Some((value, places)) => plain(value) << plain(places),
            None => text.split('*').map(plain).product(),
        }
    };
    let constants = |source: &str| -> Vec<(String, u64)> {
        let inside = source.split("pub mod limit {").nth(1).unwrap().split("\n}").next().unwrap();
        let declared =
            inside.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": "));
        declared
            .map(|(name, rest)| {
                (name.to_owned(), number(rest.split(" = ").nth(1).unwrap().trim_end_matches(';')))
            })
            .collect()
    };
    let mut contract = constants(include_str!("../../../abi/src/lib.rs"));
    contract.insert(0, ("BATCH_PACKETS".to_owned(), weir_abi::BATCH_PACKETS as u64));
    assert_eq!(constants(lib), contract);
    let heap = include_str!("../../../guest/sdk-rust/src/heap.rs").replace('_', "").to_lowercase();
    assert!(heap.contains(&format!("const privatemax: usize = {:#x};", weir_abi::PRIVATE_MAX)));
    assert!(lib.contains(&format!("pub const ABI_VERSION: u32 = {};", weir_abi::ABI_VERSION)));

    let host = include_str!("../../../guest/sdk-rust/src/host.rs");
    for (value, name) in [
        (weir_abi::code::FULL, "Full"),
        (weir_abi::code::RANGE, "Range"),
        (weir_abi::code::DENIED, "Denied"),
        (weir_abi::code::WHEN, "When"),
        (weir_abi::code::UNKNOWN, "Unknown"),
        (weir_abi::code::FORGED, "Forged"),
    ] {
        assert!(host.contains(&format!("{value} => Error::{name},")), "{name} is {value}");
    }
}

#[test]
fn the_numbers_of_cryptographic_requests_equal_the_contracts() {
    use weir_abi::crypto::{self, aead, aes, hkdf, hmac, key};
    let c = include_str!("../../../guest/sdk-c/weir.h");
    let rust = include_str!("../../../guest/sdk-rust/src/crypto.rs");
    for (name, value) in [
        ("HMAC_SHA256", hmac::SHA256),
        ("HKDF_EXTRACT_SHA256", hkdf::EXTRACT_SHA256),
        ("HKDF_EXPAND_SHA256", hkdf::EXPAND_SHA256),
        ("HKDF_STEP_BYTES", hkdf::STEP_BYTES),
        ("AEAD_AES128_GCM", aead::AES128_GCM),
        ("AES128", aes::AES128),
    ] {
        assert!(c.contains(&format!("WEIR_{name} = {value},")), "{name}");
        assert!(
            ["u32", "usize"].iter().any(|ty| rust.contains(&format!("const {name}: {ty} = {value};"))),
            "{name}"
        );
    }
    assert!(c.contains(&format!("WEIR_KEY_BYTES = {},", key::BYTES)));
    assert!(c.contains(&format!("WEIR_FORGED = {},", weir_abi::code::FORGED)));
    assert_eq!((crypto::BYTES, hkdf::OUTPUT_BYTES), (64 * 1024, 255 * 32));
    // The fields of the request, in their order.
    let fields: Vec<&str> = include_str!("../../../abi/src/crypto.rs")
        .split("pub struct CryptoRequest {")
        .nth(1)
        .unwrap()
        .split("\n}")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next())
        .collect();
    assert_eq!(fields.len(), crypto::REQUEST_BYTES / 4);
    let body =
        |source: &'static str, begin: &str| source.split(begin).nth(1).unwrap().split("\n}").next().unwrap();
    let in_c: Vec<&str> = body(c, "struct weir_crypto {")
        .lines()
        .filter_map(|line| line.split(';').next()?.split([' ', '*']).next_back())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(in_c, fields);
    let in_rust: Vec<&str> = body(rust, "struct CryptoRequest {")
        .lines()
        .filter(|line| !line.trim().starts_with("//"))
        .filter_map(|line| line.trim().split_once(':').map(|(name, _)| name))
        .collect();
    assert_eq!(in_rust, fields);
}

/// The byte range of a generated block, between its begin and end lines.
fn block(file: &str, what: &str) -> std::ops::Range<usize> {
    let (begin, end) = (format!("{what}: begin"), format!("{what}: end"));
    let from = file.find(&begin).expect("a block");
    let from = from + file[from..].find('\n').expect("a line") + 1;
    let to = file.find(&end).expect("an end of the block");
    from..file[..to].rfind('\n').map_or(0, |line| line + 1)
}

fn c_declaration(known: &HostDefinition) -> String {
    let of = HostType::c_type;
    let parameters: Vec<String> =
        known.parameters.iter().map(|parameter| format!("{}{}", of(parameter.ty), parameter.name)).collect();
    let (name, result) = (known.name, of(known.result));
    format!("WEIR_IMPORT({name}) {result}weir_host_{name}({});\n", parameters.join(", "))
}

fn rust_signature(known: &HostDefinition, mark: &str) -> String {
    let of = |ty| match ty {
        HostType::U32 => "u32",
        HostType::I32 => "i32",
        HostType::U64 => "u64",
        HostType::I64 => "i64",
        HostType::F64 => "f64",
        HostType::Bytes => "*const u8",
        HostType::Buffer => "*mut u8",
        HostType::Descriptor => "*const crate::Descriptor",
        HostType::CryptoRequest => "*const crate::crypto::CryptoRequest",
    };
    let parameters = known.parameters.iter();
    let parameters: Vec<String> =
        parameters.map(|parameter| format!("{mark}{}: {}", parameter.name, of(parameter.ty))).collect();
    format!("fn {}({}) -> {}", known.name, parameters.join(", "), of(known.result))
}

/// The result of a host function in native builds, which have no host.
fn absent(known: &HostDefinition) -> String {
    match (known.result, known.value) {
        (HostType::F64, _) => "0.0".to_owned(),
        (HostType::U64, _) | (_, ResultValue::Integer | ResultValue::Length) => "0".to_owned(),
        _ if known.right == RequiredRight::Nothing => weir_abi::code::UNKNOWN.to_string(),
        _ => weir_abi::code::DENIED.to_string(),
    }
}

fn rust_declarations() -> String {
    let mut text = "#[cfg(target_arch = \"wasm32\")]\n#[link(wasm_import_module = \"weir\")]\n#[rustfmt::skip]\nextern \"C\" {\n".to_owned();
    for known in &HOST_FUNCTIONS {
        text += &format!("    pub(crate) {};\n", rust_signature(known, ""));
    }
    text += "}\n\n#[cfg(weir_native)]\n#[rustfmt::skip]\nextern \"C\" {\n";
    for known in &HOST_FUNCTIONS {
        let signature = rust_signature(known, "");
        text += &format!("    #[link_name = \"weir_host_{}\"] pub(crate) {signature};\n", known.name);
    }
    text += "}\n\n#[cfg(not(any(target_arch = \"wasm32\", weir_native)))]\n#[rustfmt::skip]\nmod absent {\n";
    for known in &HOST_FUNCTIONS {
        text += &format!("    pub(crate) unsafe {} {{ {} }}\n", rust_signature(known, "_"), absent(known));
    }
    text + "}\n"
}

fn reference() -> String {
    let mut text =
        "| function | does | when | right to | fuel | returns |\n|---|---|---|---|---|---|\n".to_owned();
    for known in &HOST_FUNCTIONS {
        let names: Vec<&str> = known.parameters.iter().map(|parameter| parameter.name).collect();
        let when = match known.phase {
            CallPhase::Any => "",
            CallPhase::Start => "at start",
            CallPhase::Running => "after the start",
            CallPhase::Packet => "for a packet of the call",
        };
        let right = match known.right {
            RequiredRight::Nothing => "",
            RequiredRight::Write => "write",
            RequiredRight::Send => "send",
            RequiredRight::Keep => "keep",
            RequiredRight::Memory => "change the reservation",
            RequiredRight::Service => "use the service",
            RequiredRight::Publish => "publish the table",
        };
        let fuel = match known.cost {
            CallCost { call, per_byte: 0 } => call.to_string(),
            CallCost { call, per_byte } => format!("{call} + {per_byte} a byte"),
        };
        text += &format!(
            "| `{}({})` | {} | {when} | {right} | {fuel} | {} |\n",
            known.name,
            names.join(", "),
            known.does,
            known.returns
        );
    }
    text
}

/// The entry points in the SDKs.
fn in_sdks() -> impl Iterator<Item = &'static entry::EntryDefinition> {
    ENTRY_POINTS.iter().filter(|known| known.name.starts_with(weir_abi::RESERVED_PREFIX))
}

fn c_signature(known: &entry::EntryDefinition) -> String {
    let of = |ty| match ty {
        EntryType::Descriptor | EntryType::Descriptors => "const struct weir_packet *",
        EntryType::StreamEvent => "const struct weir_stream *",
        EntryType::Mask | EntryType::Time | EntryType::Periods | EntryType::Bytes | EntryType::CallNumber => {
            "uint64_t "
        }
        EntryType::Service | EntryType::MessageLength => "uint32_t ",
        EntryType::Cause | EntryType::Status => "int32_t ",
    };
    let result = match known.result {
        EntryResult::Nothing => "void",
        EntryResult::Consent
        | EntryResult::Verdict
        | EntryResult::StreamReply
        | EntryResult::IsUnfinished => "int32_t",
        EntryResult::Drops => "uint64_t",
    };
    let parameters: Vec<String> =
        known.parameters.iter().map(|parameter| format!("{}{}", of(parameter.ty), parameter.name)).collect();
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    format!("{result} {}({parameters})", known.name)
}

/// The text of a definition without links and code marks.
fn plain(text: &str) -> String {
    let mut parts = text.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](#").and_then(|(words, rest)| Some((words, rest.split_once(')')?.1))) {
            Some((words, rest)) => out += &format!("{words}{rest}"),
            None => out += &format!("[{part}"),
        }
    }
    out.replace('`', "")
}

fn c_entry_points() -> String {
    let mut text = String::new();
    for known in in_sdks() {
        text += &format!(" *     {}\n *         {}\n", c_signature(known), plain(known.called));
        if !known.returns.is_empty() {
            text += &format!(" *         returns {}\n", plain(known.returns));
        }
    }
    text
}

/// The type and value of a parameter in Rust's `module!`; `None` if Rust has no such parameter.
fn rust_parameter(parameter: &entry::EntryParameter) -> Option<(&'static str, String)> {
    let name = parameter.name;
    Some(match parameter.ty {
        EntryType::Descriptor => ("&$crate::Packet<'_>", format!("&$crate::generated::packet({name})")),
        EntryType::StreamEvent => {
            ("&$crate::StreamEvent<'_>", format!("&$crate::generated::stream_event({name})"))
        }
        EntryType::Descriptors => ("$crate::Batch<'_>", format!("$crate::generated::batch({name}, mask)")),
        // Part of the batch.
        EntryType::Mask => return None,
        EntryType::Time | EntryType::Periods | EntryType::Bytes | EntryType::CallNumber => {
            ("u64", name.to_owned())
        }
        EntryType::Service | EntryType::MessageLength => ("u32", name.to_owned()),
        EntryType::Cause => ("$crate::Lost", format!("{name}.into()")),
        EntryType::Status => ("$crate::service::Status", format!("{name}.into()")),
    })
}

/// The result type of a function of `module!`; empty if it has none.
fn rust_result(known: &entry::EntryDefinition) -> &'static str {
    match known.result {
        EntryResult::Nothing => "",
        EntryResult::Consent | EntryResult::IsUnfinished => "bool",
        EntryResult::Verdict => "$crate::Verdict",
        EntryResult::StreamReply => "$crate::StreamReply",
        EntryResult::Drops => "$crate::Drops",
    }
}

fn arrow(result: &str) -> String {
    if result.is_empty() { String::new() } else { format!(" -> {result}") }
}

/// The readable type of a function of `module!`, with this state type.
fn rust_type(known: &entry::EntryDefinition, state: &str) -> String {
    let mut types = vec![format!("&mut {state}")];
    for parameter in known.parameters {
        let Some((ty, _)) = rust_parameter(parameter) else { continue };
        let is_named =
            !matches!(parameter.ty, EntryType::Descriptor | EntryType::Descriptors | EntryType::StreamEvent);
        types.push(if is_named { format!("{}: {ty}", parameter.name) } else { ty.to_owned() });
    }
    let text = format!("fn({}){}", types.join(", "), arrow(rust_result(known)));
    text.replace("$crate::service::", "").replace("$crate::", "").replace("<'_>", "")
}

fn rust_example() -> String {
    let mut text = String::new();
    for (place, known) in in_sdks().enumerate() {
        // A function for streams can stand beside one for packets.
        let is_second = known.presence == EntryPresence::ExactlyOne
            && known.entry != entry::EntryPoint::Stream
            && in_sdks().take(place).any(|other| other.presence == EntryPresence::ExactlyOne);
        let or = if is_second { "// or " } else { "" };
        let line = format!("///     {or}{0}: Counter::{0};", known.key);
        text += &format!("{line:<48}// {}\n", rust_type(known, "Counter"));
    }
    text
}

fn rust_entry_points() -> String {
    let mut text = String::new();
    for known in in_sdks() {
        let of = |ty| match ty {
            EntryType::Descriptor | EntryType::Descriptors => "*const $crate::Descriptor",
            EntryType::StreamEvent => "*const $crate::StreamEventFields",
            EntryType::Mask
            | EntryType::Time
            | EntryType::Periods
            | EntryType::Bytes
            | EntryType::CallNumber => "u64",
            EntryType::Service | EntryType::MessageLength => "u32",
            EntryType::Cause | EntryType::Status => "i32",
        };
        let raw: Vec<String> = known
            .parameters
            .iter()
            .map(|parameter| format!("{}: {}", parameter.name, of(parameter.ty)))
            .collect();
        let given: Vec<(&str, String)> = known.parameters.iter().filter_map(rust_parameter).collect();
        let types: String = given.iter().map(|(ty, _)| format!(", {ty}")).collect();
        let values: String = given.iter().map(|(_, value)| format!(", {value}")).collect();
        let call = format!("unsafe {{ function(WEIR_STATE.get(){values}) }}");
        let (result, call) = match known.result {
            EntryResult::Nothing => ("", call),
            EntryResult::Consent => ("i32", format!("i32::from(!{call})")),
            EntryResult::IsUnfinished => ("i32", format!("i32::from({call})")),
            EntryResult::Verdict => ("i32", format!("let verdict = {call};\n            verdict as i32")),
            EntryResult::StreamReply => ("i32", format!("let reply = {call};\n            reply.into()")),
            EntryResult::Drops => ("u64", format!("let drops = {call};\n            drops.into()")),
        };
        let (key, name, returns) = (known.key, known.name, arrow(rust_result(known)));
        text +=
            &format!("    (@ {key} $state:ty, $function:expr) => {{\n        #[export_name = \"{name}\"]\n");
        text += &format!("        extern \"C\" fn {name}({}){} {{\n", raw.join(", "), arrow(result));
        text += &format!("            let function: fn(&mut $state{types}){returns} = $function;\n");
        text += "            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments\n";
        text += "            // are those that weir gave.\n";
        text += &format!("            {call}\n        }}\n    }};\n");
    }
    let keys: Vec<&str> = in_sdks().map(|known| known.key).collect();
    text += "    (@ $name:ident $state:ty, $function:expr) => {\n        ::core::compile_error!(::core::concat!(\n";
    text += &format!(
        "            \"weir does not call `\", ::core::stringify!($name), \"`; it calls {}\"\n        ));\n    }};\n",
        keys.join(", ")
    );
    text
}

fn called_when() -> String {
    let mut text =
        "| function | in C | in Rust (`module!`) | called | returns | limits |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for known in &ENTRY_POINTS {
        let is_in_sdks = in_sdks().any(|other| other.entry == known.entry);
        let code = |text: String| if is_in_sdks { format!("`{text}`") } else { String::new() };
        let name = if known.location == EntryLocation::Export {
            format!("`{}`", known.name)
        } else {
            known.name.to_owned()
        };
        let limits = match known.work_limit {
            WorkLimit::Start => "`start`",
            WorkLimit::Packet if known.packets > 1 => "`packet`, `per-byte`, for each packet",
            WorkLimit::Packet => "`packet`, `per-byte`",
            WorkLimit::LostPacket => "`packet`",
            WorkLimit::Tick => "`tick`",
            WorkLimit::Stop => "`stop`",
        };
        text += &format!(
            "| {name} | {} | {} | {} | {} | {limits} |\n",
            code(c_signature(known)),
            code(format!("{}: {}", known.key, rust_type(known, "S"))),
            known.called,
            known.returns
        );
    }
    text
}

/// The table of semantics in the reference.
fn semantics() -> String {
    let mut text = "| semantic | kind | types | ECS | Zeek | eve.json | IPFIX | meaning |\n|---|---|---|---|---|---|---|---|\n".to_owned();
    for semantic in weir_admission::SEMANTICS {
        let code = |name: &str| if name.is_empty() { String::new() } else { format!("`{name}`") };
        let types: Vec<&str> = semantic.types.iter().map(|ty| ty.name()).collect();
        text += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |\n",
            semantic.name,
            semantic.kind.name(),
            types.join(", "),
            code(semantic.ecs),
            code(semantic.zeek),
            code(semantic.eve),
            semantic.ipfix.split(", ").map(code).collect::<Vec<_>>().join(", "),
            semantic.summary
        );
    }
    text
}

/// The table of a finding's fields in the reference.
fn finding_fields() -> String {
    let mut text = "| field | type | meaning |\n|---|---|---|\n".to_owned();
    for field in weir_abi::finding::FIELDS {
        text += &format!("| `{}` | {} | {} |\n", field.name, field.ty.name(), field.summary);
    }
    text
}

/// Checks generated blocks. `WEIR_WRITE=1 cargo test -p weir-author --test author sdk_rust` writes them.
fn generated(blocks: &[(&str, &str, String)]) {
    for (file, what, wanted) in blocks {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        let mut text = std::fs::read_to_string(&path).unwrap();
        let place = block(&text, what);
        if std::env::var_os("WEIR_WRITE").is_some() {
            text.replace_range(place.clone(), wanted);
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(
            text[block(&text, what)],
            *wanted,
            "{file}: set WEIR_WRITE=1 to write it from the definitions"
        );
    }
}

#[test]
fn sdks_and_reference_match_the_definitions_of_host_functions_and_entry_points() {
    let c: String = HOST_FUNCTIONS.iter().map(c_declaration).collect();
    generated(&[
        ("guest/sdk-c/weir.h", "host functions", c),
        ("guest/sdk-rust/src/host.rs", "host functions", rust_declarations()),
        ("docs/reference/MODULE.md", "host functions", reference()),
        ("guest/sdk-c/weir.h", "entry points", c_entry_points()),
        ("guest/sdk-rust/src/entry.rs", "entry points", rust_entry_points()),
        ("guest/sdk-rust/src/entry.rs", "functions of a module", rust_example()),
        ("docs/reference/MODULE.md", "entry points", called_when()),
        ("docs/reference/MODULE.md", "semantics", semantics()),
        ("docs/reference/MODULE.md", "fields of findings", finding_fields()),
    ]);
}

#[test]
fn the_rust_sdks_own_tests_pass() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/sdk-rust/Cargo.toml");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--offline", "--lib", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-rust"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!printed.contains(" 0 passed"), "{printed}");
}

/// Returns the paths of the files below a folder, in it.
fn files(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
    found.sort();
}

#[test]
fn modules_get_every_source_file_of_the_rust_sdk() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("m");
    weir_author::new(&dir, weir_author::ModuleLanguage::Rust).unwrap();
    let (mut sdk, mut written) = (Vec::new(), Vec::new());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/sdk-rust/src");
    files(&source, &source, &mut sdk);
    let generated = dir.join(".weir/weir-guest/src");
    files(&generated, &generated, &mut written);
    assert_eq!(written, sdk);
}
