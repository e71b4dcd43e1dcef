//! A source of the configuration, compiled: from request to items.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::config::{self, EmailFolding, FieldRule, Untimed};
use crate::lead::email::Folding;
use crate::lead::phone::Region;
use crate::mapping::{self, Document, Leaf, Mapping, Settings, Step, Trace, Written};
use crate::secret::Secret;

use super::signature::{self, Check};
use super::{
    Auth, AuthError, DecodeError, FETCHED, Handshake, Item, LineReader, Request, SOURCES,
    SignError, Source, SourceError, SourceErrorKind, Split, Verified, decode, notice,
};

/// Most leads that one delivery may carry; the largest known sender stops at 4000.
const MAX_ITEMS: usize = 10_000;

/// The only parameter of a hook's URL that is ours.
const TOKEN: &str = "token";

/// A source of the configuration, compiled and ready.
pub struct ConfiguredSource {
    /// Its name in the route.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// 0 to 100; a lower-trust source fills, never overwrites a higher one.
    pub trust: u8,
    /// What an event without a time of its own counts with.
    pub untimed: Untimed,
    /// Opt-ins carry proof.
    pub double_opt_in: bool,
    source: &'static Source,
    checks: Vec<Check>,
    handshake_keys: Vec<Secret>,
    split: Option<JsonPath>,
    event_types: Vec<String>,
    mapping: Mapping,
    folding: Folding,
    region: Option<Region>,
}

impl ConfiguredSource {
    /// Compiles one `[[source]]`; everything that can be wrong with it is found here, at start.
    pub fn compile(
        source: &config::Source,
        leads: &config::Leads,
    ) -> Result<ConfiguredSource, SourceError> {
        Self::build(source, leads).map_err(|kind| SourceError { name: source.name.clone(), kind })
    }

    fn build(
        source: &config::Source,
        leads: &config::Leads,
    ) -> Result<ConfiguredSource, SourceErrorKind> {
        let kind = find(&source.kind)?;
        if source.trust > 100 {
            return Err(SourceErrorKind::BadTrust(source.trust));
        }
        let written: Vec<Written> =
            source.fields.iter().map(|(target, rule)| written(target, rule)).collect();
        if matches!(kind.auth, Auth::Written) && !source.fields.contains_key("email") {
            return Err(SourceErrorKind::NoEmail);
        }
        notice::check(source, kind)?;
        if !source.event_types.is_empty() && !source.fields.contains_key("event_type") {
            return Err(SourceErrorKind::Missing {
                key: "fields.event_type",
                hint: "`event_types` compares what it finds, like event_type = \"$.event\"",
            });
        }
        let handshake_keys = match source.verify_token.as_slice() {
            [] => source.secret.as_slice(),
            tokens => tokens,
        };
        let mapping = Mapping::compile(kind.rules, &written).map_err(SourceErrorKind::Mapping)?;
        let checks = signature::compile(source, kind)?;
        let credential = |name: &&str| {
            matches!(*name, "authorization" | "cookie" | "proxy-authorization")
                || checks.iter().any(|check| check.reads_header(name))
        };
        if let Some(name) = mapping.headers().find(credential) {
            return Err(SourceErrorKind::CredentialHeader(name.to_owned()));
        }
        Ok(ConfiguredSource {
            name: source.name.clone(),
            kind: kind.kind,
            trust: source.trust,
            untimed: source.untimed.unwrap_or_default(),
            double_opt_in: source.double_opt_in,
            source: kind,
            checks,
            handshake_keys: handshake_keys.to_vec(),
            split: split(source, kind)?,
            event_types: source.event_types.clone(),
            mapping,
            folding: folding(leads.email_folding),
            region: region(source.default_region.as_ref().or(leads.default_region.as_ref()))?,
        })
    }

    /// Whether the request comes from who it says, over its raw bytes. Every way of proving it that
    /// is configured must hold. `now` is in epoch seconds, for schemes that sign the time of the attempt.
    pub fn verify(&self, request: Request, now_epoch_s: i64) -> Result<Verified, AuthError> {
        self.checks.iter().try_for_each(|check| check.run(&request, now_epoch_s))?;
        Ok(Verified(request))
    }

    /// Whether anything before the body shows already that [`ConfiguredSource::verify`] would not believe
    /// the request, so that strangers' bodies need not be read. Its body is not looked at.
    pub fn verify_head(&self, request: &Request) -> Result<(), AuthError> {
        let mut checks = self.checks.iter().filter(|check| check.is_of_head());
        // None of these has a clock.
        checks.try_for_each(|check| check.run(request, 0))
    }

    /// The answer to a GET with that query, where the kind has a handshake and the query is one that its sender sends.
    pub fn handshake(&self, query: &str) -> Option<Handshake> {
        self.source.handshake.and_then(|answer| answer(query, &self.handshake_keys))
    }

    /// Whether its sender checks the address with a GET.
    pub fn has_handshake(&self) -> bool {
        self.source.handshake.is_some()
    }

