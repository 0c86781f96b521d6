//! Tests of the advice on the page: each printed command parses with the command line's own parser.

use crate::cli::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use std::process::Command as Process;
use weir_node::control::RequestRefusal;
use weir_trust::credential::CredentialRefusal;
use weir_trust::grant::{
    Ceilings, Grant, GrantCommand, GrantExcess, GrantPart, ModuleHash, ModuleSet, Resource, UnixSecond,
};
use weir_trust::key::Identity;
use weir_ui::advice::{Advice, RefusedRequest};
use weir_ui::modules::{ModuleNames, PageModule};
use weir_units::{Bytes, Name};

fn key(number: u8) -> String {
    Identity::from_seed(&[number; 32]).public().to_string()
}

/// The words that a shell reads in a command.
fn words(line: &str) -> Vec<String> {
    let script = format!("set -- {line}\nfor word; do printf '%s\\0' \"$word\"; done");
    let output = Process::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Reads a command by the command line's own parser.
fn parsed(line: &str) -> Command {
    let words = words(line);
    Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}")).command
}

/// The names of the shipped modules, as on the page.
fn shipped_names() -> ModuleNames {
    let pages: Vec<PageModule> = crate::cmd::ui::modules();
    pages.iter().collect()
}

/// The advice for a refusal of a requester with a chain of this length, whose rights are not known.
fn advice_at(reason: &str, request: &str, chain: usize) -> Vec<Advice> {
    advice_with(reason, request, chain, None)
}

/// The advice for a refusal of a requester with these rights.
fn advice_with(reason: &str, request: &str, chain: usize, stated: Option<&Grant>) -> Vec<Advice> {
    let ids: Vec<String> =
        vec!["weir-id:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@2031-01-01T00:00:00Z".to_owned(); chain];
    let who = key(1);
    let refused = RefusedRequest {
        reason,
        request,
        session: Some("study-1"),
        who: Some(&who),
        credentials: &ids,
        stated,
        modules: &shipped_names(),
        node: "ix-1.example",
        now: UnixSecond::new(1_800_000_000).unwrap(),
    };
    refused.advice()
}

fn commands(reason: &str, chain: usize) -> Vec<String> {
    advice_at(reason, "change", chain).into_iter().filter_map(|it| it.command).collect()
}

