//! Messages about an association, which are encrypted in sealed datagrams.

use super::parts::PART_BYTES_MAX;

const KEEPALIVE: u8 = 0;
const CLOSED: u8 = 1;
const CREDENTIALS: u8 = 2;
const PROBE: u8 = 3;
const ANSWER: u8 = 4;

/// The index of a credentials message without a part.
const NO_PART: u8 = 0xff;

/// The reason of a [`ControlMessage::Closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseCode {
    /// The association is not needed any more.
    Done,
    /// The peer's credentials were refused.
    Refused,
}

/// A message about an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// Nothing: keeps the state of address translators on the path.
    Keepalive,
    /// The association is over.
    Closed(CloseCode),
    /// A part of the sender's credentials, and the parts of the receiver's that the sender has.
    Credentials(CredentialsMessage),
    /// A message of a stated length, or a challenge to an address, that the receiver answers.
    Probe { token: u64, padding: usize },
    /// The answer to a probe, with the length of the datagram that the probe arrived in.
    Answer { token: u64, bytes: u16 },
}

/// The content of a [`ControlMessage::Credentials`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CredentialsMessage {
    /// True if the receiver should answer.
    pub(super) asks: bool,
    /// The set of parts of the receiver's credentials that the sender has, a bit each.
    pub(super) received: u16,
    /// The length of the sender's credentials in bytes.
    pub(super) length: u16,
    /// The index of a part of the sender's credentials, and its bytes.
    pub(super) part: Option<(u8, Vec<u8>)>,
}

impl ControlMessage {
    /// Reads a decrypted message. `None` for other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match (*kind, rest) {
            (KEEPALIVE, []) => Some(Self::Keepalive),
            (CLOSED, [0]) => Some(Self::Closed(CloseCode::Done)),
            (CLOSED, [1]) => Some(Self::Closed(CloseCode::Refused)),
            (CREDENTIALS, [asks @ (0 | 1), a, b, c, d, index, data @ ..]) => {
                let part = match (*index, data) {
                    (NO_PART, []) => None,
                    (NO_PART, _) => return None,
                    (index, data) => (data.len() <= PART_BYTES_MAX).then(|| Some((index, data.to_vec())))?,
                };
                let (received, length) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                Some(Self::Credentials(CredentialsMessage { asks: *asks == 1, received, length, part }))
            }
            (PROBE, rest) => {
                let (token, padding) = rest.split_first_chunk()?;
                let is_zero = padding.iter().all(|byte| *byte == 0);
                is_zero.then_some(Self::Probe { token: u64::from_be_bytes(*token), padding: padding.len() })
            }
            (ANSWER, rest) => {
                let (token, bytes) = rest.split_first_chunk()?;
                let bytes = u16::from_be_bytes(bytes.try_into().ok()?);
                Some(Self::Answer { token: u64::from_be_bytes(*token), bytes })
            }
            _ => None,
        }
    }

    /// Returns the bytes of the message.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Keepalive => vec![KEEPALIVE],
            Self::Closed(CloseCode::Done) => vec![CLOSED, 0],
            Self::Closed(CloseCode::Refused) => vec![CLOSED, 1],
            Self::Credentials(CredentialsMessage { asks, received, length, part }) => {
                let [a, b] = received.to_be_bytes();
                let [c, d] = length.to_be_bytes();
                let (index, data) = part.as_ref().map_or((NO_PART, &[][..]), |(index, data)| (*index, data));
                [&[CREDENTIALS, u8::from(*asks), a, b, c, d, index], data].concat()
            }
            Self::Probe { token, padding } => {
                [&[PROBE][..], &token.to_be_bytes(), &vec![0; *padding]].concat()
            }
            Self::Answer { token, bytes } => {
                [&[ANSWER][..], &token.to_be_bytes(), &bytes.to_be_bytes()].concat()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_reads_back_and_no_other_bytes_are_one() {
        let credentials = |part| {
            ControlMessage::Credentials(CredentialsMessage {
                asks: true,
                received: 0x8001,
                length: 2000,
                part,
            })
        };
        let all = [
            ControlMessage::Keepalive,
            ControlMessage::Closed(CloseCode::Done),
            ControlMessage::Closed(CloseCode::Refused),
            credentials(None),
            credentials(Some((1, vec![7; 976]))),
            credentials(Some((0, Vec::new()))),
            ControlMessage::Probe { token: 5, padding: 1000 },
            ControlMessage::Answer { token: u64::MAX, bytes: 65_507 },
        ];
        for control in &all {
            assert_eq!(ControlMessage::read(&control.to_bytes()).as_ref(), Some(control));
        }
        let long = [&credentials(None).to_bytes()[..6], &[0], &[7; PART_BYTES_MAX + 1]].concat();
        for wrong in
            [&[][..], &[9], &[KEEPALIVE, 0], &[CLOSED, 2], &[CREDENTIALS, 2, 0, 0, 0, 0, 0xff], &long]
        {
            assert_eq!(ControlMessage::read(wrong), None);
        }
        // A probe whose padding is not zeros could carry data that no limit counts.
        assert_eq!(ControlMessage::read(&[PROBE, 0, 0, 0, 0, 0, 0, 0, 1, 1]), None);
    }
}
