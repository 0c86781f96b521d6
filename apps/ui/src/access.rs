//! One-time tokens in the address of the page, and the secrets that browsers get for them.
//!
//! The address of the page has a token behind `#`, so that browsers neither send it to a server by themselves nor state it
//! as a referrer. The page exchanges the token for a secret, once. Every later request carries the secret in a header
//! field. There is no cookie: cookies of a host are sent to all of its ports, and thus to other users' servers.

use rand_core::{OsRng, RngCore as _};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The random bytes of a token or secret.
const RANDOM_BYTES: usize = 24;
/// The time for which an unused token is valid.
pub const TOKEN_AGE_MAX: Duration = Duration::from_secs(3600);
/// The most unused tokens. A further one replaces the oldest.
const TOKENS_MAX: usize = 16;
/// The most browsers that the page is open in. A further one replaces the oldest.
const BROWSERS_MAX: usize = 64;

type Hash = [u8; 32];

/// The tokens that were not used yet, and the secrets of browsers. Both are kept as hashes, so that comparing them reveals
/// nothing by its duration.
#[derive(Debug, Default)]
pub struct AccessList {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    tokens: VecDeque<(Hash, Instant)>,
    secrets: VecDeque<Hash>,
}

impl AccessList {
    /// Returns a new token, which is valid once and until [`TOKEN_AGE_MAX`] after `now`.
    pub fn issue_token(&self, now: Instant) -> String {
        let token = random_text();
        let tokens = &mut self.lists().tokens;
        if tokens.len() >= TOKENS_MAX {
            tokens.pop_front();
        }
        tokens.push_back((hash(&token), now));
        token
    }

    /// Exchanges a token for a browser's secret; `None` for a token that was used, has expired or was never issued.
    pub fn redeem(&self, token: &str, now: Instant) -> Option<String> {
        let mut lists = self.lists();
        let hash_of_token = hash(token);
        let index = lists.tokens.iter().position(|(known, _)| *known == hash_of_token)?;
        let (_, issued) = lists.tokens.remove(index)?;
        if now.saturating_duration_since(issued) > TOKEN_AGE_MAX {
            return None;
        }
        let secret = random_text();
        if lists.secrets.len() >= BROWSERS_MAX {
            lists.secrets.pop_front();
        }
        lists.secrets.push_back(hash(&secret));
        Some(secret)
    }

    /// Returns true if a text is the secret of a browser.
    pub fn is_known(&self, secret: &str) -> bool {
        let hash_of_secret = hash(secret);
        self.lists().secrets.contains(&hash_of_secret)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an unguessable text of letters and digits.
pub fn random_text() -> String {
    let mut bytes = [0; RANDOM_BYTES];
    OsRng.fill_bytes(&mut bytes);
    weir_units::hex(&bytes)
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_once_and_for_an_hour() {
        let (access, now) = (AccessList::default(), Instant::now());
        let token = access.issue_token(now);
        let secret = access.redeem(&token, now + TOKEN_AGE_MAX).unwrap();
        assert!(access.is_known(&secret) && !access.is_known(&token) && !access.is_known(""));
        assert_eq!(access.redeem(&token, now), None, "it was used");
        let late = access.issue_token(now);
        assert_eq!(
            access.redeem(&late, now + TOKEN_AGE_MAX + Duration::from_secs(1)),
            None,
            "it has expired"
        );
        assert_eq!(access.redeem(&late, now), None, "an expired token does not come back");
        assert_eq!(access.redeem("", now), None);
    }

    #[test]
    fn two_browsers_have_secrets_of_their_own_and_the_lists_are_bounded() {
        let (access, now) = (AccessList::default(), Instant::now());
        let first_token = access.issue_token(now);
        let secrets: Vec<String> =
            (0..BROWSERS_MAX).map(|_| access.redeem(&access.issue_token(now), now).unwrap()).collect();
        assert!(secrets.iter().all(|secret| access.is_known(secret)));
        let next = access.redeem(&first_token, now).unwrap();
        assert!(access.is_known(&next) && !access.is_known(&secrets[0]), "the oldest gives way");
        let oldest = access.issue_token(now);
        (0..TOKENS_MAX).for_each(|_| drop(access.issue_token(now)));
        assert_eq!(access.redeem(&oldest, now), None);
    }
}
