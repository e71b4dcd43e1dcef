use super::*;
use crate::lead::{Change, Field, LeadPatch};
use proptest::prelude::*;
use serde_json::json;

fn written(target: &str, from: &[&str], via: Option<&str>) -> Written {
    Written {
        target: target.into(),
        from: from.iter().map(|path| path.to_string()).collect(),
        via: via.map(str::to_owned),
        value: None,
    }
}

fn map(lines: &[(&str, &str, Option<&str>)], part: Value) -> Mapped {
    let mut all = vec![written("email", &["$.email"], None)];
    all.extend(lines.iter().map(|(target, path, via)| written(target, &[path], *via)));
    let mapping = Mapping::compile(&[], &all).unwrap();
    mapping.apply(&Document { part: &part, body: &part, headers: &[] }, &Settings::default())
}

fn lead(lines: &[(&str, &str, Option<&str>)], mut part: Value) -> LeadPatch {
    part["email"] = json!("a@example.com");
    map(lines, part).lead.unwrap()
}

fn field(patch: &LeadPatch, field: Field) -> Option<&str> {
    patch.fields.get(&field).and_then(Change::value)
}

#[test]
fn every_target_has_a_name_that_parses_back() {
    for name in Target::NAMES.iter().filter(|name| **name != "attributes.") {
        assert_eq!(Target::parse(name).unwrap().name(), *name);
    }
    assert_eq!(Target::parse("attributes.budget").unwrap().name(), "attributes.budget");
    assert_eq!(Target::parse("attributes."), None);
    assert!(Field::ALL.iter().all(|field| Target::NAMES.contains(&field.name())));
}

#[test]
fn mistakes_are_refused_with_the_nearest_name() {
    let error = |line: Written| Mapping::compile(&[], &[line]).unwrap_err().to_string();
    assert_eq!(
        error(written("comapny", &["$.a"], None)),
        "unknown target \"comapny\"; did you mean \"company\"?"
    );
    assert_eq!(
        error(written("occurred_at", &["$.a"], Some("epoch_sec"))),
        "occurred_at: unknown conversion via = \"epoch_sec\"; did you mean \"epoch_s\"?"
    );
    assert!(
        error(written("company", &["$.["], None))
            .starts_with("company: \"$.[\" is not a JSONPath: ")
    );
    assert!(error(written("company", &["company"], None)).contains("is not a JSONPath"));
    assert!(error(written("company", &["$.a"], Some("epoch_s"))).contains("it is for occurred_at"));
    assert!(error(written("company", &["$.a"], Some("utm"))).contains("it is for utm_*"));
    assert!(error(written("company", &["$['@headers']"], None)).contains("a header is written"));
    assert!(error(written("company", &[], None)).contains("at least one path"));
}

#[test]
fn first_non_blank_wins() {
    let mapping = Mapping::compile(
        &[&[rule(Target::Field(Field::Company), &["$.never"])]],
        &[
            written("email", &["$.email"], None),
            written(
                "company",
                &["$.a", "$.b[*]", "$['@body'].c", "$['@headers']['X-Company']"],
                None,
            ),
        ],
    )
    .unwrap();
    assert_eq!(mapping.headers().collect::<Vec<_>>(), ["x-company"]);
    let company = |part: Value, body: Value| {
        let headers = [("x-company".to_owned(), "D".to_owned())];
        let doc = Document { part: &part, body: &body, headers: &headers };
        let patch = mapping.apply(&doc, &Settings::default()).lead.unwrap();
        field(&patch, Field::Company).map(str::to_owned)
    };
    let e = "a@example.com";
    assert_eq!(
        company(json!({"email": e, "a": " ", "b": ["", null, "B"]}), json!({"c": "C"})).as_deref(),
        Some("B")
    );
    assert_eq!(
        company(json!({"email": e, "a": {"x": 1}}), json!({"c": ["C"]})).as_deref(),
        Some("C")
    );
    assert_eq!(
        company(json!({"email": e, "never": "x"}), json!(null)).as_deref(),
        Some("D"),
        "overridden"
    );
}

