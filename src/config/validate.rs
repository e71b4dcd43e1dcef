//! The second pass: what a single value cannot show.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::{Config, Destination, OneOrMore, Signature, Source, Untimed, cron};

/// Something that may not stand, or that is legal and risky.
pub(super) struct Finding {
    /// Paths of the settings it is about; the first is where it is shown.
    pub about: Vec<String>,
    pub sentence: String,
    /// Refused, or only warned of.
    pub refused: bool,
}

/// Everything that is wrong or risky, in no particular order.
pub(super) fn validate(config: &Config) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    findings.sections(config);
    findings.sync(config);
    findings.names("source", config.sources.iter().map(|source| source.name.as_str()));
    findings.names("destination", config.destinations.iter().map(|d| d.name.as_str()));
    for (index, source) in config.sources.iter().enumerate() {
        findings.source(config, source, &format!("source[{index}]"));
    }
    for (index, destination) in config.destinations.iter().enumerate() {
        findings.destination(destination, &format!("destination[{index}]"));
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn refuse_if(&mut self, wrong: bool, about: &[&str], sentence: &str) {
        if wrong {
            self.push(about, sentence, true);
        }
    }

    fn warn_if(&mut self, risky: bool, about: &[&str], sentence: &str) {
        if risky {
            self.push(about, sentence, false);
        }
    }

    fn push(&mut self, about: &[&str], sentence: &str, refused: bool) {
        let about = about.iter().map(|path| (*path).to_owned()).collect();
        self.0.push(Finding { about, sentence: sentence.to_owned(), refused });
    }

    fn within(&mut self, path: &str, value: usize, range: RangeInclusive<usize>) {
        let sentence = format!("{value} is not within {} to {}", range.start(), range.end());
        self.refuse_if(!range.contains(&value), &[path], &sentence);
    }

    fn not_zero(&mut self, path: &str, value: Duration) {
        self.refuse_if(value.is_zero(), &[path], "must be longer than 0");
    }

    fn sections(&mut self, config: &Config) {
        let Config { database, http, log, .. } = config;
        self.refuse_if(config.data_dir.as_os_str().is_empty(), &["data_dir"], "is empty");

        // The upper ends keep sums and semaphores within what their types hold.
        self.within("database.receive_connections", database.receive_connections, 2..=1000);
        self.within("database.sync_connections", database.sync_connections, 1..=1000);
        self.not_zero("database.statement_timeout", database.statement_timeout);

        let max_body = http.max_body;
        self.refuse_if(
            !(1 << 10..=64 << 20).contains(&max_body),
            &["http.max_body"],
            "must be within 1KiB to 64MiB",
        );
        self.within("http.max_connections", http.max_connections, 1..=1_000_000);
        self.not_zero("http.header_timeout", http.header_timeout);
        self.not_zero("http.body_timeout", http.body_timeout);
        self.not_zero("http.request_timeout", http.request_timeout);
        self.not_zero("http.drain_timeout", http.drain_timeout);
        self.warn_if(
            http.body_timeout > http.request_timeout,
            &["http.body_timeout", "http.request_timeout"],
            "is longer than http.request_timeout, which ends the request first",
        );
        self.warn_if(
            database.statement_timeout > http.request_timeout,
            &["database.statement_timeout", "http.request_timeout"],
            "is longer than http.request_timeout: senders are told 503 while a statement still runs",
        );
        self.warn_if(
            !http.listen.ip().is_loopback() && http.admin_token.is_none(),
            &["http.listen", "http.admin_token"],
            "is open to other machines and http.admin_token is not set: /v1 answers this machine only",
        );

        self.region("leads.default_region", config.leads.default_region.as_deref());
        self.refuse_if(
            config.leads.keep_history.is_zero(),
            &["leads.keep_history", "leads.history"],
            "must be longer than 0; to keep none write leads.history = false",
        );
        if let Err(error) = EnvFilter::builder().parse(&log.level) {
            self.push(&["log.level"], &format!("not a log filter: {error}"), true);
        }
    }

    fn sync(&mut self, config: &Config) {
        let sync = &config.sync;
        if let Err(sentence) = cron(&sync.schedule) {
            self.push(&["sync.schedule"], &sentence, true);
        }
        self.not_zero("sync.poll", sync.poll);
        self.not_zero("sync.lease", sync.lease);
        self.not_zero("sync.call_timeout", sync.call_timeout);
        self.not_zero("sync.backoff_base", sync.backoff_base);
        self.refuse_if(
            // Once for the call, once for waiting for its turn, building it and settling.
            sync.lease < sync.call_timeout.saturating_mul(2),
            &["sync.lease", "sync.call_timeout"],
            "must be at least twice sync.call_timeout: a lead whose lease ends while it is being \
             sent would be sent by another instance at the same time",
        );
        self.refuse_if(
            sync.confirm_after <= sync.call_timeout,
            &["sync.confirm_after", "sync.call_timeout"],
            "must be longer than sync.call_timeout: a call of an earlier holder may still arrive \
             until then",
        );
        self.refuse_if(
            sync.backoff_base > sync.backoff_max,
            &["sync.backoff_base", "sync.backoff_max"],
            "must not be longer than sync.backoff_max",
        );
        self.warn_if(
            sync.lease > Duration::from_secs(3600),
            &["sync.lease"],
            "is longer than an hour: leads that an instance held when it died wait that long",
        );
    }

    /// Syntax and uniqueness of names.
    fn names<'a>(&mut self, list: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for (index, name) in names.enumerate() {
            let path = format!("{list}[{index}].name");
            let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-".contains(&c);
            self.refuse_if(
                !(1..=64).contains(&name.len()) || !name.bytes().all(plain),
                &[&path],
                "must be 1 to 64 of a to z, 0 to 9, - and _",
            );
            self.refuse_if(
                list == "source" && name == "api",
                &[&path],
                "\"api\" is what the leads of /v1/leads come from; write another name",
            );
            let sentence = format!("there is already a {list} named \"{name}\"");
            self.refuse_if(!seen.insert(name), &[&path], &sentence);
        }
    }

    fn region(&mut self, path: &str, region: Option<&str>) {
        let Some(region) = region else { return };
        let two_capitals = region.len() == 2 && region.bytes().all(|c| c.is_ascii_uppercase());
        self.refuse_if(
            !two_capitals || region.parse::<phonenumber::country::Id>().is_err(),
            &[path],
            "must be a country in two capital letters, like \"BR\"",
        );
    }

    fn source(&mut self, config: &Config, source: &Source, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        self.refuse_if(source.trust > 100, &[&at("trust")], "must be within 0 to 100");
        self.region(&at("default_region"), source.default_region.as_deref());
        self.refuse_if(
            config.deliveries.keep.is_zero() && source.untimed == Some(Untimed::FirstReceipt),
            &[&at("untimed"), "deliveries.keep"],
            "needs the archive, which remembers when a body came first, and deliveries.keep is 0",
        );
        self.warn_if(
            source.untimed == Some(Untimed::LastArrival),
            &[&at("untimed")],
            "last_arrival depends on the order of arrival: a redelivered old event overwrites newer values",
        );
        let custom = source.kind == "custom";
        self.refuse_if(
            source.signature.is_some() && !custom,
            &[&at("signature"), &at("kind")],
            "is for kind custom; other kinds know how their sender signs",
        );
        self.refuse_if(
            source.split.is_some() && !custom,
            &[&at("split"), &at("kind")],
            "is for kind custom; other kinds know what is one lead",
        );
        self.refuse_if(
            source.signature.is_some() && source.secret.is_empty(),
            &[&at("signature"), &at("secret")],
            "needs `secret`, the key that the sender signs with",
        );
        if let Some(signature) = &source.signature {
            self.signature(signature, &at("signature"));
        }
        if let Some(header) = &source.header {
            self.header(&at("header.name"), &header.name);
            self.not_empty(&at("header.value"), &header.value);
        }
        if let Some(key) = &source.body_key {
            self.refuse_if(key.name.is_empty(), &[&at("body_key.name")], "is empty");
            self.not_empty(&at("body_key.value"), &key.value);
        }
        if let Some(url) = &source.public_url {
            let whole = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
            self.refuse_if(
                !whole || url.contains(['?', '#']),
                &[&at("public_url")],
                "must begin with https:// and have no query: it is the address as the sender calls it",
            );
        }
        if let Some(url) = &source.base_url {
            self.base_url(&at("base_url"), url);
        }
        if let Some(basic) = &source.basic {
            self.refuse_if(
                basic.user.contains(':'),
                &[&at("basic.user")],
                "must not contain a colon (RFC 7617)",
            );
            self.not_empty(&at("basic.password"), &basic.password);
        }
    }

    fn signature(&mut self, signature: &Signature, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        self.header(&at("header"), &signature.header);
        if let Some(header) = &signature.timestamp_header {
            self.header(&at("timestamp_header"), header);
        }
        self.not_zero(&at("tolerance"), signature.tolerance);
        let visible = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        for (key, tag) in [("tag", &signature.tag), ("timestamp_tag", &signature.timestamp_tag)] {
            let Some(tag) = tag else { continue };
            self.refuse_if(
                tag.is_empty() || !visible(tag) || tag.contains([',', '=']),
                &[&at(key)],
                "must be one word without , and =, like `v1` of `t=1772720531,v1=HEX`",
            );
        }
        self.refuse_if(
            signature.prefix.starts_with(' ')
                || signature.prefix.bytes().any(|b| b != b' ' && !b.is_ascii_graphic())
                || (signature.tag.is_some() && signature.prefix.contains(',')),
            &[&at("prefix")],
            "must be visible ASCII, without a comma where `tag` says that the header is a list",
        );
        let timed = signature.timestamp_header.is_some() || signature.timestamp_tag.is_some();
        let one_header = timed
            && signature
                .timestamp_header
                .as_ref()
                .is_none_or(|header| header.eq_ignore_ascii_case(&signature.header));
        self.refuse_if(
            one_header && (signature.tag.is_none() || signature.timestamp_tag.is_none()),
            &[&at("tag"), &at("timestamp_tag")],
            "are both needed where digest and time are in one header",
        );
        self.refuse_if(
            one_header && signature.tag.is_some() && signature.tag == signature.timestamp_tag,
            &[&at("tag"), &at("timestamp_tag")],
            "are the same, so that digest and time could not be told apart",
        );
        if let Some(signed) = &signature.signed {
            self.refuse_if(
                signed.matches("{body}").count() != 1
                    || signed.matches("{time}").count() != usize::from(timed),
                &[&at("signed"), &at("timestamp_header")],
                "must name {body} once, and {time} once where a time is sent and not otherwise",
            );
        }
    }

    fn header(&mut self, path: &str, name: &str) {
        let valid = ::http::HeaderName::from_bytes(name.as_bytes()).is_ok();
        self.refuse_if(!valid, &[path], "is not the name of an HTTP header");
    }

    /// An empty list would let nobody in; nobody means that.
    fn not_empty<T>(&mut self, path: &str, values: &OneOrMore<T>) {
        self.refuse_if(values.is_empty(), &[path], "is empty");
    }

    fn destination(&mut self, destination: &Destination, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(concurrency) = destination.concurrency {
            self.within(&at("concurrency"), concurrency, 1..=1000);
        }
        self.within(&at("backfill_share"), destination.backfill_share.into(), 1..=100);
        self.refuse_if(destination.daily == Some(0), &[&at("daily")], "must be more than 0");
        for (key, url) in
            [("base_url", &destination.base_url), ("token_url", &destination.token_url)]
        {
            let Some(url) = url else { continue };
            self.base_url(&at(key), url);
        }
    }

    fn base_url(&mut self, path: &str, url: &str) {
        let plain = url.strip_prefix("http://");
        self.refuse_if(
            plain.or(url.strip_prefix("https://")).is_none_or(str::is_empty),
            &[path],
            "must begin with https:// (or http://)",
        );
        self.warn_if(
            plain.is_some_and(|rest| !is_local(rest)),
            &[path],
            "is not encrypted: personal data and credentials travel in the clear",
        );
    }
}

/// Whether what follows `http://` is this machine.
fn is_local(rest: &str) -> bool {
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = host.rsplit('@').next().unwrap_or(host);
    host.starts_with("[::1]")
        || matches!(host.split(':').next(), Some(name) if name == "localhost" || name.starts_with("127."))
}
