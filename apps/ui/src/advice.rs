//! Advice for refused requests: what would have to be granted, and the command for it.
//!
//! The node states refusals in words. [`RefusalText`] reads them, beside the code that writes them. Texts in a refusal come
//! from other parties, so a value becomes a part of a command only after it was read as a value of its kind. Words in
//! capitals stand for files that only their owner knows, as in the help of the commands.

use crate::modules::ModuleNames;
use serde::Serialize;
use weir_node::control::RefusalText;
use weir_trust::credential::{CredentialRefusalKind, DatedId};
use weir_trust::grant::{
    Grant, GrantCommand, GrantExcess, GrantOption, GrantPart, InterfaceName, ModuleHash, NodePattern,
    PacketView, Resource, SAME, UnixSecond,
};
use weir_trust::key::PublicKey;
use weir_units::{Name, shell_line};

/// The validity of an advised credential whose present one has ended, in seconds. Its issuer chooses another.
const NEW_VALIDITY_S: u64 = 30 * 86_400;

/// The options that a command can have several times.
const REPEATED: [&str; 4] = [
    GrantPart::Modules.grant_option(),
    GrantPart::Interfaces.grant_option(),
    GrantPart::Unmetered.grant_option(),
    GrantPart::Nodes.grant_option(),
];

/// A piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The advice in words.
    pub text: String,
    /// The command to copy; `None` if no command helps.
    pub command: Option<String>,
    /// True if the command makes a credential and states all other rights of the present one, too.
    pub states_rights: bool,
}

/// A refused request, as the ledger has it.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The reason.
    pub reason: &'a str,
    /// The kind of the request.
    pub request: &'a str,
    /// The node's name of the session.
    pub session: Option<&'a str>,
    /// The requester's key.
    pub who: Option<&'a str>,
    /// The identifiers of the requester's chain, root first.
    pub credentials: &'a [String],
    /// The rights that the last of these credentials states; `None` if they are not known.
    pub stated: Option<&'a Grant>,
    /// The names of the shipped modules.
    pub modules: &'a ModuleNames,
    /// The node's name in credentials.
    pub node: &'a str,
    /// The present time.
    pub now: UnixSecond,
}

impl Advice {
    fn text(text: impl Into<String>) -> Self {
        Self::with(text, None)
    }

    fn with(text: impl Into<String>, command: Option<String>) -> Self {
        Self { text: text.into(), command, states_rights: false }
    }
}

