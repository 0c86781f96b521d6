//! The requests that the server knows, read from method, path and query. Parsing is pure, and is fuzzed.

use weir_units::Name;

/// The longest time that a query can name, in seconds: a century.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// A request of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageRoute {
    /// A file of the page, by its path.
    Asset(String),
    /// The exchange of a token for a secret.
    Open,
    /// The node's name, the user, and the modules that come with weir.
    State,
    /// The node's state, once a second.
    Watch,
    /// The last hour of a session; of the node without one.
    History(Option<Name>),
    /// A request to the node.
    Request,
    /// The decision on a request that is not executed.
    Check,
    /// The rows of a session's modules as they arrive.
    Rows(FollowedRows),
    /// Decisions on requests, not older than this number of seconds.
    Decisions {
        /// The age.
        since_s: u64,
    },
    /// The usage of sessions and holders.
    Ledger(LedgerRange, LedgerForm),
    /// The credentials that the node's sessions use.
    Credentials,
    /// The revocation of a credential.
    Revoke,
    /// The start of a run over a capture or an interface.
    CreateRun,
    /// The capture of a run.
    Capture(u64),
    /// The progress of a run.
    WatchRun(u64),
    /// The end of a run.
    DeleteRun(u64),
    /// The report of a run, by its unguessable name.
    Report(String),
}

/// The rows to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedRows {
    /// The session.
    pub session: Name,
    /// The module in the session; all modules without a name.
    pub module: Option<Name>,
    /// The stream; all streams without a name.
    pub stream: Option<Name>,
}

/// A part of the ledger by time, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerRange {
    /// Usage that ends after this time.
    pub since_s: Option<u64>,
    /// Usage that ends at this time or before.
    pub until_s: Option<u64>,
}

/// The form of the ledger's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerForm {
    /// For the page.
    Json,
    /// A file with comma-separated values (RFC 4180).
    Csv,
    /// A file for analytics tools (Apache Parquet).
    Parquet,
}

/// The error of a request that the server does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The path has no meaning.
    #[error("there is nothing at this path")]
    NotFound,
    /// The path has a meaning, but not with this method.
    #[error("this path has no such method")]
    Method,
    /// A value in the query is missing or not valid.
    #[error("the query's `{0}` is missing or not valid")]
    Query(&'static str),
}

impl PageRoute {
    /// Reads a request's method, its path and its query.
    ///
    /// # Errors
    /// The request is unknown, or its query is not valid.
    pub fn parse(method: &str, path: &str, query: &str) -> Result<Self, RouteError> {
        let query = Query(query);
        let parts: Vec<&str> = path.strip_prefix('/').ok_or(RouteError::NotFound)?.split('/').collect();
        let (methods, route) = match parts.as_slice() {
            ["api", "open"] => ("POST", Self::Open),
            ["api", "state"] => ("GET", Self::State),
            ["api", "watch"] => ("GET", Self::Watch),
            ["api", "history"] => ("GET", Self::History(query.name("session")?)),
            ["api", "request"] => ("POST", Self::Request),
            ["api", "check"] => ("POST", Self::Check),
            ["api", "rows"] => {
                let session = query.name("session")?.ok_or(RouteError::Query("session"))?;
                let (module, stream) = (query.name("module")?, query.name("stream")?);
                ("GET", Self::Rows(FollowedRows { session, module, stream }))
            }
            ["api", "decisions"] => {
                ("GET", Self::Decisions { since_s: query.seconds("since_s")?.unwrap_or(3600) })
            }
            ["api", "ledger"] => ("GET", Self::Ledger(query.range()?, LedgerForm::Json)),
            ["api", "ledger.csv"] => ("GET", Self::Ledger(query.range()?, LedgerForm::Csv)),
            ["api", "ledger.parquet"] => ("GET", Self::Ledger(query.range()?, LedgerForm::Parquet)),
            ["api", "credentials"] => ("GET", Self::Credentials),
            ["api", "revoke"] => ("POST", Self::Revoke),
            ["api", "runs"] => ("POST", Self::CreateRun),
            ["api", "runs", run] => ("DELETE", Self::DeleteRun(number(run)?)),
            ["api", "runs", run, "capture"] => ("PUT", Self::Capture(number(run)?)),
            ["api", "runs", run, "watch"] => ("GET", Self::WatchRun(number(run)?)),
            ["report", ticket] => ("GET", Self::Report((*ticket).to_owned())),
            ["api", ..] => return Err(RouteError::NotFound),
            _ => ("GET", Self::Asset(path.to_owned())),
        };
        if method == methods || (method == "HEAD" && methods == "GET") {
            Ok(route)
        } else {
            Err(RouteError::Method)
        }
    }