    /// What the delivery says: at least one item. A body that can be read but holds no usable lead
    /// is a rejected item, not an error.
    pub fn read(&self, delivery: &Verified) -> Result<Vec<Item>, DecodeError> {
        let request = delivery.request();
        if let Some(items) = self.notices(request)? {
            return Ok(items);
        }
        let Cut { parts, body } = self.cut(request)?;
        if let Some(refused) = refusal(parts.len()) {
            return Ok(vec![refused]);
        }
        let item = |mut part| self.item(&mut part, body.as_ref(), request, &mut Trace::off());
        Ok(parts.into_iter().map(item).collect())
    }

    /// As [`ConfiguredSource::read`], told step by step.
    pub fn explain(&self, delivery: &Verified) -> Result<Explained, DecodeError> {
        let request = delivery.request();
        let mut explained = Explained::default();
        if let Some(items) = self.notices(request)? {
            let part = |item| Part { item, steps: Vec::new(), unmapped: Vec::new() };
            explained.parts = items.into_iter().map(part).collect();
            return Ok(explained);
        }
        let Cut { parts, body } = self.cut(request)?;
        if let Some(refused) = refusal(parts.len()) {
            explained.parts.push(Part { item: refused, steps: Vec::new(), unmapped: Vec::new() });
        } else {
            for mut part in parts {
                let mut trace = Trace::on();
                let item = self.item(&mut part, body.as_ref(), request, &mut trace);
                let about_a_lead = !matches!(item, Item::Ignored(_));
                let document = document(&part, body.as_ref(), request);
                let unmapped = about_a_lead.then(|| self.mapping.unmapped(&document));
                let unmapped = unmapped.unwrap_or_default();
                explained.parts.push(Part { item, steps: trace.steps(), unmapped });
            }
        }
        if let Some(body) = &body {
            let parts = self.split.as_ref().map(|path| path.query(body).all()).unwrap_or_default();
            let around = document(&Value::Null, Some(body), request);
            explained.unmapped = self.mapping.unmapped_around(&around, &parts);
        }
        Ok(explained)
    }

    /// What a delivery tells of by ids, at least one item; `None` for one that says what its leads are.
    fn notices(&self, request: &Request) -> Result<Option<Vec<Item>>, DecodeError> {
        let Split::Notices(notices) = self.source.split else { return Ok(None) };
        if decode::essence(request) == FETCHED {
            return Ok(None);
        }
        let items = notices(&decode::decode(request)?);
        Ok(Some(match refusal(items.len()) {
            Some(refused) => vec![refused],
            None => items,
        }))
    }

    /// Whether a body is a document of this source as it is read at its API, and no delivery of its sender.
    pub fn is_document(&self, body: &[u8]) -> bool {
        let Split::Notices(notices) = self.source.split else { return false };
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        body.as_object().is_some_and(|members| !members.is_empty()) && notices(&body).is_empty()
    }

    /// Reads leads of this source that come from a file.
    pub fn line_reader(&self) -> LineReader {
        LineReader {
            source: self.name.clone(),
            folding: self.folding,
            region: self.region,
            double_opt_in: self.double_opt_in,
        }
    }

    fn cut(&self, request: &Request) -> Result<Cut, DecodeError> {
        let mut body = decode::decode(request)?;
        if let Some(path) = &self.split {
            let parts = path.query(&body).all().into_iter().cloned().collect();
            return Ok(Cut { parts, body: Some(body) });
        }
        if let Split::Member(name) = self.source.split
            && let Some(Value::Array(parts)) = body.get_mut(name)
        {
            let parts = std::mem::take(parts);
            return Ok(Cut { parts, body: Some(body) });
        }
        let parts = match (self.source.split, body) {
            (Split::List, Value::Array(parts)) => parts,
            (_, body) => vec![body],
        };
        Ok(Cut { parts, body: None })
    }

    /// What one part says; the kind adds to it what it recognises.
    fn item(
        &self,
        part: &mut Value,
        body: Option<&Value>,
        request: &Request,
        trace: &mut Trace,
    ) -> Item {
        if let Some(prepare) = self.source.prepare {
            prepare(part);
        }
        let document = document(part, body, request);
        if let Some(reason) = self.source.ignore.and_then(|ignore| ignore(&document)) {
            return Item::Ignored(reason.to_owned());
        }
        let settings = Settings {
            folding: self.folding,
            region: self.region,
            double_opt_in: self.double_opt_in,
            source: Some(&self.name),
        };
        let mapped = self.mapping.apply_noting(&document, &settings, trace);
        if !self.wants(mapped.event_type.as_deref()) {
            return Item::Ignored("event_type".to_owned());
        }
        match mapped.lead {
            Ok(patch) => Item::Lead(Box::new(patch)),
            Err(none) => {
                Item::Rejected { reason: none.reason().to_owned(), detail: none.to_string() }
            }
        }
    }

    /// Whether events of that type become leads.
    fn wants(&self, event_type: Option<&str>) -> bool {
        self.event_types.is_empty()
            || event_type.is_some_and(|it| self.event_types.iter().any(|wanted| wanted == it))
    }

