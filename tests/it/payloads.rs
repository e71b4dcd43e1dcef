//! Payloads that nobody sampled, over HTTP into a real table: people of other countries, what forms let
//! them type, and what serialisers make of it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use leadsync::app::Roles;
use leadsync::sources::{ConfiguredSource, Request};
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::wire::gzip;

const RECEIVE: Roles = Roles { receive: true, sync: false };
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const NOW: i64 = 1_772_720_600;

/// What must become of one lead of a delivery.
#[derive(Debug)]
enum Is {
    /// Stored as new under that address, with these columns; `errors` are the fields that could not be used.
    Lead(&'static str, Value),
    Rejected(&'static str),
    Ignored(&'static str),
}

use Is::{Ignored, Lead, Rejected};

/// A source of every kind that these tests need, each proven in its own way.
async fn app() -> TestApp {
    let token = "a-token-of-ours";
    let unsigned = |kind: &str, region: &str| json!({"name": kind, "kind": kind, "url_token": token, "default_region": region});
    let signed = |kind: &str, region: &str| json!({"name": kind, "kind": kind, "secret": "c2VjcmV0LW9mLXRoZS10ZXN0cw==", "default_region": region});
    let custom = |name: &str, more: Value| {
        let signature = json!({"header": "X-Sig", "timestamp_header": "X-Time"});
        let mut source = json!({"name": name, "kind": "custom", "secret": "s3cret", "signature": signature, "default_region": "US"});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        source
    };
    let mut segment = signed("segment", "US");
    segment["url_token"] = json!(token);
    let sources = [
        unsigned("elementor", "DE"),
        unsigned("jotform", "PT"),
        unsigned("gravityforms", "DE"),
        unsigned("rdstation", "BR"),
        unsigned("tiktok", "BR"),
        unsigned("json", "JP"),
        unsigned("cf7", "PT"),
        unsigned("unbounce", "US"),
        signed("typeform", "BR"),
        signed("shopify", "JP"),
        signed("google-ads", "BR"),
        signed("tally", "DE"),
        signed("calendly", "PT"),
        signed("stripe", "US"),
        signed("intercom", "US"),
        signed("webflow", "US"),
        signed("wpforms", "DE"),
        signed("standard-webhooks", "US"),
        segment,
        custom(
            "crm",
            json!({"split": "$.persons[*]", "fields": {"email": "$.contact.mail", "full_name": "$.contact.name",
            "phone": "$.contact.phones[?@.kind=='mobile'].number", "occurred_at": {"from": "$.ts", "via": "epoch_ms"},
            "event_type": "$['@body'].event", "attributes": {"id": "$.id", "score": "$.score"}}}),
        ),
        custom(
            "answers",
            json!({"fields": {"email": "$.email", "attributes": ["$.missing", "$.answers"]}}),
        ),
        custom(
            "seconds",
            json!({"fields": {"email": "$.email", "occurred_at": {"from": "$.t", "via": "epoch_s"}}}),
        ),
        custom(
            "local",
            json!({"fields": {"email": "$.email", "occurred_at": {"from": "$.t", "via": "utc_datetime"}}}),
        ),
    ];
    let text = toml::to_string(&json!({"source": sources})).unwrap();
    let app = TestApp::spawn_with(&text, RECEIVE).await;
    app.set_now(NOW);
    app
}

/// The delivery as its sender proves it.
fn proven(app: &TestApp, source: &str, content_type: &str, body: &[u8]) -> Request {
    let configured = app.config.sources.iter().find(|configured| configured.name == source);
    let configured = ConfiguredSource::compile(configured.unwrap(), &app.config.leads).unwrap();
    let request = Request {
        method: "POST".into(),
        query: String::new(),
        headers: vec![("content-type".into(), content_type.into())],
        body: body.to_vec().into(),
    };
    configured.sign(request, NOW).unwrap()
}

async fn post(app: &TestApp, source: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
    let request = proven(app, source, content_type, body);
    let headers: Vec<(&str, &str)> = request.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    app.post(&format!("/hooks/{source}?{}", request.query), &headers, request.body.clone()).await
}

/// Delivers and looks at the answer, at the leads and at what the archive says of their fields.
async fn becomes(app: &TestApp, source: &str, content_type: &str, body: &str, all: &[Is]) {
    let (status, answer) = post(app, source, content_type, body.as_bytes()).await;
    judge(app, source, body, (status, answer), all).await;
}

async fn judge(app: &TestApp, source: &str, body: &str, answer: (u16, Value), all: &[Is]) {
    let about = format!("{source} {}", body.chars().take(300).collect::<String>());
    assert_eq!(answer.0, 200, "{about}: {}", answer.1);
    let outcomes = answer.1["outcomes"].as_array().cloned().unwrap_or_else(|| vec![answer.1]);
    assert_eq!(outcomes.len(), all.len(), "{about}: {outcomes:?}");
    let items =
        "select items from leadsync.deliveries order by received_at desc, delivery_id desc limit 1";
    let items: Option<Value> = app.value(items).await;
    for (n, (outcome, is)) in outcomes.iter().zip(all).enumerate() {
        match is {
            Rejected(reason) => {
                assert_eq!(*outcome, json!({"outcome": "rejected", "reason": reason}), "{about}");
            }
            Ignored(reason) => {
                assert_eq!(*outcome, json!({"outcome": "ignored", "reason": reason}), "{about}");
            }
            Lead(email, columns) => {
                assert_eq!(outcome["outcome"], "created", "{about}: {outcome}");
                let escaped: String = form_urlencoded::byte_serialize(email.as_bytes()).collect();
                let (status, view) = app.get(&format!("/v1/leads/{escaped}")).await;
                assert_eq!(status, 200, "{about}: {email}: {view}");
                assert_eq!(view["email"], *email, "{about}");
                let errors = items.as_ref().map(|items| &items[n]["field_errors"]);
                let errors = errors.and_then(Value::as_object).into_iter().flatten();
                let errors: BTreeSet<&String> = errors.map(|(field, _)| field).collect();
                let columns = columns.as_object().unwrap();
                for (column, value) in columns.iter().filter(|(column, _)| *column != "errors") {
                    let given = column.split('.').fold(&view["lead"], |at, name| &at[name]);
                    assert_eq!(given, value, "{about}: {column}");
                }
                let expected = columns.get("errors").cloned().unwrap_or(json!([]));
                assert_eq!(json!(errors), expected, "{about}");
            }
        }
    }
}

/// Parts of a multipart body with the boundary `x`.
fn multipart(parts: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    parts.iter().map(part).collect::<String>() + "--x--\r\n"
}

const MULTIPART: &str = "multipart/form-data; boundary=x";

// People

#[tokio::test]
async fn names_and_phones_of_four_countries() {
    let app = app().await;
    let typeform = json!({"event_id": "e1", "event_type": "form_response", "form_response": {
        "submitted_at": "2026-03-05T14:22:10Z",
        "definition": {"fields": [{"id": "1", "title": "Nome completo"}, {"id": "2", "title": "Celular"}]},
        // A Mac sends accents on their own.
        "answers": [{"type": "text", "text": " Jose\u{301}  da Silva", "field": {"id": "1", "type": "short_text"}},
            {"type": "email", "email": "Jose.Silva@Example.COM ", "field": {"id": "3", "type": "email"}},
            {"type": "text", "text": "(11) 91234-5678", "field": {"id": "2", "type": "short_text"}}]}});
    let is = json!({"full_name": "José da Silva", "first_name": "José", "last_name": "da Silva", "phone": "+5511912345678"});
    let typeform = typeform.to_string();
    becomes(&app, "typeform", JSON, &typeform, &[Lead("jose.silva@example.com", is)]).await;

    let is = json!({"full_name": "Ursula von der Leyen", "first_name": "Ursula", "last_name": "von der Leyen",
        "phone": "+494066969321", "company": "Müller & Söhne"});
    let elementor = "Name=Ursula+von+der+Leyen&E-Mail=+Ursula%2BNews%40Example.com&Telefon=%2B49+%280%2940+66969-321&Firma=M%C3%BCller+%26+S%C3%B6hne";
    becomes(&app, "elementor", FORM, elementor, &[Lead("ursula+news@example.com", is)]).await;
    for (n, national) in
        ["040%2F66969321", "0049+%280%2940+66969-321", "%2B49+40+66969321", "494066969321"]
            .iter()
            .enumerate()
    {
        let body = format!("E-Mail=de{n}%40example.com&Telefon={national}");
        let email: &str =
            ["de0@example.com", "de1@example.com", "de2@example.com", "de3@example.com"][n];
        becomes(&app, "elementor", FORM, &body, &[Lead(email, json!({"phone": "+494066969321"}))])
            .await;
    }

    // HTML entities are Jotform's own; whoever else sends them means them.
    let raw = json!({"q3_nomeCompleto": {"first": "Jo&atilde;o", "last": "d&#39;Almeida e S&aacute;"}, "q4_email": "joao.sa@example.com",
        "q5_telemovel": {"full": "912 345 678"}, "q6_empresa": "Sá &amp; Filhos"});
    let is = json!({"first_name": "João", "last_name": "d'Almeida e Sá", "phone": "+351912345678", "company": "Sá & Filhos"});
    let body =
        multipart(&[("formID", "1"), ("submissionID", "77"), ("rawRequest", &raw.to_string())]);
    becomes(&app, "jotform", MULTIPART, &body, &[Lead("joao.sa@example.com", is)]).await;
    let is = json!({"full_name": "Rui &amp; Ana", "phone": "+351212345678"});
    let cf7 = json!({"your-name": "Rui &amp; Ana", "your-email": "rui@example.com", "tel": "(+351) 212 345 678"});
    becomes(&app, "cf7", JSON, &cf7.to_string(), &[Lead("rui@example.com", is)]).await;

    // Japanese keyboards are left in full width. The family name comes first there, and a whole name is
    // split at its first blank all the same; か with its mark on its own is が.
    let is = json!({"full_name": "田中 花子", "first_name": "田中", "last_name": "花子", "phone": "+819012345678",
        "city": "東京", "company": "がく株式会社", "email_as_typed": "Ｔａｎａｋａ＠ｅｘａｍｐｌｅ．ｊｐ"});
    let lead = json!({"email": "Ｔａｎａｋａ＠ｅｘａｍｐｌｅ．ｊｐ", "name": "田中\u{3000}花子", "phone": "０９０－１２３４－５６７８",
        "city": "東京", "company": "か\u{3099}く株式会社"});
    becomes(&app, "json", JSON, &lead.to_string(), &[Lead("tanaka@example.jp", is)]).await;
    for (email, typed) in [
        ("jp0@example.jp", "（０３）１２３４ー５６７８"),
        ("jp1@example.jp", "+81 (0)3-1234-5678"),
        ("jp2@example.jp", "＋８１－３－１２３４－５６７８"),
        ("jp3@example.jp", "0081 3 1234 5678"),
        ("jp4@example.jp", "81312345678"),
    ] {
        let lead = json!({"email": email, "phone": typed}).to_string();
        becomes(&app, "json", JSON, &lead, &[Lead(email, json!({"phone": "+81312345678"}))]).await;
    }
    let customer = json!({"id": 9_007_199_254_740_993_u64, "email": "hanako@example.jp", "first_name": "花子", "last_name": "山田",
        "phone": null, "default_address": {"phone": "090-1234-5678", "company": "ﾔﾏﾀﾞ"}, "updated_at": "2026-03-05T23:22:10+09:00"});
    let is = json!({"first_name": "花子", "last_name": "山田", "full_name": null, "phone": "+819012345678", "company": "ﾔﾏﾀﾞ",
        "last_seen_at": "2026-03-05T14:22:10Z"});
    becomes(&app, "shopify", JSON, &customer.to_string(), &[Lead("hanako@example.jp", is)]).await;

    let column = |id: &str, value: &str| json!({"column_id": id, "string_value": value});
    let google = json!({"lead_id": "TeSt", "user_column_data": [column("FULL_NAME", "Maria das Graças de Souza e Silva"),
        column("EMAIL", "maria@example.com"), column("PHONE_NUMBER", "+55 (0)21 98765-4321")]});
    let is = json!({"first_name": "Maria", "last_name": "das Graças de Souza e Silva", "phone": "+5521987654321"});
    becomes(&app, "google-ads", JSON, &google.to_string(), &[Lead("maria@example.com", is)]).await;

    let tally = json!({"eventId": "t1", "eventType": "FORM_RESPONSE", "data": {"createdAt": "2026-03-05T14:22:10.000Z", "fields": [
        {"label": "Ihr Name", "type": "INPUT_TEXT", "value": "Jürgen Groß"}, {"label": "x", "type": "INPUT_EMAIL", "value": "juergen@example.de"},
        {"label": "y", "type": "INPUT_PHONE_NUMBER", "value": "0171 2345678"}, {"label": "Stadt", "type": "DROPDOWN", "value": ["1"],
         "options": [{"id": "1", "text": "Köln"}]}]}});
    let is = json!({"first_name": "Jürgen", "last_name": "Groß", "phone": "+491712345678", "city": "Köln"});
    becomes(&app, "tally", JSON, &tally.to_string(), &[Lead("juergen@example.de", is)]).await;

    let gravity = json!({"id": "9", "date_created": "2026-03-05 14:22:10", "1.3": "Anna", "1.6": "von Trapp", "E-Mail-Adresse": "anna@example.at",
        "Telefon": "+43 1 5123456"});
    let is = json!({"first_name": "Anna", "last_name": "von Trapp", "phone": "+4315123456", "last_seen_at": "2026-03-05T14:22:10Z"});
    becomes(&app, "gravityforms", JSON, &gravity.to_string(), &[Lead("anna@example.at", is)]).await;

    let calendly = json!({"event": "invitee.created", "payload": {"email": "inês@example.pt", "name": "Inês", "text_reminder_number": null,
        "created_at": "2026-03-05T14:22:10.123456Z", "questions_and_answers": [{"question": "Telefone", "answer": "+351 912 345 678"}]}});
    let is = json!({"first_name": "Inês", "last_name": null, "phone": "+351912345678", "last_seen_at": "2026-03-05T14:22:10.123456Z"});
    becomes(&app, "calendly", JSON, &calendly.to_string(), &[Lead("inês@example.pt", is)]).await;
}

#[tokio::test]
async fn phones_that_are_none_cost_the_phone_and_not_the_lead() {
    let app = app().await;
    for (email, typed) in [
        ("p0@example.com", json!("não tenho")),
        ("p1@example.com", json!("123")),
        ("p2@example.com", json!("11 91234-5678 / 11 91234-5679")),
        ("p3@example.com", json!("+99 1234 5678")),
        ("p4@example.com", json!("9".repeat(300))),
        ("p5@example.com", json!({"number": "1"})),
    ] {
        let lead = json!({"email": email, "phone": typed, "city": "Recife"}).to_string();
        let is = json!({"phone": null, "city": "Recife", "errors": ["phone"]});
        becomes(&app, "json", JSON, &lead, &[Lead(email, is)]).await;
    }
    // A mobile number first, then the other; JSON numbers are numbers too.
    let contact = json!({"event_type": "WEBHOOK.CONVERTED", "contact": {"email": "rd@example.com", "mobile_phone": "", "personal_phone": "48 30252598"}});
    let is = json!({"phone": "+554830252598"});
    becomes(&app, "rdstation", JSON, &contact.to_string(), &[Lead("rd@example.com", is)]).await;
    let contact = json!({"leads": [{"email": "rd2@example.com", "mobile_phone": 5_511_912_345_678_u64, "personal_phone": "48 30252598"}]});
    let is = json!({"phone": "+5511912345678"});
    becomes(&app, "rdstation", JSON, &contact.to_string(), &[Lead("rd2@example.com", is)]).await;
}

// Addresses

#[tokio::test]
async fn addresses_as_people_type_them() {
    let app = app().await;
    for (typed, email) in [
        (" \t\u{a0}Padded@Example.COM\r\n", "padded@example.com"),
        ("PLUS+Tag@Example.com", "plus+tag@example.com"),
        ("dots.kept@gmail.com", "dots.kept@gmail.com"),
        ("idn@BÜCHER.example", "idn@xn--bcher-kva.example"),
        ("idn2@xn--BCHER-kva.example.", "idn2@xn--bcher-kva.example"),
        ("jp@日本語.jp", "jp@xn--wgv71a119e.jp"),
        ("jp2@例え。テスト", "jp2@xn--r8jz45g.xn--zckzah"),
        ("rtl@שלום.example", "rtl@xn--9dbne9b.example"),
        ("\u{202e}\u{200f}hidden\u{200b}\u{2060}@exam\u{ad}ple.com\u{feff}", "hidden@example.com"),
        ("jose\u{301}@example.com", "josé@example.com"),
        ("o'brien@example.com", "o'brien@example.com"),
        ("x_-.!#$%&'*+/=?^`{|}~@example.com", "x_-.!#$%&'*+/=?^`{|}~@example.com"),
        ("MailTo:link@example.com?subject=Oi", "link@example.com"),
    ] {
        let lead = json!({"email": typed}).to_string();
        becomes(&app, "json", JSON, &lead, &[Lead(email, json!({}))]).await;
    }
    for typed in [
        json!(""),
        json!(" \u{3000}\u{200b}"),
        json!(null),
        json!([]),
        json!({}),
        json!(["a@example.com", "b@example.com"]),
        json!({"address": "a@example.com"}),
    ] {
        let lead = json!({"email": typed, "name": "Ana", "userId": "ana@example.com"}).to_string();
        becomes(&app, "json", JSON, &lead, &[Rejected("no_email")]).await;
    }
    for typed in [
        json!(5),
        json!(true),
        json!("Ana <ana@example.com>"),
        json!("a@example.com b@example.com"),
        json!("a\n@example.com"),
        json!("a@example"),
        json!("a@ex_ample.com"),
        json!("a@.example.com"),
        json!("a＠b@example.com"),
        json!(format!("a@{}.com", "ü".repeat(64))),
    ] {
        let lead = json!({"email": typed}).to_string();
        becomes(&app, "json", JSON, &lead, &[Rejected("invalid_email")]).await;
    }
    // A list of one is that one, as forms with check boxes and Unbounce send everything.
    let body = json!({"email": ["  One@Example.com "], "name": ["Ana Luz"]}).to_string();
    becomes(&app, "unbounce", JSON, &body, &[Lead("one@example.com", json!({"last_name": "Luz"}))])
        .await;
    // Blank and missing, kind by kind.
    for (source, content_type, body) in [
        ("typeform", JSON, json!({"event_type": "form_response", "form_response": {"answers": []}}).to_string()),
        ("typeform", JSON, json!({"event_type": "form_response", "form_response": {"answers": [{"type": "email", "email": " "}]}}).to_string()),
        ("shopify", JSON, json!({"id": 1, "email": null, "phone": "+5511912345678"}).to_string()),
        ("google-ads", JSON, json!({"user_column_data": []}).to_string()),
        ("tally", JSON, json!({"data": {"fields": [{"type": "INPUT_EMAIL", "value": null}]}}).to_string()),
        ("stripe", JSON, json!({"type": "customer.created", "data": {"object": {"email": null}}}).to_string()),
        ("intercom", JSON, json!({"topic": "contact.lead.created", "data": {"item": {"email": null}}}).to_string()),
        ("gravityforms", FORM, "1.3=Anna&E-Mail=+".to_owned()),
        ("elementor", FORM, "E-mail=&Name=Ana".to_owned()),
        ("jotform", MULTIPART, multipart(&[("rawRequest", "{\"q4_email\":\"\"}")])),
        ("jotform", MULTIPART, multipart(&[("rawRequest", "not JSON")])),
        ("calendly", JSON, json!({"event": "invitee.created", "payload": {}}).to_string()),
    ] {
        becomes(&app, source, content_type, &body, &[Rejected("no_email")]).await;
    }
}

// Deliveries of several leads

#[tokio::test]
async fn a_bad_lead_of_a_batch_harms_only_itself() {
    let app = app().await;
    let leads = json!({"leads": [{"email": "b1@example.com", "name": "B Um"}, {"email": "nobody"}, {"name": "Sem"}, 5, null, [],
        {"email": "B2@example.com", "contact_owner_email": "seller@example.com"}], "unknown": {"x": []}});
    let all = [
        Lead("b1@example.com", json!({"last_name": "Um"})),
        Rejected("invalid_email"),
        Rejected("no_email"),
        Rejected("no_email"),
        Rejected("no_email"),
        Rejected("no_email"),
        Lead("b2@example.com", json!({"full_name": null})),
    ];
    becomes(&app, "rdstation", JSON, &leads.to_string(), &all).await;

    let identify =
        |traits: Value| json!({"type": "identify", "userId": "user@example.com", "traits": traits});
    let events = json!([identify(json!({"email": "s1@example.com"})), {"type": "track", "event": "Signed Up"}, identify(json!({})),
        identify(json!({"email": "s2@example.com", "company": {"name": "Zwei"}})), identify(json!({"email": "s3@example.com", "company": "Drei"}))]);
    let all = [
        Lead("s1@example.com", json!({})),
        Ignored("event_type"),
        Rejected("no_email"),
        Lead("s2@example.com", json!({"company": "Zwei"})),
        Lead("s3@example.com", json!({"company": "Drei"})),
    ];
    becomes(&app, "segment", JSON, &events.to_string(), &all).await;

    let entry = |answers: &[(&str, &str)]| {
        let changes: Vec<Value> =
            answers.iter().map(|(field, value)| json!({"field": field, "value": value})).collect();
        json!({"id": "7", "create_time": 1_772_720_530, "changes": changes})
    };
    let body = json!({"object": 1, "entry": [entry(&[("Email", "t1@example.com"), ("Nome", "Ana Luz")]),
        entry(&[("Email", "t@"), ("Nome", "Ana")]), entry(&[("email", "<test lead: dummy data for email>")])]});
    let is = json!({"first_name": "Ana", "last_seen_at": "2026-03-05T14:22:10Z"});
    let all = [Lead("t1@example.com", is), Rejected("invalid_email"), Ignored("test")];
    becomes(&app, "tiktok", JSON, &body.to_string(), &all).await;

    let person = |mail: &str, number: &str| {
        json!({"id": 18_446_744_073_709_551_615_u64, "score": 0.1, "ts": "1772720530123", "contact": {"mail": mail, "name": "Ana von Au",
            "phones": [{"kind": "home", "number": "1"}, {"kind": "mobile", "number": number}]}})
    };
    let body = json!({"event": "lead", "persons": [person("c1@example.com", "206-555-0142"), person("", ""), person("c2@example.com", "x")]});
    let is = json!({"last_name": "von Au", "phone": "+12065550142", "attributes.id": "18446744073709551615", "attributes.score": "0.1",
        "last_seen_at": "2026-03-05T14:22:10.123Z"});
    let bad_phone = json!({"phone": null, "errors": ["phone"]});
    let all = [Lead("c1@example.com", is), Rejected("no_email"), Lead("c2@example.com", bad_phone)];
    becomes(&app, "crm", JSON, &body.to_string(), &all).await;

    // Twice the same person is one lead.
    let body = json!([{"email": "twin@example.com", "city": "Recife"}, {"email": " TWIN@example.com", "company": "Aurora"}]);
    let (status, answer) = post(&app, "json", JSON, body.to_string().as_bytes()).await;
    assert_eq!(
        (status, &answer["outcomes"][0]["lead_id"]),
        (200, &answer["outcomes"][1]["lead_id"])
    );
    let (_, view) = app.get("/v1/leads/twin@example.com").await;
    assert_eq!(
        (&view["lead"]["city"], &view["lead"]["company"]),
        (&json!("Recife"), &json!("Aurora"))
    );

    for (source, body) in [
        ("rdstation", json!({"leads": []})),
        ("tiktok", json!({"entry": []})),
        ("json", json!([])),
        ("segment", json!([])),
        ("crm", json!({"persons": []})),
        ("crm", json!({"people": [1]})),
        ("crm", json!([])),
    ] {
        // An empty batch has no first element that could be signed.
        if source != "segment" {
            becomes(&app, source, JSON, &body.to_string(), &[Rejected("no_leads")]).await;
        }
    }
}

// Sizes and members

#[tokio::test]
async fn values_are_kept_whole_or_not_at_all() {
    let app = app().await;
    let exact = "é".repeat(256);
    let message = "ü".repeat(8 * 1024);
    let lead = json!({"email": "exact@example.com", "city": exact, "message": message, "website": "w".repeat(2048),
        "attributes": {"a": "ß".repeat(1024), "n".repeat(128): "1"}, "tags": ["t".repeat(128)], "utm_source": "u".repeat(512)});
    let mut is = json!({"city": exact, "message": message, "website": "w".repeat(2048), "tags": ["t".repeat(128)], "utm_source": "u".repeat(512)});
    is["attributes.a"] = json!("ß".repeat(1024));
    is[format!("attributes.{}", "n".repeat(128))] = json!("1");
    becomes(&app, "json", JSON, &lead.to_string(), &[Lead("exact@example.com", is)]).await;

    let lead = json!({"email": "over@example.com", "city": format!("{exact}x"), "message": format!("{message}x"), "website": "w".repeat(2049),
        "attributes": {"a": "x".repeat(2049), "b": "1"}, "tags": ["t".repeat(129), "kept"], "utm_source": "u".repeat(513), "company": "Aurora"});
    let is = json!({"city": null, "message": null, "website": null, "attributes.a": null, "attributes.b": "1", "tags": ["kept"],
        "utm_source": null, "company": "Aurora", "errors": ["attributes.a", "city", "message", "tags", "utm_source", "website"]});
    becomes(&app, "json", JSON, &lead.to_string(), &[Lead("over@example.com", is)]).await;

    // Only what is left after cleaning counts.
    let padded = format!("{}{}{}", " ".repeat(900), "x".repeat(512), " ".repeat(900));
    let lead = json!({"email": "cleaned@example.com", "city": padded}).to_string();
    becomes(
        &app,
        "json",
        JSON,
        &lead,
        &[Lead("cleaned@example.com", json!({"city": "x".repeat(512)}))],
    )
    .await;

    let many: serde_json::Map<String, Value> =
        (0..150).map(|n| (format!("k{n:03}"), json!(n))).collect();
    let tags: Vec<String> = (0..150).map(|n| format!("t{n}")).collect();
    let lead = json!({"email": "many@example.com", "attributes": many, "tags": tags}).to_string();
    let is =
        json!({"attributes.k099": "99", "attributes.k100": null, "errors": ["attributes", "tags"]});
    becomes(&app, "json", JSON, &lead, &[Lead("many@example.com", is)]).await;
    let (_, view) = app.get("/v1/leads/many@example.com").await;
    assert_eq!(view["lead"]["tags"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn members_nobody_knows_change_nothing() {
    let app = app().await;
    let deep = (0..100).fold(json!({"email": "deep@example.com"}), |inner, _| json!({"x": inner}));
    let lead = json!({"email": "extra@example.com", "EMAIL ": "other@example.com", "company": "Aurora", "unknown": deep, "list": [[], {}, [[]]],
        "__proto__": {"email": "x@example.com"}, "@found": {"email": "found@example.com"}, "@body": 1, "": ""});
    becomes(
        &app,
        "json",
        JSON,
        &lead.to_string(),
        &[Lead("extra@example.com", json!({"company": "Aurora"}))],
    )
    .await;
    // What leadsync keeps its own findings under is nothing a sender may write.
    let lead = json!({"@found": {"email": "found@example.com"}}).to_string();
    becomes(&app, "json", JSON, &lead, &[Rejected("no_email")]).await;
    for (source, body) in [
        (
            "stripe",
            json!({"type": "customer.created", "@found": {"email": "f@example.com"}, "data": {"object": {}}}),
        ),
        ("crm", json!({"persons": [{"@found": {"email": "f@example.com"}}]})),
    ] {
        becomes(&app, source, JSON, &body.to_string(), &[Rejected("no_email")]).await;
    }
    // A name given twice: in JSON the last counts, in a form it is a list, and a list of addresses is none.
    let twice = r#"{"email":"first@example.com","city":"Recife","email":"last@example.com","city":"Olinda"}"#;
    becomes(&app, "json", JSON, twice, &[Lead("last@example.com", json!({"city": "Olinda"}))])
        .await;
    becomes(
        &app,
        "json",
        FORM,
        "email=a%40example.com&email=b%40example.com",
        &[Rejected("no_email")],
    )
    .await;
    let is = json!({"tags": ["a", "b"], "city": "Recife", "attributes.x": "1"});
    let form = "email=form%40example.com&tags[]=a&tags[]=b&city=Recife&city_=&attributes[x]=1&unknown[a][b]=c";
    becomes(&app, "json", FORM, form, &[Lead("form@example.com", is)]).await;
    // PHP writes an empty object as an empty list.
    let lead = r#"{"email":"php@example.com","attributes":[],"tags":[],"clear":[],"city":[],"company":{}}"#;
    becomes(
        &app,
        "json",
        JSON,
        lead,
        &[Lead("php@example.com", json!({"city": null, "company": null}))],
    )
    .await;
}

#[tokio::test]
async fn an_object_of_answers_becomes_attributes() {
    let app = app().await;
    let body = json!({"email": "answers@example.com", "answers": {"Größe": 38, " budget\u{200b} ": "10k", "blank": "", "list": ["one"], "odd": [1, 2]}});
    let is = json!({"attributes.Größe": "38", "attributes.budget": "10k", "attributes.blank": null, "attributes.list": "one",
        "errors": ["attributes.odd"]});
    becomes(&app, "answers", JSON, &body.to_string(), &[Lead("answers@example.com", is)]).await;
}

#[tokio::test]
async fn signatures_are_over_what_was_zipped() {
    let app = app().await;
    let body = json!({"event_type": "form_response", "form_response": {"answers": [{"type": "email", "email": "zip@example.com"}]}}).to_string();
    let request = proven(&app, "typeform", JSON, body.as_bytes());
    let mut headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    headers.push(("content-encoding", "gzip"));
    let answer = app.post("/hooks/typeform", &headers, gzip(body.as_bytes())).await;
    judge(&app, "typeform", &body, answer, &[Lead("zip@example.com", json!({}))]).await;
}

// Times and numbers

#[tokio::test]
async fn times_of_every_spelling() {
    let app = app().await;
    let at = "2026-03-05T14:22:10Z";
    for (n, (typed, time)) in [
        ("2026-03-05T14:22:10Z", at),
        ("2026-03-05t14:22:10z", at),
        (" 2026-03-05 14:22:10+0000 ", at),
        ("2026-03-05T11:22:10-03:00", at),
        ("2026-03-05T23:22:10+09", at),
        ("2026-03-06T04:22:10+1400", at),
        ("2026-03-05T14:22:10.999999999Z", "2026-03-05T14:22:10.999999Z"),
        ("2026-03-05T14:22:10.5Z", "2026-03-05T14:22:10.5Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
    ]
    .into_iter()
    .enumerate()
    {
        let email: &'static str = format!("time{n}@example.com").leak();
        let lead = json!({"email": email, "occurred_at": typed}).to_string();
        becomes(&app, "json", JSON, &lead, &[Lead(email, json!({"last_seen_at": time}))]).await;
    }
    // None of these is a point in time: the event counts with its receipt, and the archive says why.
    let before = Timestamp::now();
    for (n, typed) in [
        json!("2026-03-05T14:22:10"),
        json!("2026-03-05"),
        json!("05/03/2026 14:22"),
        json!("2026-02-30T00:00:00Z"),
        json!("2026-03-05T24:00:00Z"),
        json!("0000-12-31T23:59:59Z"),
        json!("10000-01-01T00:00:00Z"),
        json!("-0001-01-01T00:00:00Z"),
        json!("2026-03-05T14:22:10Z[Europe/Paris]"),
        json!("now"),
        json!("infinity"),
        json!("1772720530"),
        json!(1_772_720_530),
        json!({"date": at}),
    ]
    .into_iter()
    .enumerate()
    {
        let email: &'static str = format!("notime{n}@example.com").leak();
        let lead = json!({"email": email, "occurred_at": typed}).to_string();
        becomes(&app, "json", JSON, &lead, &[Lead(email, json!({"errors": ["occurred_at"]}))])
            .await;
        let (_, view) = app.get(&format!("/v1/leads/{email}")).await;
        let seen: Timestamp = view["lead"]["last_seen_at"].as_str().unwrap().parse().unwrap();
        assert!(
            seen >= before.round(jiff::Unit::Microsecond).unwrap() && seen <= Timestamp::now(),
            "{typed}"
        );
    }
    // Times that nobody can mean are times, and harm nothing.
    for (n, typed) in
        ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1970-01-01T00:00:00Z"]
            .iter()
            .enumerate()
    {
        let email: &'static str = format!("odd{n}@example.com").leak();
        let lead = json!({"email": email, "occurred_at": typed, "city": "Recife"}).to_string();
        becomes(&app, "json", JSON, &lead, &[Lead(email, json!({"city": "Recife"}))]).await;
        let lead = json!({"email": email, "occurred_at": at, "city": "Olinda"}).to_string();
        let (_, answer) = post(&app, "json", JSON, lead.as_bytes()).await;
        assert_eq!(answer["outcome"], "updated", "{typed}");
    }
    for (source, typed, time) in [
        ("seconds", json!(1_772_720_530), Some(at)),
        ("seconds", json!("1772720530"), Some(at)),
        ("seconds", json!(1_772_720_530.25), Some("2026-03-05T14:22:10.25Z")),
        ("seconds", json!("1772720530.1234569"), Some("2026-03-05T14:22:10.123456Z")),
        // No event is older than 2000.
        ("seconds", json!(-1), Some("2000-01-01T00:00:00Z")),
        ("seconds", json!(1_772_720_530_000_u64), None),
        ("seconds", json!("2026-03-05"), None),
        ("seconds", json!("1e9"), None),
        ("local", json!("2026-03-05 14:22:10"), Some(at)),
        ("local", json!("2026-03-05T14:22:10.000001"), Some("2026-03-05T14:22:10.000001Z")),
        ("local", json!("2026-03-05 14:22:10Z"), None),
        ("local", json!("2026-03-05 14:22 Uhr"), None),
    ] {
        let email: &'static str = format!(
            "{}@example.com",
            typed.to_string().replace(|c: char| !c.is_alphanumeric(), "x") + source
        )
        .leak();
        let lead = json!({"email": email, "t": typed}).to_string();
        let is = match time {
            Some(time) => json!({"last_seen_at": time}),
            None => json!({"errors": ["occurred_at"]}),
        };
        becomes(&app, source, JSON, &lead, &[Lead(email.to_lowercase().leak(), is)]).await;
    }
}

#[tokio::test]
async fn numbers_keep_their_digits() {
    let app = app().await;
    let lead = r#"{"email":"n@example.com","company":20260305,"attributes":{"odd":9007199254740993,"most":18446744073709551615,
        "least":-9223372036854775808,"price":19.9,"zero":0,"yes":true,"too_much":18446744073709551616,"huge":1e300}}"#;
    let is = json!({"company": "20260305", "attributes.odd": "9007199254740993", "attributes.most": "18446744073709551615",
        "attributes.least": "-9223372036854775808", "attributes.price": "19.9", "attributes.zero": "0", "attributes.yes": "true",
        "attributes.too_much": null, "errors": ["attributes.huge", "attributes.too_much"]});
    becomes(&app, "json", JSON, lead, &[Lead("n@example.com", is)]).await;
    let google = r#"{"lead_id":"x","form_id":9007199254740993,"campaign_id":18446744073709551615,"user_column_data":[{"column_id":"EMAIL","string_value":"g@example.com"}]}"#;
    let is = json!({"attributes.form_id": "9007199254740993", "attributes.campaign_id": "18446744073709551615"});
    becomes(&app, "google-ads", JSON, google, &[Lead("g@example.com", is)]).await;
}
