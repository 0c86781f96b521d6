//! The VLAN tag (IEEE 802.1Q) that VLANEncap and EtherVLANEncap add: their arguments and handlers.

use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue, ElementArguments};
use weir_graph::engine::{GraphPacket, Reason, VLAN_TCI};

/// The bytes of a tag.
pub const TAG_BYTES: usize = 4;
/// The bytes of the two addresses, which are before a tag.
pub const ADDRESSES_BYTES: usize = 12;
/// The EtherType of a tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;

/// The highest VLAN ID, and its bits in the tag control information.
const ID_MAX: u16 = 0xfff;
/// The position of the priority.
const PRIORITY_SHIFT: u32 = 13;
const PRIORITY_MAX: u16 = 7;

/// The tag control information of new tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTag {
    tci: u16,
    /// The annotation VLAN_TCI of each packet counts instead.
    is_annotated: bool,
    /// The VLAN ID whose packets get no tag.
    native: Option<u16>,
}

/// The argument VLAN_TCI: a number, or ANNO.
struct TagArgument(Option<u16>);

impl ArgumentValue for TagArgument {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match text {
            "ANNO" => Ok(Self(None)),
            _ => u16::parse_argument(text, context).map(|tci| Self(Some(tci))),
        }
    }

    fn placeholder() -> Self {
        Self(None)
    }
}

/// The argument NATIVE_VLAN: a VLAN ID, or -1 for none.
pub struct NativeVlan(pub Option<u16>);

impl ArgumentValue for NativeVlan {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let id = i32::parse_argument(text, context)?;
        match u16::try_from(id) {
            Ok(id) if id <= ID_MAX => Ok(Self(Some(id))),
            Ok(_) => Err(ArgumentFault::OutOfRange(ID_MAX.into())),
            Err(_) if id == -1 => Ok(Self(None)),
            Err(_) => Err(ArgumentFault::OutOfRange(if id < 0 { -1 } else { ID_MAX.into() })),
        }
    }

    fn placeholder() -> Self {
        Self(None)
    }
}

impl std::fmt::Display for NativeVlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("-1"),
        }
    }
}

impl NewTag {
    /// Reads the arguments VLAN_TCI, VLAN_PCP, VLAN_ID and NATIVE_VLAN.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let given: Option<TagArgument> = args.either("VLAN_TCI").optional();
        let priority: u16 = args.either("VLAN_PCP").within(0..=PRIORITY_MAX).or(0);
        let id: u16 = args.keyword("VLAN_ID").within(0..=ID_MAX).or(0);
        let NativeVlan(native) = args.keyword("NATIVE_VLAN").or(NativeVlan(Some(0)));
        let is_annotated = matches!(given, Some(TagArgument(None)));
        let tci = given.and_then(|tag| tag.0).unwrap_or(id);
        Self { tci: tci | priority << PRIORITY_SHIFT, is_annotated, native }
    }

    /// Returns the tag control information for a packet; `None` for a packet of the native VLAN.
    pub fn of(&self, packet: &GraphPacket) -> Option<u16> {
        let tci = match (self.is_annotated, packet.annotation(VLAN_TCI)) {
            (true, [high, low]) => u16::from_be_bytes([*high, *low]),
            _ => self.tci,
        };
        (self.native != Some(tci & ID_MAX)).then_some(tci)
    }

    /// Returns the value of the handler `vlan_tci`.
    pub fn tci(&self) -> String {
        if self.is_annotated { "ANNO".to_owned() } else { self.tci.to_string() }
    }

    /// Returns the value of the handler `vlan_id`.
    pub fn id(&self) -> String {
        (self.tci & ID_MAX).to_string()
    }

    /// Returns the value of the handler `vlan_pcp`.
    pub fn priority(&self) -> String {
        (self.tci >> PRIORITY_SHIFT).to_string()
    }

    /// Returns the value of the handler `native_vlan`.
    pub fn native(&self) -> String {
        NativeVlan(self.native).to_string()
    }

    /// Handles `vlan_tci`.
    pub fn write_tci(&mut self, value: &str) -> Result<String, Reason> {
        let TagArgument(tci) = crate::values::read(value)?;
        self.is_annotated = tci.is_none();
        self.tci = tci.unwrap_or(self.tci);
        Ok(String::new())
    }

    /// Handles `vlan_id`.
    pub fn write_id(&mut self, value: &str) -> Result<String, Reason> {
        let id = number_up_to(value, ID_MAX)?;
        self.tci = self.tci & !ID_MAX | id;
        Ok(String::new())
    }

    /// Handles `vlan_pcp`.
    pub fn write_priority(&mut self, value: &str) -> Result<String, Reason> {
        let priority = number_up_to(value, PRIORITY_MAX)?;
        self.tci = self.tci & !(PRIORITY_MAX << PRIORITY_SHIFT) | priority << PRIORITY_SHIFT;
        Ok(String::new())
    }

    /// Handles `native_vlan`.
    pub fn write_native(&mut self, value: &str) -> Result<String, Reason> {
        NativeVlan(self.native) = crate::values::read(value)?;
        Ok(String::new())
    }
}

fn number_up_to(value: &str, most: u16) -> Result<u16, Reason> {
    match crate::values::read(value)? {
        number if number <= most => Ok(number),
        _ => Err(format!("at most {most}")),
    }
}

/// Makes the handlers of an element whose field `tag` has its [`NewTag`], after handlers of its own.
macro_rules! vlan_handlers {
    ($($own:tt)*) => {
        weir_graph::handlers! {
            $($own)*
            "vlan_tci": "the tag control information, or ANNO",
                read |this, _, _| Ok(this.tag.tci()),
                write |this, value, _| this.tag.write_tci(value);
            "vlan_id": "the VLAN ID", read |this, _, _| Ok(this.tag.id()), write |this, value, _| this.tag.write_id(value);
            "vlan_pcp": "the priority",
                read |this, _, _| Ok(this.tag.priority()),
                write |this, value, _| this.tag.write_priority(value);
            "native_vlan": "the VLAN ID whose packets get no tag",
                read |this, _, _| Ok(this.tag.native()),
                write |this, value, _| this.tag.write_native(value);
        }
    };
}
pub(super) use vlan_handlers;
