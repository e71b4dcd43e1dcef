//! Whether what a destination sent is what the CRM's description of its API allows.
//!
//! The descriptions lie beside this repository, in `../shared/crm-apis/specs`. A copy of the repository alone has none of
//! them, and there nothing is checked; where `CI` is set they must be there.

use std::path::Path;

use leadsync::fake_crm::Call;
use serde_json::{Value, json};

/// An OpenAPI 3.0 document.
pub struct Spec(Value);

impl Spec {
    /// Reads one; `None` where this copy of the repository has none.
    pub fn read(name: &str) -> Option<Spec> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join("../shared/crm-apis/specs").join(name);
        match std::fs::read(&path) {
            Ok(text) => Some(Spec(serde_json::from_slice(&text).expect("JSON"))),
            Err(error) if std::env::var_os("CI").is_some() => {
                panic!("{}: {error}", path.display())
            }
            Err(_) => None,
        }
    }

    /// What is wrong with a request; `None`: the document does not know its path.
    pub fn wrong(&self, call: &Call) -> Option<Vec<String>> {
        let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        let (known, operation) = self.operation(&call.method.to_lowercase(), path)?;
        let mut wrong = Vec::new();
        let listed = [&known["parameters"], &operation["parameters"]];
        let parameters: Vec<&Value> = listed.iter().flat_map(|l| items(l)).collect();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let of_query = |p: &&&Value| p["in"] == "query" && p["name"] == *name;
            match parameters.iter().find(of_query) {
                None => wrong.push(format!("{name} is not a parameter")),
                Some(parameter) => {
                    wrong.extend(self.invalid(&parameter["schema"], &typed(&value), &name));
                }
            }
        }
        let given: Vec<String> =
            form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name.into_owned()).collect();
        let required = parameters.iter().filter(|p| p["in"] == "query" && p["required"] == true);
        let lacking = required.filter(|p| !given.iter().any(|name| p["name"] == *name));
        wrong.extend(lacking.map(|p| format!("{} is missing", p["name"])));
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        match (schema.is_null(), call.body.is_empty()) {
            (true, true) => {}
            (true, false) => wrong.push("a body where none is known".to_owned()),
            (false, _) => wrong.extend(self.invalid(schema, &call.json(), "body")),
        }
        Some(wrong)
    }

    /// The path's entry and the operation; literal segments before `{id}`.
    fn operation(&self, method: &str, path: &str) -> Option<(&Value, &Value)> {
        let fits = |template: &str| {
            let (a, b): (Vec<&str>, Vec<&str>) =
                (template.split('/').collect(), path.split('/').collect());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || a.starts_with('{'))
        };
        let mut known: Vec<_> =
            self.0["paths"].as_object()?.iter().filter(|(template, _)| fits(template)).collect();
        known.sort_by_key(|(template, _)| template.contains('{'));
        let (_, entry) = known.first()?;
        entry.get(method).map(|operation| (*entry, operation))
    }

    fn invalid(&self, schema: &Value, value: &Value, what: &str) -> Vec<String> {
        // References lead into the document's components.
        let mut whole = json!({"components": self.0["components"], "allOf": [schema]});
        nullable(&mut whole);
        let validator = jsonschema::draft4::new(&whole).expect("a schema");
        let errors = validator.iter_errors(value);
        errors.map(|error| format!("{what}{}: {error}", error.instance_path())).collect()
    }
}

/// OpenAPI 3.0 says `nullable` where JSON Schema has another type.
fn nullable(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.remove("nullable") == Some(json!(true))
                && let Some(kind) = members.get_mut("type")
            {
                *kind = json!([kind.clone(), "null"]);
            }
            members.values_mut().for_each(nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(nullable),
        _ => {}
    }
}

/// The text of a query as what a schema may ask for.
fn typed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        _ => json!(text),
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Every request is known to the document and right; how many there were.
#[track_caller]
pub fn all_right<'a>(spec: &Spec, calls: impl IntoIterator<Item = &'a Call>) -> usize {
    let mut count = 0;
    for call in calls {
        let wrong = spec.wrong(call);
        assert_eq!(wrong, Some(Vec::new()), "{} {} {}", call.method, call.path, call.json());
        count += 1;
    }
    count
}
