//! The host functions of a native build, in C, made from weir's tables.

use std::fmt::Write;
use weir_abi::STREAMS_BASE;
use weir_abi::entry::ENTRY_POINTS;
use weir_abi::host::{HOST_FUNCTIONS, HostDefinition, HostFunction, HostType};

/// Returns true for a function that reads parameters. The player has their values from the script's beginning: in the sandbox
/// most such calls are replaced by constants.
pub(super) const fn reads_parameter(function: HostFunction) -> bool {
    matches!(function, HostFunction::ParamInt | HostFunction::ParamFloat | HostFunction::ParamBytes)
}

/// Returns the text of `host_calls.h`, which the player includes.
pub(super) fn host_calls() -> String {
    let mut text = String::from("/* Made from weir's tables of host functions and entry points. */\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "#define WEIR_STREAMS_BASE {STREAMS_BASE:#x}u\n\nenum {{");
    for known in &ENTRY_POINTS {
        let _ = writeln!(
            text,
            "    ENTRY_{} = {},",
            known.key.to_uppercase().replace(' ', "_"),
            known.entry as u8
        );
    }
    text.push_str(
        "};\n
void player_begin(uint8_t function);
void player_number(uint64_t number);
void player_bytes(const void *bytes, uint32_t len);
void player_touch(const void *bytes, uint32_t len);
void player_descriptor(const void *descriptor);
void player_strings(uint32_t stream, const void *row, uint32_t len);
uint64_t player_end(void *to, uint64_t room);
void player_keep(const void *descriptor, int32_t handle);
void player_release(int32_t handle);
",
    );
    for known in HOST_FUNCTIONS.iter().filter(|known| !reads_parameter(known.function)) {
        text.push_str(&stub(known));
    }
    text
}

/// Returns the definition of a function `weir_host_NAME`, which writes its arguments to the output, and takes its answer from
/// the script.
fn stub(known: &HostDefinition) -> String {
    let parameters: Vec<String> = known
        .parameters
        .iter()
        .map(|parameter| format!("{}{}", parameter.ty.c_type(), parameter.name))
        .collect();
    let result = known.result.c_type();
    let mut text = format!(
        "\n{result}weir_host_{}({})\n{{\n    player_begin({});\n",
        known.name,
        parameters.join(", "),
        known.function as u8
    );
    let mut destination = ("NULL".to_owned(), "0".to_owned());
    for (i, parameter) in known.parameters.iter().enumerate() {
        let name = parameter.name;
        let next = known.parameters.get(i + 1).map(|next| next.name);
        let _ = match parameter.ty {
            HostType::U32 | HostType::I32 | HostType::U64 | HostType::I64 | HostType::F64 => {
                writeln!(text, "    player_number((uint64_t){name});")
            }
            HostType::Bytes => writeln!(text, "    player_bytes({name}, {});", next.unwrap_or("0")),
            HostType::Descriptor => writeln!(text, "    player_descriptor({name});"),
            HostType::Buffer => {
                destination = (name.to_owned(), next.unwrap_or("UINT32_MAX").to_owned());
                Ok(())
            }
            HostType::CryptoRequest => {
                destination = (format!("{name}->output"), format!("{name}->output_len"));
                ["key", "nonce", "aad", "input"].iter().try_for_each(|block| {
                    writeln!(text, "    player_touch({name}->{block}, {name}->{block}_len);")
                })
            }
        };
    }
    if known.function == HostFunction::Emit {
        text.push_str("    player_strings(stream, row, len);\n");
    }
    let (to, room) = destination;
    let _ = writeln!(text, "    const uint64_t result = player_end({to}, {room});");
    match known.function {
        HostFunction::Keep => text.push_str("    player_keep(descriptor, (int32_t)result);\n"),
        HostFunction::Release => text.push_str("    player_release(handle);\n"),
        _ => {}
    }
    let _ = writeln!(text, "    return ({})result;\n}}", result.trim_end());
    text
}