    /// Returns true if the request needs a browser's secret.
    pub fn needs_secret(&self) -> bool {
        !matches!(self, Self::Asset(_) | Self::Open | Self::Report(_))
    }
}

fn number(text: &str) -> Result<u64, RouteError> {
    text.parse().map_err(|_| RouteError::NotFound)
}

/// The part of a request's target after `?`: `key=value` pairs, joined by `&`.
struct Query<'a>(&'a str);

impl Query<'_> {
    /// Returns the value of a key. Names and numbers consist of characters that are not percent-encoded.
    fn value(&self, key: &str) -> Option<&str> {
        self.0.split('&').filter_map(|pair| pair.split_once('=')).find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    fn name(&self, key: &'static str) -> Result<Option<Name>, RouteError> {
        self.value(key).map(Name::new).transpose().map_err(|_| RouteError::Query(key))
    }

    fn seconds(&self, key: &'static str) -> Result<Option<u64>, RouteError> {
        let number = self.value(key).map(str::parse).transpose().map_err(|_| RouteError::Query(key))?;
        if number.is_some_and(|number| number > SECONDS_MAX) {
            Err(RouteError::Query(key))
        } else {
            Ok(number)
        }
    }

    fn range(&self) -> Result<LedgerRange, RouteError> {
        Ok(LedgerRange { since_s: self.seconds("since_s")?, until_s: self.seconds("until_s")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_method_path_and_query() {
        let name = |text| Name::new(text).unwrap();
        for (method, path, query, expected) in [
            ("GET", "/", "", Ok(PageRoute::Asset("/".to_owned()))),
            ("GET", "/../secret", "", Ok(PageRoute::Asset("/../secret".to_owned()))),
            ("POST", "/", "", Err(RouteError::Method)),
            ("POST", "/api/open", "", Ok(PageRoute::Open)),
            ("GET", "/api/open", "", Err(RouteError::Method)),
            ("HEAD", "/api/state", "", Ok(PageRoute::State)),
            ("GET", "/api/history", "session=alice", Ok(PageRoute::History(Some(name("alice"))))),
            ("GET", "/api/history", "session=../x", Err(RouteError::Query("session"))),
            ("GET", "/api/rows", "module=rtt", Err(RouteError::Query("session"))),
            ("GET", "/api/decisions", "since_s=60", Ok(PageRoute::Decisions { since_s: 60 })),
            ("GET", "/api/decisions", "since_s=-1", Err(RouteError::Query("since_s"))),
            ("GET", "/api/decisions", "since_s=99999999999", Err(RouteError::Query("since_s"))),
            ("GET", "/api/credentials", "", Ok(PageRoute::Credentials)),
            ("POST", "/api/revoke", "", Ok(PageRoute::Revoke)),
            ("GET", "/api/revoke", "", Err(RouteError::Method)),
            ("PUT", "/api/runs/7/capture", "", Ok(PageRoute::Capture(7))),
            ("PUT", "/api/runs/x/capture", "", Err(RouteError::NotFound)),
            ("GET", "/api/other", "", Err(RouteError::NotFound)),
            ("GET", "api/state", "", Err(RouteError::NotFound)),
        ] {
            assert_eq!(PageRoute::parse(method, path, query), expected, "{method} {path}?{query}");
        }
    }

    #[test]
    fn only_files_of_the_page_opening_it_and_reports_need_no_secret() {
        for (method, path, needs) in [
            ("GET", "/app.js", false),
            ("POST", "/api/open", false),
            ("GET", "/report/x", false),
            ("GET", "/api/watch", true),
        ] {
            assert_eq!(PageRoute::parse(method, path, "").unwrap().needs_secret(), needs, "{path}");
        }
    }
}
