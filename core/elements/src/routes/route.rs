//! A route: a prefix, a gateway and an output, as text.

use core::net::Ipv4Addr;
use weir_graph::arguments::Ipv4Prefix;
use weir_graph::engine::Reason;

/// The destinations of a route. Keys are ordered so that a prefix comes before all prefixes within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// The address, in host byte order, without bits outside the mask.
    pub prefix: u32,
    /// The mask.
    pub mask: u32,
}

impl RouteKey {
    /// The key of the default route.
    pub const DEFAULT: RouteKey = RouteKey { prefix: 0, mask: 0 };

    /// Returns the key of the prefix of a length that contains an address.
    pub fn of(address: u32, length: u32) -> Self {
        let mask = mask_of(length);
        Self { prefix: address & mask, mask }
    }

    /// Returns true if the mask is that of a prefix.
    pub fn is_prefix(self) -> bool {
        self.mask.leading_ones() == self.mask.count_ones()
    }

    /// Returns the length of the prefix.
    pub fn length(self) -> u32 {
        self.mask.leading_ones()
    }

    /// Returns the last address of the prefix.
    pub fn last(self) -> u32 {
        self.prefix | !self.mask
    }
}

impl std::fmt::Display for RouteKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = Ipv4Addr::from_bits(self.prefix);
        if self.is_prefix() {
            write!(f, "{address}/{}", self.length())
        } else {
            write!(f, "{address}/{}", Ipv4Addr::from_bits(self.mask))
        }
    }
}

/// Returns the mask of a prefix length of at most 32.
pub fn mask_of(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// The way of packets with a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteTarget {
    /// The next hop; 0.0.0.0 if the destination itself is the next hop.
    pub gateway: Ipv4Addr,
    /// The output.
    pub output: u16,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRoute {
    /// The destinations.
    pub key: RouteKey,
    /// The way.
    pub target: RouteTarget,
}

/// A route as text, whose output is missing in some commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedRoute {
    pub key: RouteKey,
    pub gateway: Ipv4Addr,
    pub output: Option<i32>,
}

impl ParsedRoute {
    /// Reads `ADDRESS/MASK [GATEWAY] OUTPUT`. The gateway `-` is none.
    ///
    /// # Errors
    ///
    /// Fails with the expected form.
    pub fn read(text: &str, needs_output: bool) -> Result<Self, Reason> {
        let form = if needs_output { "GATEWAY] OUTPUT" } else { "GATEWAY OUTPUT]" };
        let wrong = || format!("expected 'ADDR/MASK [{form}'");
        let words: Vec<&str> = text.split_whitespace().collect();
        let (prefix, rest) = words.split_first().ok_or_else(wrong)?;
        let prefix: Ipv4Prefix = crate::values::read(prefix).map_err(|_| wrong())?;
        let mask = prefix.mask.to_bits();
        let key = RouteKey { prefix: prefix.address.to_bits() & mask, mask };
        let gateway_of = |text: &str| match text {
            "-" => Some(Ipv4Addr::UNSPECIFIED),
            _ => crate::values::read(text).ok(),
        };
        let (gateway, output) = match rest {
            [] if !needs_output => (Ipv4Addr::UNSPECIFIED, None),
            [gateway] if !needs_output && gateway_of(gateway).is_some() => {
                (gateway_of(gateway).unwrap_or(Ipv4Addr::UNSPECIFIED), None)
            }
            [output] => (Ipv4Addr::UNSPECIFIED, Some(*output)),
            [gateway, output] => (gateway_of(gateway).ok_or_else(wrong)?, Some(*output)),
            _ => return Err(wrong()),
        };
        let output: Option<i32> = match output {
            Some(output) => Some(crate::values::read(output).map_err(|_| wrong())?),
            None => None,
        };
        Ok(Self { key, gateway, output: output.filter(|output| needs_output || *output != -1) })
    }

    /// Returns the route with an output below `outputs`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such output.
    pub fn with_output(self, outputs: usize) -> Result<IpRoute, Reason> {
        let output = self.output.and_then(|output| u16::try_from(output).ok());
        let output = output.filter(|output| usize::from(*output) < outputs);
        let output = output.ok_or_else(|| format!("bad OUTPUT: there are {outputs} outputs, from 0 on"))?;
        Ok(IpRoute { key: self.key, target: RouteTarget { gateway: self.gateway, output } })
    }
}

impl IpRoute {
    /// Returns the route as a line of a table, in columns.
    pub fn line(&self) -> String {
        let key = self.key.to_string();
        let gateway = self.gateway();
        let gap = |text: &str, width: usize| if text.len() < width { "\t\t" } else { "\t" };
        format!("{key}{}{gateway}{}{}\n", gap(&key, 16), gap(&gateway, 8), self.target.output)
    }

    fn gateway(&self) -> String {
        match self.target.gateway {
            Ipv4Addr::UNSPECIFIED => "-".to_owned(),
            gateway => gateway.to_string(),
        }
    }
}

impl std::fmt::Display for IpRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.key, self.gateway(), self.target.output)
    }
}
