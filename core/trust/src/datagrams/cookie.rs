//! Cookies, which prove that an initiator receives at its address.

use super::format::{COOKIE_BYTES, Spi};
use crate::association::{HandshakeError, hmac};
use core::net::{IpAddr, SocketAddr};
use weir_units::Nanos;
use zeroize::Zeroizing;

/// The secret of an endpoint's cookies. A cookie is valid in the period in which it was made and in the next one.
pub(super) struct CookieSecret {
    secret: Zeroizing<[u8; 32]>,
    period: Nanos,
}

impl CookieSecret {
    pub(super) fn new(secret: Zeroizing<[u8; 32]>, period: Nanos) -> Self {
        Self { secret, period: Nanos(period.0.max(1)) }
    }

    /// Returns the cookie for a hello from this address at this time.
    pub(super) fn make(
        &self,
        from: SocketAddr,
        initiator: Spi,
        first: &[u8],
        now: Nanos,
    ) -> Result<[u8; COOKIE_BYTES], HandshakeError> {
        self.of_period(from, initiator, first, now.0 / self.period.0)
    }

    /// Returns true if the cookie was made for this hello not long ago.
    pub(super) fn is_valid(
        &self,
        cookie: &[u8; COOKIE_BYTES],
        from: SocketAddr,
        initiator: Spi,
        first: &[u8],
        now: Nanos,
    ) -> bool {
        let period = now.0 / self.period.0;
        [Some(period), period.checked_sub(1)].into_iter().flatten().any(|period| {
            let expected = self.of_period(from, initiator, first, period);
            expected.is_ok_and(|expected| is_equal(&expected, cookie))
        })
    }

    fn of_period(
        &self,
        from: SocketAddr,
        initiator: Spi,
        first: &[u8],
        period: u64,
    ) -> Result<[u8; COOKIE_BYTES], HandshakeError> {
        let address = match from.ip().to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let text = [
            &b"weir cookie"[..],
            &period.to_be_bytes(),
            &address,
            &from.port().to_be_bytes(),
            &initiator.to_bytes(),
            first,
        ]
        .concat();
        let code = hmac(&self.secret, &text)?;
        Ok(code.first_chunk().copied().unwrap_or_default())
    }
}

/// Compares without revealing by its duration where the first difference is.
fn is_equal(one: &[u8; COOKIE_BYTES], other: &[u8; COOKIE_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_valid_for_its_hello_and_for_two_periods() {
        let secret = CookieSecret::new(Zeroizing::new([7; 32]), Nanos(100));
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (from, spi) = (at("192.0.2.1:3322"), Spi::new(1).unwrap());
        let cookie = secret.make(from, spi, b"first", Nanos(250)).unwrap();
        let is_valid = |from, spi, first: &[u8], now| secret.is_valid(&cookie, from, spi, first, Nanos(now));
        for now in [200, 299, 399] {
            assert!(is_valid(from, spi, b"first", now));
        }
        assert!(is_valid(at("[::ffff:192.0.2.1]:3322"), spi, b"first", 250));
        for now in [0, 199, 400, 1000] {
            assert!(!is_valid(from, spi, b"first", now), "{now}");
        }
        for other in ["192.0.2.1:3323", "192.0.2.2:3322", "[2001:db8::1]:3322"] {
            assert!(!is_valid(at(other), spi, b"first", 250));
        }
        assert!(!is_valid(from, Spi::new(2).unwrap(), b"first", 250));
        assert!(!is_valid(from, spi, b"other", 250));
        for bit in 0..128 {
            let mut forged = cookie;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.is_valid(&forged, from, spi, b"first", Nanos(250)));
        }
        let other = CookieSecret::new(Zeroizing::new([8; 32]), Nanos(100));
        assert!(!other.is_valid(&cookie, from, spi, b"first", Nanos(250)));
    }
}