#[test]
fn numbers_keep_their_digits() {
    let patch = lead(
        &[
            ("attributes.a", "$.a", None),
            ("attributes.b", "$.b", None),
            ("attributes.c", "$.c", None),
            ("attributes.d", "$.d", None),
        ],
        json!({"a": 706405506930000001_u64, "b": u64::MAX, "c": 1.5, "d": true}),
    );
    let values: Vec<_> = patch.attributes.values().filter_map(Change::value).collect();
    assert_eq!(values, ["706405506930000001", "18446744073709551615", "1.5", "true"]);
    let huge: Value = serde_json::from_str(r#"{"a": 99999999999999999999999}"#).unwrap();
    let patch = lead(&[("attributes.a", "$.a", None)], huge);
    assert!(patch.attributes.is_empty());
    assert!(patch.field_errors["attributes.a"].contains("too large"));
}

#[test]
fn a_bad_field_never_costs_the_lead() {
    let patch = lead(
        &[
            ("phone", "$.phone", None),
            ("company", "$.company", None),
            ("city", "$.city", None),
            ("marketing_consent", "$.consent", None),
            ("occurred_at", "$.at", None),
        ],
        json!({"phone": "call me", "company": "x".repeat(513), "city": ["a", "b"], "consent": "perhaps", "at": "now"}),
    );
    assert_eq!((patch.fields.len(), patch.consent, patch.occurred_at), (0, None, None));
    let names: Vec<_> = patch.field_errors.keys().map(String::as_str).collect();
    assert_eq!(names, ["city", "company", "marketing_consent", "occurred_at", "phone"]);
}

#[test]
fn conversions() {
    let patch = lead(
        &[
            ("first_name", "$.name", Some("first_word")),
            ("last_name", "$.name", Some("rest_words")),
            ("company", "$.company", Some("html")),
            ("city", "$.city[*]", Some("list")),
            ("attributes.tel", "$.tel", Some("phone")),
            ("attributes.ok", "$.ok", Some("consent")),
            ("tags", "$.tags", Some("commas")),
            ("utm_source", "$.page", Some("utm")),
            ("occurred_at", "$.at", Some("epoch_ms")),
            ("language", "$.lang", Some("lower")),
        ],
        json!({"name": "Ana da Silva", "company": "Sab&atilde;o &amp; Cia", "city": ["A", "", "B"], "tel": "+1 206-555-0142",
               "ok": "sim", "tags": "b, a,,b", "page": "https://x.example/?utm_medium=m&utm_source=news+letter#utm_source=no",
               "at": 1772720530123_i64, "lang": "PT-BR"}),
    );
    assert_eq!(patch.field_errors.len(), 0, "{:?}", patch.field_errors);
    assert_eq!(field(&patch, Field::FirstName), Some("Ana"));
    assert_eq!(field(&patch, Field::LastName), Some("da Silva"));
    assert_eq!(field(&patch, Field::Company), Some("Sabão & Cia"));
    assert_eq!(field(&patch, Field::City), Some("A, B"));
    assert_eq!(field(&patch, Field::Language), Some("pt-br"));
    assert_eq!(patch.attributes["tel"].value(), Some("+12065550142"));
    assert_eq!(patch.attributes["ok"].value(), Some("true"));
    assert_eq!(patch.tags.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(patch.touch.utm_source.as_deref(), Some("news letter"));
    assert_eq!(patch.occurred_at, Some(1_772_720_530_123_000));
}

#[test]
fn clears_and_blanks() {
    let patch = lead(
        &[("clear", "$.clear", None), ("phone", "$.phone", None), ("company", "$.company", None)],
        json!({"clear": ["phone", "company", "attributes.budget", "email"], "company": "Kept", "phone": null}),
    );
    assert_eq!(patch.fields[&Field::Phone], Change::Clear);
    assert_eq!(field(&patch, Field::Company), Some("Kept"));
    assert_eq!(patch.attributes["budget"], Change::Clear);
    assert_eq!(patch.field_errors.keys().collect::<Vec<_>>(), ["clear"]);
}

#[test]
fn members_are_bounded() {
    let many: serde_json::Map<String, Value> =
        (0..200).map(|n| (format!("k{n}"), json!(n))).collect();
    let tags: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    let patch = lead(
        &[("attributes", "$.attributes", None), ("tags", "$.tags", None)],
        json!({"attributes": many, "tags": tags}),
    );
    assert_eq!((patch.attributes.len(), patch.tags.len()), (MAX_MEMBERS, MAX_MEMBERS));
    assert_eq!(patch.field_errors.keys().collect::<Vec<_>>(), ["attributes", "tags"]);
}

#[test]
fn no_address_no_lead() {
    assert_eq!(map(&[], json!({})).lead, Err(NoLead::NoEmail));
    assert_eq!(map(&[], json!({"email": {"a": "b"}})).lead, Err(NoLead::NoEmail));
    let invalid = map(&[], json!({"email": "nobody"})).lead.unwrap_err();
    assert_eq!(
        (invalid.reason(), invalid.to_string().contains("nobody")),
        ("invalid_email", false)
    );
}

proptest! {
    #[test]
    fn nothing_panics(name in any::<String>(), tag in "\\PC*", at in "\\PC*", url in "\\PC*") {
        let part = json!({"email": "a@example.com", "name": name, "tags": [tag], "at": at, "url": url});
        let patch = map(
            &[("full_name", "$.name", Some("html")), ("tags", "$.tags", None), ("occurred_at", "$.at", None),
              ("utm_term", "$.url", Some("utm")), ("message", "$.name", None), ("phone", "$.name", None)],
            part,
        ).lead.unwrap();
        prop_assert!(patch.fields.values().filter_map(Change::value).all(|v| !v.trim().is_empty() && !v.contains('\0')));
    }
}

#[test]
fn stages_are_known_ones() {
    let stage = |word: &str| {
        let patch = lead(&[("lifecycle_stage", "$.s", None)], json!({"s": word}));
        (field(&patch, Field::LifecycleStage).map(str::to_owned), patch.field_errors.len())
    };
    assert_eq!(stage("Marketing Qualified Lead"), (Some("marketing_qualified_lead".into()), 0));
    assert_eq!(stage("marketingqualifiedlead"), (Some("marketing_qualified_lead".into()), 0));
    assert_eq!(stage("hot"), (None, 1));
}

/// What became of the paths of a target, as `path: fate`.
fn fates(lines: &[Written], part: Value) -> Vec<String> {
    let mapping = Mapping::compile(&[], lines).unwrap();
    let doc = Document { part: &part, body: &part, headers: &[("x-a".to_owned(), " ".to_owned())] };
    let mut trace = Trace::on();
    let told = mapping.apply_noting(&doc, &Settings::default(), &mut trace);
    assert_eq!(told, mapping.apply(&doc, &Settings::default()), "watching changes nothing");
    let path = |step: &Step| step.path.clone().unwrap_or_else(|| "constant".to_owned());
    let word = |step: &Step| format!("{} {}: {}", step.target, path(step), step.fate.word());
    trace.steps().iter().map(word).collect()
}

#[test]
fn every_path_is_accounted_for() {
    let constant = |mut line: Written, value: &str| {
        line.value = Some(value.to_owned());
        line
    };
    let lines = [
        written("email", &["$.mail", "$['@headers']['X-A']", "$.email", "$.other"], None),
        written("email", &["$.later"], None),
        written("company", &["$.blank", "$.object", "$.nothing"], None),
        written("phone", &["$.phone", "$.phone2"], None),
        written("phone", &["$.phone2"], None),
        written("utm_source", &["$.page"], Some("utm")),
        constant(written("city", &["$.blank"], None), "Recife"),
        constant(written("country", &["$.phone"], None), "BR"),
        written("tags", &["$.nothing", "$.object", "$.tags"], None),
        written("attributes", &["$.phone", "$.object"], None),
    ];
    let part = json!({"email": "a@example.com", "other": "b@example.com", "later": "x", "blank": " ", "object": {"a": 1},
        "phone": "call me", "phone2": "+12065550142", "page": "https://example.com/?a=1", "tags": ["t"]});
    let told = fates(&lines, part);
    assert_eq!(
        told,
        [
            "email $.mail: no_node",
            "email $['@headers']['X-A']: blank",
            "email $.email: used",
            "email $.other: not_reached",
            "email $.later: not_reached",
            "company $.blank: blank",
            "company $.object: wrong_type",
            "company $.nothing: no_node",
            "phone $.phone: invalid_phone",
            "phone $.phone2: not_reached",
            "phone $.phone2: used",
            "utm_source $.page: nothing_left",
            "city $.blank: blank",
            "city constant: used",
            "country $.phone: used",
            "country constant: not_reached",
            "tags $.nothing: no_node",
            "tags $.object: wrong_type",
            "tags $.tags: not_reached",
            "attributes $.phone: wrong_type",
            "attributes $.object: not_reached",
        ]
    );
    let told = fates(
        &[written("email", &["$.a", "$.b"], None)],
        json!({"a": "nobody", "b": "a@example.com"}),
    );
    assert_eq!(told, ["email $.a: invalid_email", "email $.b: not_reached"]);
}

#[test]
fn what_no_path_looks_at() {
    let lines = [
        written("email", &["$.email"], None),
        written("company", &["$.company"], None),
        written("tags", &["$.tags"], None),
        written("attributes", &["$.more"], None),
        written("event_type", &["$['@body'].type"], None),
    ];
    let mapping = Mapping::compile(&[], &lines).unwrap();
    let body = json!({"type": "t", "id": 7, "leads": [
        {"email": "a@example.com", "company": {"name": "Aurora", "id": null}, "tags": ["a", {"n": "b"}], "more": {"x": "1", "y": {"z": 2}},
         "it's a \\ name": true, "1st": " ", "Stadt": " Kiel", "list": [[5]], "@found": {"city": "Kiel"}}]});
    let part = &body["leads"][0];
    let doc = Document { part, body: &body, headers: &[] };
    let told = |leaves: Vec<Leaf>| -> Vec<String> {
        leaves.into_iter().map(|leaf| format!("{} {}", leaf.path, leaf.value)).collect()
    };
    assert_eq!(
        told(mapping.unmapped(&doc)),
        [
            "$.company.name \"Aurora\"",
            "$.tags[1].n \"b\"",
            "$.more.y.z 2",
            r"$['it\'s a \\ name'] true",
            "$.list[0][0] 5",
        ]
    );
    assert_eq!(told(mapping.unmapped_around(&doc, &[part])), ["$['@body'].id 7"]);
    // Every path that is told finds its value.
    for leaf in mapping.unmapped(&doc).into_iter().chain(mapping.unmapped_around(&doc, &[part])) {
        let line = compile_written(&written("city", &[&leaf.path], None)).unwrap();
        assert_eq!(line.from[0].find(&doc), [&leaf.value], "{}", leaf.path);
    }
}
