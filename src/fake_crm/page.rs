//! The page at `/`: what the CRMs hold, for people.

use std::fmt::Write as _;

use html_escape::encode_text as text;

use super::{Crm, State};

/// Most contacts of a CRM that are listed.
const ROWS: usize = 200;

pub(super) fn render(state: &State) -> String {
    let summary = state.summary();
    let mut html = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>Stand-in CRM</title><style>body{font:15px system-ui;margin:2rem}table{border-collapse:collapse}\
         td,th{padding:.2rem .8rem;border-bottom:1px solid #ccc;text-align:left}.bad{color:#b00;font-weight:bold}</style>\
         <h1>Stand-in CRM</h1><table><tr><th>CRM<th>contacts<th>created<th>updated<th>doubles</tr>",
    );
    for (crm, counts) in &summary.by_crm {
        let class = if counts.doubles > 0 { " class=bad" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            html,
            "<tr><td>{crm:?}<td>{}<td>{}<td>{}<td{class}>{}</tr>",
            counts.contacts, counts.creates, counts.updates, counts.doubles
        );
    }
    let _ = write!(html, "</table><p>{} calls", summary.calls);
    for (status, count) in &summary.calls_by_status {
        let _ = write!(html, " · {}: {count}", text(status));
    }
    for crm in Crm::ALL {
        let contacts = state.contacts(crm);
        if contacts.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<h2>{crm:?}</h2><p>the newest {} of {}<table><tr><th>id<th>e-mail<th>created<th>properties</tr>",
            contacts.len().min(ROWS),
            contacts.len()
        );
        for contact in contacts.iter().rev().take(ROWS) {
            let creates = state.creates_per_email(crm).get(&contact.email).copied().unwrap_or(0);
            let class = if creates > 1 { " class=bad" } else { "" };
            let properties: Vec<String> =
                contact.properties.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            let _ = write!(
                html,
                "<tr><td>{}<td>{}<td{class}>{creates}×<td>{}</tr>",
                text(&contact.id),
                text(&contact.email),
                text(&properties.join(", "))
            );
        }
        html.push_str("</table>");
    }
    html
}
