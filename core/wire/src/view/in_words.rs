//! Descriptions of views in words.

use super::{Addresses, Exposure, PacketView, Payload, ZeroedField};

impl PacketView {
    /// The visible part in words that can follow "sees": `headers only, IP addresses anonymised (prefixes stay),
    /// without MAC addresses`.
    pub fn in_words(&self) -> String {
        if *self == Self::ALL {
            return "everything".to_owned();
        }
        let mut words = match self.payload {
            Payload::All => "headers and payload".to_owned(),
            Payload::NONE => "headers only".to_owned(),
            Payload::First(1) => "headers and the first byte of payload".to_owned(),
            Payload::First(bytes) => format!("headers and the first {bytes} bytes of payload"),
        };
        if self.addresses == Addresses::Anonymised {
            words += ", IP addresses anonymised (prefixes stay)";
        }
        if self.addresses == Addresses::CryptoPan {
            words += ", IP addresses anonymised by Crypto-PAn (prefixes stay, and parts of addresses can be computed)";
        }
        let mut without = Vec::new();
        if self.addresses == Addresses::Zeroed {
            without.push("IP addresses");
        }
        if self.macs == Exposure::Zeroed {
            without.push("MAC addresses");
        }
        if self.ports == Exposure::Zeroed {
            without.push("ports");
        }
        without.extend(self.zeroed.iter().map(ZeroedField::words));
        if let Some((last, others)) = without.split_last() {
            words += ", without ";
            if !others.is_empty() {
                words += &others.join(", ");
                words += " and ";
            }
            words += last;
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_described_in_words() {
        let words = |text: &str| text.parse::<PacketView>().unwrap().in_words();
        assert_eq!(words("all"), "everything");
        assert_eq!(words("payload=none"), "headers only");
        assert_eq!(words("payload=1"), "headers and the first byte of payload");
        assert_eq!(
            words("payload=64,ttl=zeroed"),
            "headers and the first 64 bytes of payload, without times to live"
        );
        assert_eq!(
            words("addresses=anonymised"),
            "headers only, IP addresses anonymised (prefixes stay), without MAC addresses"
        );
        assert_eq!(
            words("addresses=crypto-pan,macs=visible"),
            "headers only, IP addresses anonymised by Crypto-PAn (prefixes stay, and parts of addresses can be computed)"
        );
        assert_eq!(
            words("addresses=zeroed,payload=all,ports=zeroed,vlan=zeroed"),
            "headers and payload, without IP addresses, MAC addresses, ports and VLAN tags"
        );
    }
}
