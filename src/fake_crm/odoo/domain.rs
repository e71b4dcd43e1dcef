//! Search domains: terms in Polish notation, as `[["email_normalized", "in", ["ana@example.com"]]]`.

use serde_json::Value;

use super::Raised;

/// Whether a record with those values is in the domain.
pub(super) fn holds(domain: &Value, value: &dyn Fn(&str) -> Value) -> Result<bool, Raised> {
    let Some(terms) = domain.as_array() else { return Err(bad(domain)) };
    let mut rest = terms.iter();
    let mut all = true;
    // Terms that no operator joins are joined by "and".
    while rest.len() > 0 {
        all &= term(&mut rest, value)?;
    }
    Ok(all)
}

fn bad(what: &Value) -> Raised {
    Raised::new("builtins.ValueError", format!("Invalid domain term {what}"))
}

fn term<'a>(
    rest: &mut impl Iterator<Item = &'a Value>,
    value: &dyn Fn(&str) -> Value,
) -> Result<bool, Raised> {
    let Some(first) = rest.next() else { return Err(bad(&Value::Null)) };
    match first {
        Value::String(operator) if operator == "!" => Ok(!term(rest, value)?),
        Value::String(operator) if operator == "&" || operator == "|" => {
            let (left, right) = (term(rest, value)?, term(rest, value)?);
            Ok(if operator == "&" { left & right } else { left | right })
        }
        Value::Array(parts) => leaf(parts, value).ok_or_else(|| bad(first)),
        other => Err(bad(other)),
    }
}

fn leaf(parts: &[Value], value: &dyn Fn(&str) -> Value) -> Option<bool> {
    let [field, operator, wanted] = parts else { return None };
    let mut there = value(field.as_str()?);
    if let Some(pair) = there.as_array().filter(|pair| pair.len() == 2) {
        there = pair[0].clone();
    }
    let among = || wanted.as_array().map(|list| list.contains(&there));
    // What is empty compares as "".
    let text = |value: &Value| match value {
        Value::Bool(false) => Some(String::new()),
        value => value.as_str().map(str::to_owned),
    };
    let lower = |value: &Value| text(value).map(|text| text.to_lowercase());
    let order = |low: bool, equal: bool| {
        if equal && there == *wanted {
            return Some(true);
        }
        match (there.as_i64(), wanted.as_i64()) {
            (Some(a), Some(b)) => Some(if low { a < b } else { a > b }),
            _ => {
                let (a, b) = (text(&there)?, text(wanted)?);
                Some(if low { a < b } else { a > b })
            }
        }
    };
    match operator.as_str()? {
        "=" => Some(there == *wanted),
        "!=" => Some(there != *wanted),
        "in" => among(),
        "not in" => among().map(|found| !found),
        "=ilike" => Some(lower(&there)? == lower(wanted)?),
        "ilike" => Some(lower(&there)?.contains(&lower(wanted)?)),
        "<" => order(true, false),
        "<=" => order(true, true),
        ">" => order(false, false),
        ">=" => order(false, true),
        _ => None,
    }
}
