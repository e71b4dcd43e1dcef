//! Every kind of source, on anything.

use std::sync::LazyLock;

use leadsync::config::EmailFolding;
use leadsync::mapping::{Target, Via};
use leadsync::sources::{ConfiguredSource, FETCHED, Request, SOURCES, Split, Verified};
use serde_json::{Map, Value, json};

use super::leads;
use super::message::{message, request, rules, shown, source};

/// Each kind under two sets of rules; of kind `custom` one that asks for every target plainly and one that
/// asks with every conversion.
static ALL: LazyLock<Vec<ConfiguredSource>> = LazyLock::new(|| {
    let rules = [rules(Some("BR"), EmailFolding::None), rules(Some("DE"), EmailFolding::Gmail)];
    let mut all = Vec::new();
    for kind in SOURCES {
        for (fields, rules) in [plain(), converted()].into_iter().zip(&rules) {
            let fields = if kind.kind == "custom" { fields } else { json!({}) };
            let double = rules.email_folding == EmailFolding::Gmail;
            let mut written = json!({"name": "s", "kind": kind.kind, "url_token": "t", "fields": fields, "double_opt_in": double});
            // What kinds cannot do without whose deliveries say only ids.
            if matches!(kind.split, Split::Notices(_)) {
                written["secret"] = json!("s");
                written["token"] = json!("t");
            }
            match kind.kind {
                "meta" => written["verify_token"] = json!("v"),
                "hubspot-app" => written["public_url"] = json!("https://leads.example.com/hooks/s"),
                _ => {}
            }
            all.push(source(written, rules));
        }
    }
    all
});

/// Every target, from the member of its name at any depth, or else from another.
fn plain() -> Value {
    let names = Target::NAMES.into_iter().filter(|name| !name.starts_with("attributes"));
    let mut fields: Map<String, Value> =
        names.map(|name| (name.to_owned(), json!([format!("$..{name}"), "$.any"]))).collect();
    fields.insert("attributes.all".to_owned(), json!("$..*"));
    fields.insert("attributes.id".to_owned(), json!("$['@headers']['x-id']"));
    Value::Object(fields)
}

/// Every conversion that some target takes, from member `v`.
fn converted() -> Value {
    let mut fields = json!({"email": {"from": ["$.email", "$..v"], "via": "html"},
        "message": {"from": "$..v", "via": "html"}, "first_name": {"from": "$..v", "via": "first_word"},
        "last_name": {"from": "$..v", "via": "rest_words"}, "tags": {"from": "$..v", "via": "commas"},
        "clear": {"from": "$..clear", "via": "commas"}, "utm_source": {"from": "$..v", "via": "utm"},
        "phone": {"from": "$..v", "via": "join"}, "marketing_consent": {"from": "$..v", "via": "consent"},
        "city": {"from": "$..city", "value": "a constant"}, "occurred_at": {"from": "$..v", "via": "epoch_ms"}});
    // An attribute for each conversion that attributes take.
    fields["attributes"] = Value::Object(
        [Via::Lower, Via::List, Via::Html, Via::Phone, Via::Consent]
            .into_iter()
            .map(|via| (via.name().to_owned(), json!({"from": "$..v", "via": via.name()})))
            .collect(),
    );
    fields
}

/// The kind, or for anything else one of them by the bytes, so that mutations of it are no waste.
pub fn holds(data: &[u8]) {
    let message = message(data);
    let named = |source: &&ConfiguredSource| source.kind == message.line;
    let sources: Vec<&ConfiguredSource> = ALL.iter().filter(named).collect();
    let sum: usize = message.line.bytes().map(usize::from).sum();
    let sources = match sources.is_empty() {
        true => vec![&ALL[sum % ALL.len()]],
        false => sources,
    };
    for source in sources {
        reads_the_same_again(source, request(message.headers.clone(), message.body));
        // What such a kind reads at its sender's API is anything, too.
        let document = vec![("content-type".to_owned(), FETCHED.to_owned())];
        if source.is_document(message.body) {
            reads_the_same_again(source, request(document, message.body));
        }
    }
}

fn reads_the_same_again(source: &ConfiguredSource, mut request: Request) {
    let delivery = Verified::stored(request.clone());
    let Ok(items) = source.read(&delivery) else {
        assert!(source.explain(&delivery).is_err());
        return;
    };
    assert!(!items.is_empty());
    items.iter().for_each(leads::item);
    let explained = source.explain(&delivery).expect("what was read");
    let told: Vec<_> = explained.parts.iter().map(|part| &part.item).collect();
    assert_eq!(shown(&told), shown(&items.iter().collect::<Vec<_>>()));
    // What the archive keeps reads the same, and is kept whole the second time.
    let kept = source.kept_headers();
    request.headers.retain(|(name, _)| name == "content-type" || kept.contains(&name.as_str()));
    let body = source.kept_body(&request);
    if body == request.body {
        let again = source.read(&Verified::stored(request)).expect("what was read");
        assert_eq!(shown(&again), shown(&items));
    } else {
        let once = leadsync::sources::Request { body, ..request };
        assert_eq!(source.kept_body(&once), once.body);
    }
}
