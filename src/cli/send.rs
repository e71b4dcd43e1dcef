//! `leadsync send`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;

use super::r#try::payload::Payload;
use super::{Failure, Global};
use crate::destinations;
use crate::error::{Chain, Exit, Printable};

/// Longest wait for an answer: longer than the service takes at most.
const PATIENCE: Duration = Duration::from_secs(90);

/// Sign a payload as its sender would and deliver it to the running service
///
/// Takes the first secret of the source. The same file again is the same delivery again: a repeat.
/// Ends with 1 unless every copy is answered 200.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync send --source site payload.json\n  \
    leadsync send --source site --repeat 2 payload.json\n  \
    leadsync send --source site --to https://leads.example.com payload.json")]
pub(super) struct Send {
    #[command(flatten)]
    payload: Payload,
    /// Where the service is [default: http.listen]; the hook's path is added to an address without one
    #[arg(long, value_name = "URL")]
    to: Option<Url>,
    /// Send it this many times more
    #[arg(long, value_name = "N", default_value_t = 0)]
    repeat: u32,
}

impl Send {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let config = global.load(Vec::new())?;
        let source = self.payload.source(&config)?;
        let mut url = match self.to {
            Some(url) if matches!(url.scheme(), "http" | "https") => url,
            Some(_) => {
                let words = "--to must begin with http:// or https://";
                return Err(Failure::Usage(words.to_owned()));
            }
            None => here(config.http.listen)?,
        };
        if url.path() == "/" {
            url.set_path(&format!("/hooks/{}", source.name));
        }
        let mut request = self.payload.request(&source)?;
        if request.query.is_empty() {
            request.query = url.query().unwrap_or_default().to_owned();
        }
        // As it will be escaped on its way: the address may be signed.
        url.set_query(Some(&request.query));
        request.query = url.query().unwrap_or_default().to_owned();
        let now = jiff::Timestamp::now().as_second();
        let signed =
            source.sign(request, now).map_err(|error| Failure::Usage(error.to_string()))?;
        url.set_query(Some(signed.query.as_str()).filter(|query| !query.is_empty()));
        let mut headers = HeaderMap::new();
        for (name, value) in &signed.headers {
            let wrong = |_| Failure::Usage(format!("{name}: cannot stand in a header"));
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong(()))?;
            let name = HeaderName::try_from(name).map_err(|_| wrong(()))?;
            headers.append(name, value);
        }
        let client = destinations::caller(&url, PATIENCE)
            .map_err(|why| Failure::Words(format!("{} {why}", shown(&url))))?;
        let mut all_taken = true;
        for _ in 0..=self.repeat {
            let request = client.post(url.clone()).headers(headers.clone());
            // The address may carry a token.
            let failed = |error: reqwest::Error| {
                let error = error.without_url();
                Failure::Words(format!("cannot deliver to {}: {}", shown(&url), Chain(&error)))
            };
            let answer = request.body(signed.body.clone()).send().await.map_err(failed)?;
            let status = answer.status().as_u16();
            let text = answer.text().await.map_err(failed)?;
            say!("{status} {}", Printable(text.trim()))?;
            all_taken &= status == 200;
        }
        Ok(if all_taken { Exit::Ok } else { Exit::Failed })
    }
}

/// The address of a service on this machine that listens there.
fn here(listen: SocketAddr) -> Result<Url, Failure> {
    if listen.port() == 0 {
        let words = "http.listen takes any free port; say where the service is with --to";
        return Err(Failure::Usage(words.to_owned()));
    }
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let url = format!("http://{}", SocketAddr::new(ip, listen.port()));
    Url::parse(&url).map_err(|error| Failure::Words(format!("{url} is not a URL: {error}")))
}

/// The address without its query, which may carry a token.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    let _ = url.set_password(None);
    url.to_string()
}