impl RefusedRequest<'_> {
    /// Returns the advice; none for a reason that is no lack of a right, as it states itself what to do.
    pub fn advice(&self) -> Vec<Advice> {
        let Some(refusal) = RefusalText::read(self.reason) else { return Vec::new() };
        match refusal {
            RefusalText::Excess(all) => self.excess(&all),
            RefusalText::Ceiling { resource, requested, given, ceiling_holder, left } => {
                self.ceiling(resource, &requested, &given, &ceiling_holder, left.as_deref())
            }
            RefusalText::Credential(kind) => vec![self.credential(&kind)],
            RefusalText::Signature => vec![Advice::with(
                "The module needs a signature of its own: sign it, and load it again.",
                line(&["weir", "sign", "MODULE"], &[("key", "KEY".to_owned())]),
            )],
            RefusalText::OperatorOnly => {
                vec![Advice::text("No credential can allow this: only the node's operator may do it.")]
            }
            RefusalText::NotOperator => vec![Advice::text(
                "The node's operator has to add the key to `operators` under [remote] in the configuration.",
            )],
            RefusalText::NotShared(share) => vec![Advice::with(
                "The owner of the session has to share this right.",
                self.session_command(("share", share.to_string())),
            )],
            RefusalText::NotOwner => {
                vec![Advice::text("Only the owner of the session can share it: ask the owner.")]
            }
            RefusalText::NotEarlierHolder => vec![Advice::text(
                "A session is shared only with those from whom its owner's credential comes. Others need a credential of their own: `weir delegate`.",
            )],
            RefusalText::NotGrantable => {
                vec![Advice::text("This credential cannot allow that part of the request: leave it out.")]
            }
            RefusalText::NoSession => vec![Advice::with(
                "The credential has no such session: list those that it has.",
                line(&["weir", "session", "list"], &[]),
            )],
        }
    }

    fn excess(&self, all: &[GrantExcess]) -> Vec<Advice> {
        let wanted: Vec<String> = all
            .iter()
            .map(|GrantExcess { part, requested, given }| {
                let [requested, given] = [requested, given].map(|text| self.modules.with_names(text));
                format!("{part}: {requested}, not only {given}")
            })
            .collect();
        let text = format!("A new credential has to allow {}.", wanted.join("; "));
        let options: Option<Vec<Vec<GrantOption>>> = all.iter().map(|it| self.options(it)).collect();
        vec![match options {
            Some(options) => self.new_credential(text, options.concat()),
            None => Advice::text(text),
        }]
    }

    /// Returns the options that allow what was asked for; `None` if no option of a command can.
    fn options(&self, GrantExcess { part, requested, given }: &GrantExcess) -> Option<Vec<GrantOption>> {
        // After the value there can be the part of the session to which it applies.
        let value = requested.split(", ").next().unwrap_or_default();
        let without_place = requested.split(", in channel `").next().unwrap_or_default();
        let option = |value: String| Some(vec![(part.grant_option(), value)]);
        match part {
            GrantPart::Profile => option(Name::new(value).ok()?.to_string()),
            // The name of the module comes first, and its hash and signers last.
            GrantPart::Modules => {
                let hashes = requested.split(", ").filter_map(|word| word.parse::<ModuleHash>().ok());
                option(hashes.last()?.to_string())
            }
            GrantPart::Unmetered => {
                let (_, signers) = requested.rsplit_once(", signed by ")?;
                // A holder cannot pass this right on.
                let is_first = self.credentials.len() <= 1;
                let signer: PublicKey = signers.split(", ").next()?.parse().ok()?;
                is_first.then(|| vec![(part.grant_option(), signer.to_string())])
            }
            GrantPart::Interfaces => {
                let names =
                    given.split(", ").chain([value]).filter_map(|it| it.parse::<InterfaceName>().ok());
                let names: Vec<_> = names.map(|name| (part.grant_option(), name.to_string())).collect();
                value.parse::<InterfaceName>().is_ok().then_some(names)
            }
            GrantPart::View => option(without_place.parse::<PacketView>().ok()?.to_string()),
            GrantPart::Writes => {
                let mut fields: Vec<&str> = requested.split(", ").collect();
                fields.extend(given.split(", ").filter(|field| *field != "none"));
                fields.iter().all(|field| Name::new(field).is_ok()).then_some(())?;
                option(fields.join(","))
            }
            GrantPart::Resource(resource) => {
                option(resource.definition().unit.typed(amount(*resource, requested, true)?))
            }
            GrantPart::Nodes => option(value.parse::<NodePattern>().ok()?.to_string()),
            GrantPart::Delegations => option(value.parse::<u32>().ok()?.to_string()),
            // A credential for another time has another expiry, and a filter of its own is only narrower.
            GrantPart::Expires | GrantPart::NotBefore => Some(Vec::new()),
            GrantPart::Traffic => None,
        }
    }

    fn ceiling(
        &self,
        resource: Resource,
        requested: &str,
        given: &str,
        ceiling_holder: &str,
        left: Option<&str>,
    ) -> Vec<Advice> {
        let definition = resource.definition();
        let title = definition.title;
        if ceiling_holder.parse::<PublicKey>().is_err() {
            return vec![Advice::text(format!(
                "The node's policy gives {given} of {title} to all credentials of this root together: its operator has to raise `{}` under [limit] of the root, or a session has to be closed.",
                definition.name
            ))];
        }
        if Some(ceiling_holder) != self.who {
            return vec![Advice::text(format!(
                "{ceiling_holder} has {given} of {title}, and the credential comes from there: that holder needs a wider credential, or another session below it has to be closed."
            ))];
        }
        let more = |text| amount(resource, text, true);
        let left = left.and_then(|left| amount(resource, left, false));
        let amounts = left.zip(more(requested)).zip(more(given));
        let Some(((left, requested), given)) = amounts else {
            return vec![Advice::text(format!("A new credential has to give more {title} than {given}."))];
        };
        // The present usage, and the request.
        let needed = given.saturating_sub(left).saturating_add(requested);
        let text = format!(
            "A new credential has to give {} of {title}, for all sessions together.",
            definition.unit.show(needed, &[])
        );
        let mut all = vec![self.new_credential(text, vec![(definition.name, definition.unit.typed(needed))])];
        let is_option = resource == Resource::Memory || definition.limit.is_some();
        if left > 0 {
            // A new session needs its other options, too, which the ledger does not have.
            let command = (self.request == "change" && is_option)
                .then(|| self.session_command((definition.name, definition.unit.typed(left))));
            let text = format!("Or the session asks for {} at most.", definition.unit.show(left, &[]));
            all.push(Advice::with(text, command.flatten()));
        }
        all
    }

    fn credential(&self, kind: &CredentialRefusalKind) -> Advice {
        let new = |text: &str| self.new_credential(text.to_owned(), Vec::new());
        match kind {
            CredentialRefusalKind::Expired => new("The credential has expired: its holder needs a new one."),
            CredentialRefusalKind::Revoked => {
                new("The credential was revoked, which cannot be undone: its holder needs a new one.")
            }
            CredentialRefusalKind::OtherNode => self.new_credential(
                "The credential is for other nodes: its holder needs one for this node.".to_owned(),
                vec![(GrantPart::Nodes.grant_option(), self.node.to_owned())],
            ),
            CredentialRefusalKind::NotYet => {
                Advice::text("The credential is not yet valid: wait until it is.")
            }
            CredentialRefusalKind::Limited(excess) => Advice::text(format!(
                "The node's policy lets this root grant no more than {} for {}: ask the node's operator.",
                excess.given, excess.part
            )),
            CredentialRefusalKind::Unusable => Advice::text(
                "This credential cannot be used: get a new copy of it, or a new one from the holder from whom it came.",
            ),
        }
    }

    /// Returns the advice to make a new credential with these options, and with the other rights of the present one where they
    /// are known.
    fn new_credential(&self, text: String, options: Vec<GrantOption>) -> Advice {
        let command = GrantCommand::of_block(self.credentials.len().saturating_sub(1));
        let stated = self.stated.and_then(|stated| stated.options(command));
        // A delegation passes on all of a part that it does not state, so an option for the part would only narrow it.
        if command == GrantCommand::Delegate
            && let (Some(stated), Some(grant)) = (&stated, self.stated)
            && options.iter().any(|(option, _)| !is_stated(option, stated, grant))
        {
            return Advice::text(format!(
                "{text} The credential from which it was delegated lacks this, too: its holder needs a wider one first."
            ));
        }
        let states_rights = stated.is_some();
        let command = self.credential_command(command, stated.unwrap_or_default(), options);
        Advice { text, states_rights: states_rights && command.is_some(), command }
    }

    /// Returns the command by which the giver of the requester's credential makes a new one: the root for a chain of one link,
    /// else the delegator. `options` are added to the stated ones, and replace those of which a command has only one.
    fn credential_command(
        &self,
        command: GrantCommand,
        mut stated: Vec<GrantOption>,
        options: Vec<GrantOption>,
    ) -> Option<String> {
        let to: PublicKey = self.who?.parse().ok()?;
        stated.retain(|(option, value)| {
            let is_replaced = |(new, new_value): &GrantOption| {
                new == option && (new_value == value || !REPEATED.contains(option))
            };
            !options.iter().any(is_replaced)
        });
        let has_rights = !stated.is_empty();
        let mut all: Vec<GrantOption> = vec![("key", "KEY".to_owned()), ("to", to.to_string())];
        if command == GrantCommand::Delegate {
            let expires = GrantPart::Expires.grant_option();
            let is_over = |(option, value): &GrantOption| {
                *option == expires && value.parse::<UnixSecond>().is_ok_and(|until| until <= self.now)
            };
            stated.retain(|it| !is_over(it));
            all.extend(stated.into_iter().chain(options));
            return self.line(&["weir", "delegate", "CREDENTIAL"], all);
        }
        let present = self.credentials.first().and_then(|text| text.parse::<DatedId>().ok()?.expires);
        let until = present
            .filter(|until| *until > self.now)
            .or_else(|| UnixSecond::new(self.now.number().saturating_add(NEW_VALIDITY_S)))?;
        let until = (GrantPart::Expires.grant_option(), until.to_string());
        stated.retain(|(option, _)| *option != until.0);
        all.push(until);
        self.node.parse::<NodePattern>().ok()?;
        if !has_rights {
            for (part, value) in [(GrantPart::Nodes, self.node), (GrantPart::Modules, "MODULE")] {
                if !options.iter().any(|(option, _)| *option == part.grant_option()) {
                    all.push((part.grant_option(), value.to_owned()));
                }
            }
        }
        all.extend(stated.into_iter().chain(options));
        self.line(&["weir", "grant"], all)
    }

    /// Returns a command in which shipped modules have names.
    fn line(&self, command: &[&str], mut options: Vec<GrantOption>) -> Option<String> {
        for (_, value) in
            options.iter_mut().filter(|(option, _)| *option == GrantPart::Modules.grant_option())
        {
            if let Some(name) = value.parse().ok().and_then(|hash| self.modules.get(&hash)) {
                name.clone_into(value);
            }
        }
        line(command, &options)
    }

    /// Returns a change of the session. Its owner can call it by the node's name, too.
    fn session_command(&self, option: GrantOption) -> Option<String> {
        let name = Name::new(self.session?).ok()?;
        line(&["weir", "session", "change", name.as_str()], &[option])
    }
}

