//! A delivery on the command line: a file, and what its sender would send with it.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;

use crate::app::AppError;
use crate::cli::Failure;
use crate::config::Config;
use crate::mapping;
use crate::sources::{ConfiguredSource, FETCHED, Request};

/// A payload and the source it is for.
#[derive(Debug, Args)]
pub(in crate::cli) struct Payload {
    /// The source that it is for
    #[arg(long = "source", value_name = "NAME")]
    name: String,
    /// The body as the sender sends it; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Content type [default: guessed from the first bytes]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A header that the sender sends; can be given several times
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Query of the address that the sender calls
    #[arg(long, value_name = "QUERY", default_value = "", hide_default_value = true)]
    query: String,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it like 'X-Name: value'")?;
    let name = http::HeaderName::try_from(name.trim())
        .map_err(|_| "the part before the colon is no name of a header".to_owned())?;
    let value = value.trim();
    http::HeaderValue::try_from(value)
        .map_err(|_| "the part after the colon cannot stand in a header".to_owned())?;
    Ok((name.as_str().to_owned(), value.to_owned()))
}

impl Payload {
    /// The source, compiled.
    pub fn source(&self, config: &Config) -> Result<ConfiguredSource, Failure> {
        let names = || config.sources.iter().map(|source| source.name.as_str());
        let found = config.sources.iter().find(|source| source.name == self.name);
        let Some(source) = found else {
            let hint = match mapping::nearest_name(&self.name, names()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None if config.sources.is_empty() => "none is configured".to_owned(),
                None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::Usage(format!("there is no source \"{}\"; {hint}", self.name)));
        };
        Ok(ConfiguredSource::compile(source, &config.leads).map_err(AppError::from)?)
    }

    /// The request without anything that proves its sender.
    pub fn request(&self, source: &ConfiguredSource) -> Result<Request, Failure> {
        let mut body = Vec::new();
        let read = match self.file.as_os_str() == "-" {
            true => std::io::stdin().lock().read_to_end(&mut body).map(|_| ()),
            false => std::fs::read(&self.file).map(|bytes| body = bytes),
        };
        read.map_err(|error| {
            Failure::Usage(format!("cannot read {}: {error}", self.file.display()))
        })?;
        let mut headers = self.headers.clone();
        let is_content_type = |(name, _): &(String, String)| name == "content-type";
        if let Some(given) = &self.content_type {
            headers.retain(|header| !is_content_type(header));
            headers.push(("content-type".to_owned(), given.clone()));
        } else if !headers.iter().any(is_content_type) {
            let guessed = match source.is_document(&body) {
                true => FETCHED.to_owned(),
                false => guess(&body),
            };
            headers.push(("content-type".to_owned(), guessed));
        }
        Ok(Request {
            method: "POST".to_owned(),
            query: self.query.trim_start_matches('?').to_owned(),
            headers,
            body: body.into(),
        })
    }
}

/// The content type of a body, by its first bytes: one of those that are understood.
fn guess(body: &[u8]) -> String {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    if let Some(boundary) = line.strip_prefix(b"--").filter(|boundary| !boundary.is_empty()) {
        return format!("multipart/form-data; boundary=\"{}\"", String::from_utf8_lossy(boundary));
    }
    let first = body.trim_ascii_start().first();
    match first {
        Some(b'{' | b'[' | b'"') | None => "application/json".to_owned(),
        Some(_) if body.contains(&b'=') => "application/x-www-form-urlencoded".to_owned(),
        Some(_) => "application/json".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_what_it_is() {
        for (body, guessed) in [
            ("\u{FEFF} {\"a\":\"b=c\"}", "application/json"),
            ("[]", "application/json"),
            ("", "application/json"),
            ("null", "application/json"),
            ("a=1&b", "application/x-www-form-urlencoded"),
            ("--x y\r\nContent-Disposition", "multipart/form-data; boundary=\"x y\""),
        ] {
            assert_eq!(guess(body.as_bytes()), guessed, "{body}");
        }
    }

    #[test]
    fn headers_are_a_name_and_a_value() {
        assert_eq!(header("X-Id:  a: b "), Ok(("x-id".to_owned(), "a: b".to_owned())));
        for odd in ["X-Id", ": a", "X Id: a", "X-Id: a\nb"] {
            assert!(header(odd).is_err(), "{odd}");
        }
    }
}