    /// The request with everything that proves its sender: what the checks look for, each with its
    /// first secret.
    pub fn sign(&self, mut request: Request, now_epoch_s: i64) -> Result<Request, SignError> {
        // Signatures come first in the list, and they cover what the others write into body and query.
        for check in self.checks.iter().rev() {
            check.sign(&mut request, now_epoch_s)?;
        }
        Ok(request)
    }

    /// Headers beside `content-type`, in lower case, that a replay of a delivery needs. Never
    /// credentials, and the same on every retry.
    pub fn kept_headers(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.source.headers.to_vec();
        names.extend(self.mapping.headers());
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The body of a delivery for the archive: as it came, but without a key or a token that it carries.
    pub fn kept_body(&self, request: &Request) -> Bytes {
        let mut body = request.body.clone();
        for name in self.checks.iter().filter_map(Check::body_key) {
            body = signature::without_key(&Request { body, ..request.clone() }, name);
        }
        for tokens in self.checks.iter().map(Check::url_tokens).filter(|tokens| !tokens.is_empty())
        {
            body = signature::without_token(&body, tokens);
        }
        body
    }

    /// The query of a delivery without its token, for the archive.
    pub fn delivery_query(&self, query: &str) -> String {
        let is_token =
            |pair: &&str| form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name == TOKEN);
        query.split('&').filter(|pair| !is_token(pair)).collect::<Vec<_>>().join("&")
    }
}

/// A body in its parts; `body`: what they were cut out of.
struct Cut {
    parts: Vec<Value>,
    body: Option<Value>,
}

/// The one item of a delivery without parts, or with too many.
fn refusal(parts: usize) -> Option<Item> {
    let (reason, detail) = match parts {
        0 => ("no_leads", "the delivery holds no lead".to_owned()),
        n if n > MAX_ITEMS => {
            ("too_many_leads", format!("{n} leads in one delivery; at most {MAX_ITEMS}"))
        }
        _ => return None,
    };
    Some(Item::Rejected { reason: reason.to_owned(), detail })
}

fn document<'a>(part: &'a Value, body: Option<&'a Value>, request: &'a Request) -> Document<'a> {
    Document { part, body: body.unwrap_or(part), headers: &request.headers }
}

/// What a delivery becomes, and why.
#[derive(Debug, Default)]
pub struct Explained {
    /// One per lead, in order; at least one.
    pub parts: Vec<Part>,
    /// Values around the parts that no rule looks at.
    pub unmapped: Vec<Leaf>,
}

/// What one part becomes, and why.
#[derive(Debug)]
pub struct Part {
    /// As [`ConfiguredSource::read`] gives it.
    pub item: Item,
    /// What became of every path of the mapping; none of a part that is ignored.
    pub steps: Vec<Step>,
    /// Values of the part that no rule looks at.
    pub unmapped: Vec<Leaf>,
}

/// Nothing of its secrets.
impl fmt::Debug for ConfiguredSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredSource")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("trust", &self.trust)
            .field("untimed", &self.untimed)
            .finish_non_exhaustive()
    }
}

fn find(kind: &str) -> Result<&'static Source, SourceErrorKind> {
    SOURCES.iter().copied().find(|source| source.kind == kind).ok_or_else(|| {
        let kinds: Vec<&str> = SOURCES.iter().map(|source| source.kind).collect();
        let nearest = mapping::nearest_name(kind, kinds.iter().copied());
        SourceErrorKind::UnknownKind {
            kind: kind.to_owned(),
            hint: nearest.map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default(),
            known: kinds.join(", "),
        }
    })
}

fn split(
    source: &config::Source,
    kind: &'static Source,
) -> Result<Option<JsonPath>, SourceErrorKind> {
    match &source.split {
        None => Ok(None),
        Some(_) if !matches!(kind.auth, Auth::Written) => Err(SourceErrorKind::NotForKind {
            key: "split",
            kind: kind.kind,
            hint: "remove it: the kind knows how its deliveries are cut".into(),
        }),
        Some(path) => {
            mapping::compile_json_path("split", path).map(Some).map_err(SourceErrorKind::Mapping)
        }
    }
}

/// A line of `[source.fields]` as the mapping takes it.
pub fn written(target: &str, rule: &FieldRule) -> Written {
    let target = target.to_owned();
    match rule {
        FieldRule::One(path) => Written { target, from: vec![path.clone()], ..Written::default() },
        FieldRule::Many(paths) => Written { target, from: paths.clone(), ..Written::default() },
        FieldRule::Full(full) => Written {
            target,
            from: full.from.as_slice().to_vec(),
            via: full.via.clone(),
            value: full.value.clone(),
        },
    }
}

/// The configuration's word for how addresses fold.
pub fn folding(folding: EmailFolding) -> Folding {
    match folding {
        EmailFolding::None => Folding::None,
        EmailFolding::Plus => Folding::Plus,
        EmailFolding::Gmail => Folding::Gmail,
    }
}

fn region(code: Option<&String>) -> Result<Option<Region>, SourceErrorKind> {
    code.map(|code| Region::parse(code).ok_or_else(|| SourceErrorKind::BadRegion(code.clone())))
        .transpose()
}