/// The requested and the granted value of each part, and true if an option can give it to the first holder and to a delegate.
fn values(part: GrantPart) -> (String, &'static str, [bool; 2]) {
    let of = |requested: &str, given| (requested.to_owned(), given, [true, true]);
    match part {
        GrantPart::Profile => of("lenient", "strict"),
        GrantPart::Modules => of(&format!("`x`, {}, signed by {}", "0f".repeat(32), key(2)), "none"),
        GrantPart::Traffic => ("packets that this filter rejects".to_owned(), "udp", [false, false]),
        GrantPart::Interfaces => of("eth0, to send into it through output channel `up`", "eth1, eth2"),
        GrantPart::View => of("payload=64, in channel `main`", "payload=none"),
        GrantPart::Writes => of("ttl, dscp", "none"),
        GrantPart::Unmetered => {
            (format!("`x`, {}, signed by {}", "0f".repeat(32), key(2)), "none", [true, false])
        }
        GrantPart::Resource(resource) => {
            let unit = resource.definition().unit;
            (unit.show(2_000_000, &[]), "0", [true, true])
        }
        GrantPart::Nodes => of("ix-1.example", "*.other"),
        GrantPart::NotBefore | GrantPart::Expires => of("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        GrantPart::Delegations => of("3", "2"),
    }
}

#[test]
fn every_part_of_a_grant_is_an_option_and_its_command_parses() {
    let cli = Cli::command();
    let has = |command: &str, option: &str| {
        let command = cli.find_subcommand(command).unwrap();
        command.get_arguments().any(|argument| argument.get_long() == Some(option))
    };
    for part in GrantPart::all() {
        let option = part.grant_option();
        assert!(has("grant", option), "{option}");
        assert_eq!(has("delegate", option), part != GrantPart::Unmetered, "{option}");
        let (requested, given, is_given) = values(part);
        let excess = GrantExcess { part, requested, given: given.to_owned() };
        let reason = RequestRefusal::Excess(vec![excess]).to_string();
        for (chain, is_given) in [(1, is_given[0]), (2, is_given[1])] {
            let commands = commands(&reason, chain);
            assert_eq!(commands.len(), usize::from(is_given), "{reason}: {commands:?}");
            for line in commands {
                match parsed(&line) {
                    Command::Grant(_) => assert_eq!(chain, 1, "{line}"),
                    Command::Delegate(_) => assert_eq!(chain, 2, "{line}"),
                    _ => panic!("{line}"),
                }
                let is_time = matches!(part, GrantPart::Expires | GrantPart::NotBefore);
                assert!(is_time || line.contains(&format!("--{option} ")), "{line}");
                // A new credential keeps the expiry of the present one, and allows no module that was not asked for.
                assert!(chain == 2 || line.contains("--until 2031-01-01T00:00:00Z"), "{line}");
                assert!(!line.contains("--any-module") && !line.contains("'*'"), "{line}");
            }
        }
    }
}

#[test]
fn a_ceiling_names_the_sum_that_the_credential_has_to_give() {
    let ceiling = |resource: Resource, holder: &str, left: Option<&str>, [requested, given]: [&str; 2]| {
        let refusal = RequestRefusal::CeilingExceeded {
            part: GrantPart::Resource(resource),
            requested: requested.to_owned(),
            given: given.to_owned(),
            ceiling_holder: holder.to_owned(),
            left: left.map(str::to_owned),
            advice: resource.definition().advice,
        };
        refusal.to_string()
    };
    let memory = ceiling(Resource::Memory, &key(1), Some("4 MiB"), ["20 MiB", "16 MiB"]);
    let lines = commands(&memory, 1);
    // 12 MiB are used, and 20 MiB more were asked for.
    assert!(lines[0].contains("--memory 32MiB"), "{lines:?}");
    assert_eq!(lines[1], "weir session change study-1 --memory 4MiB");
    assert_eq!(advice_at(&memory, "create", 1)[1].command, None);
    // Amounts that the refusal has rounded.
    let rounded = commands(&ceiling(Resource::Memory, &key(1), Some("1.9 MiB"), ["2.1 MiB", "16 MiB"]), 1);
    assert!(rounded[0].contains("--memory 18MiB"), "{rounded:?}");
    assert!(rounded[1].ends_with("--memory 1MiB"), "{rounded:?}");
    let cpu = commands(&ceiling(Resource::Cpu, &key(1), Some("5%"), ["10%", "10%"]), 2);
    assert!(cpu.len() == 1 && cpu[0].ends_with("--cpu 15%"), "{cpu:?}");
    for line in lines.iter().chain(&cpu) {
        parsed(line);
    }
    let policy = format!("all credentials of {} by this node's policy", key(0));
    for holder in [policy.as_str(), &key(3)] {
        let advice = advice_at(&ceiling(Resource::Memory, holder, None, ["20 MiB", "16 MiB"]), "change", 2);
        assert!(advice.len() == 1 && advice[0].command.is_none(), "{advice:?}");
    }
}

#[test]
fn other_refusals_have_advice_and_each_command_parses() {
    let (name, holder) = (Name::new("study").unwrap(), Identity::from_seed(&[1; 32]).public());
    let now = UnixSecond::default();
    let expired = CredentialRefusal::Expired { block: 0, until: now, now };
    let share = format!("follow={holder}");
    let not_shared =
        RequestRefusal::NotShared { session: name.clone(), share: Box::new(share.parse().unwrap()) };
    for (refusal, has_command) in [
        (RequestRefusal::OperatorOnly("change links"), false),
        (RequestRefusal::NotOperator, false),
        (RequestRefusal::NotOwner(name.clone()), false),
        (
            RequestRefusal::NotGrantable {
                session: name.clone(),
                what: "it would have priority 1".to_owned(),
            },
            false,
        ),
        (RequestRefusal::NoSession(name), true),
        (not_shared, true),
        (expired.into(), true),
        (CredentialRefusal::Forged.into(), false),
        (weir_trust::signature::SignatureError::TooMany(9).into(), true),
    ] {
        let advice = advice_at(&refusal.to_string(), "load", 1);
        assert_eq!((advice.len(), advice[0].command.is_some()), (1, has_command), "{refusal}");
        advice.iter().filter_map(|it| it.command.as_deref()).for_each(|line| _ = parsed(line));
    }
    assert_eq!(advice_at("the node is out of memory", "create", 1), []);
}

#[test]
fn a_hostile_name_changes_no_command() {
    let real = "0f".repeat(32);
    for name in [
        "$(reboot)",
        "`reboot`",
        "'; reboot; '",
        "--any-module",
        "x, given is 1; memory: asked for 1 TiB, given is 0 B",
        "x`, weir-key:evil; modules without a meter: asked for y, signed by weir-key:evil, given is z",
        "a\nreboot",
    ] {
        let requested = format!("`{}`, {real}, unsigned", weir_units::escaped(name));
        let excess = GrantExcess { part: GrantPart::Modules, requested, given: "none".to_owned() };
        let reason = RequestRefusal::Excess(vec![excess]).to_string();
        for line in commands(&reason, 1) {
            let words = words(&line);
            let at = words.iter().position(|word| word == "--module").unwrap();
            assert_eq!((words[at + 1].as_str(), words.len()), (real.as_str(), 12), "{line}");
            parsed(&line);
        }
    }
    // Values that are read from the ledger itself.
    let excess =
        GrantExcess { part: GrantPart::View, requested: "$(reboot)".to_owned(), given: String::new() };
    let reason = RequestRefusal::Excess(vec![excess]).to_string();
    assert_eq!(commands(&reason, 1), Vec::<String>::new());
    let refused = |who: &str, session: &str, node: &str| {
        let refused = RefusedRequest {
            reason: "expired: block 0 held until now",
            request: "load",
            session: Some(session),
            who: Some(who),
            credentials: &[],
            stated: None,
            modules: &shipped_names(),
            node,
            now: UnixSecond::default(),
        };
        refused.advice()[0].command.clone()
    };
    assert!(refused(&key(1), "s", "ix-1.example").is_some());
    assert_eq!(refused("$(reboot)", "s", "ix-1.example"), None);
    assert_eq!(refused(&key(1), "s", "$(reboot)"), None);
}

/// A grant of several modules, a filter that a shell would run, and stated amounts.
fn present_grant(rtt: ModuleHash) -> Grant {
    let other = ModuleHash::of_bytes(b"another module");
    Grant {
        modules: ModuleSet { hashes: [rtt, other].into(), signers: [key(3).parse().unwrap()].into() }.into(),
        filters: ["udp port 53 or tcp port $(reboot)".parse().unwrap()].into(),
        interfaces: Some(["eth0", "eth1"].map(|name| name.parse().unwrap()).into()),
        view: Some("payload=64".parse().unwrap()),
        writes: Some([Name::new("ttl").unwrap()].into()),
        ceilings: Ceilings { memory: Some(Bytes(16 << 20)), sessions: Some(3), ..Ceilings::NONE },
        nodes: Some(
            ["ix-1.example".parse().unwrap(), "*.lab.example".parse().unwrap()].into_iter().collect(),
        ),
        expires: UnixSecond::new(1_924_992_000),
        delegations: Some(1),
        ..Grant::default()
    }
}

/// The grant that a command states.
fn granted(line: &str) -> Grant {
    match parsed(line) {
        Command::Grant(args) => super::grant_of(&args).unwrap(),
        Command::Delegate(args) => {
            // The parts that are left out are those of the delegator, who has all rights here.
            super::delegated_grant(&args, &Grant::default()).unwrap()
        }
        _ => panic!("{line}"),
    }
}

#[test]
fn a_command_for_a_new_credential_keeps_the_rights_of_the_present_one() {
    let rtt = ModuleHash::of_bytes(crate::shipped::find("rtt").unwrap().wasm);
    let present = present_grant(rtt);
    let excess = |part, requested: &str, given: &str| {
        RequestRefusal::Excess(vec![GrantExcess { part, requested: requested.into(), given: given.into() }])
            .to_string()
    };
    let module = ModuleHash::of_bytes(b"a third module");
    let with_module = ModuleSet {
        hashes: [rtt, ModuleHash::of_bytes(b"another module"), module].into(),
        signers: [key(3).parse().unwrap()].into(),
    };
    let memory = Ceilings { memory: Some(Bytes(24 << 20)), ..present.ceilings };
    for (part, requested, given, wanted) in [
        (
            GrantPart::Resource(Resource::Memory),
            "24 MiB".to_owned(),
            "16 MiB",
            Grant { ceilings: memory, ..present.clone() },
        ),
        (
            GrantPart::Modules,
            format!("`x`, {module}, unsigned"),
            "…",
            Grant { modules: with_module.into(), ..present.clone() },
        ),
        (
            GrantPart::Interfaces,
            "eth2".to_owned(),
            "eth0, eth1",
            Grant {
                interfaces: Some(["eth0", "eth1", "eth2"].map(|name| name.parse().unwrap()).into()),
                ..present.clone()
            },
        ),
        (
            GrantPart::View,
            "payload=128".to_owned(),
            "payload=64",
            Grant { view: Some("payload=128".parse().unwrap()), ..present.clone() },
        ),
        (GrantPart::Delegations, "2".to_owned(), "1", Grant { delegations: Some(2), ..present.clone() }),
    ] {
        for chain in [1, 2] {
            let reason = excess(part, &requested, given);
            let advice = &advice_with(&reason, "load", chain, Some(&present))[0];
            let line = advice.command.as_deref().unwrap();
            // The present credential expires in 2031, and so does the new one.
            let wanted = Grant { expires: UnixSecond::new(1_924_992_000), ..wanted.clone() };
            assert_eq!(granted(line), wanted, "{line}");
            assert!(advice.states_rights && !line.contains(" MODULE"), "{line}");
            // A shipped module has its name, and another one its hash.
            assert!(line.contains("--module rtt ") && !line.contains(&rtt.to_string()), "{line}");
        }
    }
    // A right that the delegation passes on whole is missing above it.
    let reason = excess(GrantPart::Modules, &format!("`x`, {module}, unsigned"), "…");
    let any = Grant { modules: Default::default(), ..present };
    let advice = &advice_with(&reason, "load", 2, Some(&any))[0];
    assert!(advice.command.is_none() && advice.text.contains("from which it was delegated"), "{advice:?}");
}

#[test]
fn the_options_of_a_grant_are_those_of_the_commands() {
    let rtt = ModuleHash::of_bytes(crate::shipped::find("rtt").unwrap().wasm);
    for grant in [Grant { expires: UnixSecond::new(1_924_992_000), ..Grant::default() }, present_grant(rtt)] {
        for (command, words) in [
            (GrantCommand::Grant, "weir grant --key KEY --to "),
            (GrantCommand::Delegate, "weir delegate CREDENTIAL --key KEY --to "),
        ] {
            let options =
                grant.options(command).unwrap().into_iter().map(|(option, value)| match value.as_str() {
                    "" => format!(" --{option}"),
                    value => format!(" '--{option}={value}'"),
                });
            let line = format!("{words}{}{}", key(1), options.collect::<String>());
            let view = granted(&line).view.filter(|view| view.to_string() != "all");
            assert_eq!(Grant { view, ..granted(&line) }, grant, "{line}");
        }
    }
}

#[test]
fn advice_and_commands_name_shipped_modules() {
    let rtt = ModuleHash::of_bytes(crate::shipped::find("rtt").unwrap().wasm);
    let other = ModuleHash::of_bytes(b"another module");
    let excess = GrantExcess {
        part: GrantPart::Modules,
        requested: format!("`mine`, {rtt}, unsigned"),
        given: other.to_string(),
    };
    let advice = &advice_at(&RequestRefusal::Excess(vec![excess]).to_string(), "load", 1)[0];
    assert_eq!(
        advice.text,
        format!("A new credential has to allow modules: `mine`, rtt, unsigned, not only {other}.")
    );
    assert!(advice.command.as_deref().unwrap().ends_with("--module rtt"), "{advice:?}");
}
