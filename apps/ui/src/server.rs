//! The HTTP side of the page: checks of every request, and its answer.

use crate::Ui;
use crate::credentials::{self, RevokeError};
use crate::route::{LedgerForm, PageRoute, RouteError};
use crate::runs::{PageRunError, PageRunSource, RunSpec};
use crate::{ledger, rows, watch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use weir_http::header::{self, HeaderName, HeaderValue};
use weir_http::{HttpRequest, HttpResponse, Sink, StatusCode};
use weir_node::client::{Client, ClientError};
use weir_node::control::protocol::{ControlRequest, Explain, Explanation, Reply};
use weir_units::Timestamp;

/// The longest body of a request that is no capture, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// The content security policy of the page: scripts and styles of this server alone, no text as markup, no other page
/// around this one.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
/// The policy of a report, which has texts from packets: no scripts, nothing from elsewhere, and an origin of its own.
const REPORT_POLICY: &str = "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// The refusal of a request, before it reaches the node.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request came for another host: a page of a foreign host that resolves to this machine (DNS rebinding).
    #[error("this server answers only at {0}")]
    Host(String),
    /// The request came from the page of another origin.
    #[error("this request came from another page")]
    Origin,
    /// The token is not valid.
    #[error("this address was used already, or is too old: `weir ui --address` prints a new one")]
    Token,
    /// The secret is not valid.
    #[error("this page is not connected any more: `weir ui --address` prints a new address for it")]
    Secret,
    /// The path or query is not valid.
    #[error(transparent)]
    PageRoute(#[from] RouteError),
    /// The body is not valid.
    #[error("the request's body is not valid: {0}")]
    Body(String),
    /// The body is too long.
    #[error("the request's body is longer than {BODY_BYTES_MAX} bytes")]
    TooLong,
    /// The page must not change anything.
    #[error("this page was started with --read-only, so it changes nothing")]
    ReadOnly,
    /// The page sends no such request.
    #[error("the page sends no such request to a node")]
    NotForPages,
    /// The node refused, or the connection to it failed.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// A run cannot be started or found.
    #[error(transparent)]
    Run(#[from] PageRunError),
    /// The ledger's table cannot be written as a file.
    #[error(transparent)]
    Table(#[from] weir_records::TableEncodeError),
    /// The system's error.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) | Self::Origin | Self::Token | Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::Secret => StatusCode::UNAUTHORIZED,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::PageRoute(RouteError::NotFound) | Self::Run(PageRunError::Unknown) => StatusCode::NOT_FOUND,
            Self::PageRoute(RouteError::Method) => StatusCode::METHOD_NOT_ALLOWED,
            Self::PageRoute(RouteError::Query(_)) | Self::Body(_) | Self::NotForPages | Self::Run(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Node(_) => StatusCode::BAD_GATEWAY,
            Self::System(_) | Self::Table(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The answer to a request that the node has executed or refused.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RequestAnswer {
    Done { notes: Vec<String> },
    Refused { why: String },
}

/// The answer to a request that was only judged.
#[derive(Serialize)]
struct CheckAnswer {
    refused: Option<String>,
}

/// Answers a request. Every response has the headers against embedding, guessing of content types, and storing.
pub fn answer(ui: &Arc<Ui>, mut request: HttpRequest) -> HttpResponse {
    let response = checked(ui, &mut request).unwrap_or_else(|error| {
        #[derive(Serialize)]
        struct ErrorAnswer {
            error: String,
        }
        json(error.status(), &ErrorAnswer { error: error.to_string() })
    });
    let has_policy = response.headers.iter().any(|(name, _)| *name == header::CONTENT_SECURITY_POLICY);
    let policy = (!has_policy).then_some((header::CONTENT_SECURITY_POLICY, PAGE_POLICY));
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    policy
        .into_iter()
        .chain(fixed)
        .fold(response, |response, (name, value)| response.with(name, HeaderValue::from_static(value)))
}

/// Answers a request that passes all checks.
fn checked(ui: &Arc<Ui>, request: &mut HttpRequest) -> Result<HttpResponse, RequestError> {
    if request.host() != Some(ui.host.as_str()) {
        return Err(RequestError::Host(ui.host.clone()));
    }
    check_origin(request, &format!("http://{}", ui.host))?;
    let route = PageRoute::parse(&request.method, &request.path, &request.query)?;
    if route.needs_secret() {
        let field = request.header(&header::AUTHORIZATION);
        let secret = field.and_then(|field| field.strip_prefix("Bearer "));
        if !secret.is_some_and(|secret| ui.access.is_known(secret)) {
            return Err(RequestError::Secret);
        }
    }
    match route {
        PageRoute::Asset(path) => {
            let asset = crate::assets::find(&path).ok_or(RouteError::NotFound)?;
            Ok(HttpResponse::new(StatusCode::OK, asset.content_type, asset.bytes))
        }
        PageRoute::Open => open(ui, request),
        PageRoute::State => Ok(json(StatusCode::OK, &ui.description())),
        PageRoute::Watch => {
            let (response, page) = HttpResponse::streamed(LINES);
            ui.state.follow(page);
            Ok(response)
        }
        PageRoute::History(session) => {
            let history = ui.state.history(session.as_ref().map(weir_units::Name::as_str));
            Ok(HttpResponse::new(StatusCode::OK, JSON, history))
        }
        PageRoute::Request => {
            let request: ControlRequest = body(request)?;
            if !is_for_pages(&request) {
                return Err(RequestError::NotForPages);
            }
            if ui.is_read_only {
                return Err(RequestError::ReadOnly);
            }
            let executed = Client::connect_to(&ui.node)?.execute(request, &[]);
            let answer = match executed {
                Ok(notes) => RequestAnswer::Done { notes },
                Err(ClientError::Refused(why)) => RequestAnswer::Refused { why },
                Err(error) => return Err(error.into()),
            };
            Ok(json(StatusCode::OK, &answer))
        }
        PageRoute::Check => check(ui, body(request)?),
        PageRoute::Rows(wanted) => {
            let ui = Arc::clone(ui);
            stream("weir-ui-rows", move |page| rows::send(&ui.node, wanted, page))
        }
        PageRoute::Decisions { since_s } => Ok(json(StatusCode::OK, &ledger::decisions(ui, since_s, now())?)),
        PageRoute::Ledger(range, form) => Ok(match form {
            LedgerForm::Json => json(StatusCode::OK, &ledger::answer(&ui.node, range)?),
            LedgerForm::Csv => {
                let file = ledger::usage(&ui.node, range)?.to_csv();
                HttpResponse::new(StatusCode::OK, "text/csv; charset=utf-8", file)
            }
            LedgerForm::Parquet => {
                let file = ledger::parquet(&ledger::usage(&ui.node, range)?)?;
                HttpResponse::new(StatusCode::OK, "application/vnd.apache.parquet", file)
            }
        }),
        PageRoute::Credentials => Ok(json(StatusCode::OK, &credentials::credentials(ui)?)),
        PageRoute::Revoke => revoke(ui, &body::<Revocation>(request)?),
        PageRoute::CreateRun => {
            #[derive(Serialize)]
            struct RunAnswer {
                run: u64,
            }
            let spec: RunSpec = body(request)?;
            // A run over an interface creates a session on the node.
            if ui.is_read_only && matches!(spec.source, PageRunSource::Interface { .. }) {
                return Err(RequestError::ReadOnly);
            }
            Ok(json(StatusCode::OK, &RunAnswer { run: ui.runs.create(spec, &ui.node)? }))
        }
        PageRoute::Capture(run) => {
            ui.runs.run_capture(run, &mut request.body)?;
            Ok(done())
        }
        PageRoute::WatchRun(run) => {
            let ui = Arc::clone(ui);
            stream("weir-ui-run", move |page| {
                if let Err(error) = ui.runs.watch(run, page) {
                    #[derive(Serialize)]
                    struct FailedLine {
                        failed: String,
                    }
                    let _ = page.send(watch::line(&FailedLine { failed: error.to_string() }));
                }
            })
        }
        PageRoute::DeleteRun(run) => {
            ui.runs.remove(run);
            Ok(done())
        }
        PageRoute::Report(ticket) => {
            let report = ui.runs.report(&ticket).ok_or(PageRunError::Unknown)?;
            let policy = HeaderValue::from_static(REPORT_POLICY);
            Ok(HttpResponse::new(StatusCode::OK, "text/html; charset=utf-8", report)
                .with(header::CONTENT_SECURITY_POLICY, policy))
        }
    }
}

/// Checks that a request does not come from the page of another origin. Browsers state the origin of a page that sends a
/// `POST`, and the relation of both sites for every request (Fetch Metadata).
fn check_origin(request: &HttpRequest, own: &str) -> Result<(), RequestError> {
    let is_own = match request.headers.get(header::ORIGIN) {
        Some(origin) => origin.as_bytes() == own.as_bytes(),
        None => true,
    };
    let site = request.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_own_site = matches!(site, None | Some(b"same-origin" | b"none"));
    if is_own && is_own_site { Ok(()) } else { Err(RequestError::Origin) }
}

/// Exchanges a token for a secret.
fn open(ui: &Ui, request: &mut HttpRequest) -> Result<HttpResponse, RequestError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Opening {
        token: String,
    }
    #[derive(Serialize)]
    struct Opened {
        secret: String,
    }
    let Opening { token } = body(request)?;
    let secret = ui.access.redeem(&token, Instant::now()).ok_or(RequestError::Token)?;
    Ok(json(StatusCode::OK, &Opened { secret }))
}

/// A request to revoke a credential.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Revocation {
    id: String,
}

/// Revokes a credential in the name of the user.
fn revoke(ui: &Ui, Revocation { id }: &Revocation) -> Result<HttpResponse, RequestError> {
    if ui.is_read_only {
        return Err(RequestError::ReadOnly);
    }
    let answer = match credentials::revoke(ui, id) {
        Ok(notes) => RequestAnswer::Done { notes },
        Err(RevokeError::Refused(why) | RevokeError::Node(ClientError::Refused(why))) => {
            RequestAnswer::Refused { why }
        }
        Err(RevokeError::Node(error)) => return Err(error.into()),
        Err(error @ RevokeError::Id(_)) => return Err(RequestError::Body(error.to_string())),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Asks the node for its decision on a request, without executing it.
fn check(ui: &Ui, request: ControlRequest) -> Result<HttpResponse, RequestError> {
    if !is_for_pages(&request) {
        return Err(RequestError::NotForPages);
    }
    let explain = Explain { credential: None, request: Some(request) };
    let mut client = Client::connect_to(&ui.node)?;
    client.send(ControlRequest::Explain(Box::new(explain)), &[])?;
    let refused = match client.receive() {
        Ok(Reply::Explained(explanation)) => {
            let Explanation { invalid, verdict, .. } = *explanation;
            invalid.or_else(|| verdict.and_then(|verdict| verdict.refused))
        }
        Ok(other) => {
            return Err(ClientError::UnexpectedReply(weir_node::client::reply_kind(&other)).into());
        }
        Err(ClientError::Refused(why)) => Some(why),
        Err(error) => return Err(error.into()),
    };
    Ok(json(StatusCode::OK, &CheckAnswer { refused }))
}

/// Returns true for the requests that the page has actions for. They have no body, and one reply.
fn is_for_pages(request: &ControlRequest) -> bool {
    matches!(
        request,
        ControlRequest::Create(_)
            | ControlRequest::Change(_)
            | ControlRequest::Close { .. }
            | ControlRequest::Load { .. }
            | ControlRequest::Unload { .. }
            | ControlRequest::Rate(_)
            | ControlRequest::Reload
    )
}

/// Reads a request's body as JSON.
fn body<T: DeserializeOwned>(request: &mut HttpRequest) -> Result<T, RequestError> {
    let bytes = request.body.read_whole(BODY_BYTES_MAX).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => RequestError::TooLong,
        _ => RequestError::Body(error.to_string()),
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| RequestError::Body(weir_units::escaped(&error.to_string())))
}

fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    HttpResponse::new(status, JSON, serde_json::to_vec(value).unwrap_or_default())
}

fn done() -> HttpResponse {
    HttpResponse::new(StatusCode::OK, JSON, &b"{\"done\":true}"[..])
}

/// Starts a thread that sends lines to the page.
fn stream(name: &str, send: impl FnOnce(&Sink) + Send + 'static) -> Result<HttpResponse, RequestError> {
    let (response, page) = HttpResponse::streamed(LINES);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || send(&page))?;
    Ok(response)
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