/// Returns true if a delegation states the part that an option gives.
fn is_stated(option: &str, stated: &[GrantOption], grant: &Grant) -> bool {
    if option == GrantPart::Modules.grant_option() {
        return !grant.modules.is_any();
    }
    stated.iter().any(|(other, value)| *other == option && value != SAME)
}

/// Reads an amount of a refusal. An amount that the refusal has rounded is rounded further, up or down, to a whole unit: so
/// what is granted is enough, and what is asked for is not too much.
fn amount(resource: Resource, text: &str, up: bool) -> Option<u64> {
    let unit = resource.definition().unit;
    let rounded = || {
        let (whole, rest) = text.split_once('.')?;
        let whole = whole.parse::<u64>().ok()?.checked_add(u64::from(up))?;
        let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.read(&format!("{whole}{suffix}")).ok()
    };
    unit.read(text).ok().or_else(rounded)
}

/// Returns a command as a line for a shell. A value that begins with a dash is joined to its option, so that it is none.
fn line(command: &[&str], options: &[GrantOption]) -> Option<String> {
    let mut words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    for (option, value) in options {
        if value.is_empty() {
            words.push(format!("--{option}"));
        } else if value.starts_with('-') {
            words.push(format!("--{option}={value}"));
        } else {
            words.extend([format!("--{option}"), value.clone()]);
        }
    }
    shell_line(words)
}
