//! What configuration says, checked.

use std::sync::Arc;

use super::super::cached::Cached;
use super::super::client::Client;
use super::super::oauth::{self, OAuth};
use super::super::{Built, DestinationError, Setup};
use super::{Module, Zoho};
use crate::config;

const DEFAULT_BASE: &str = "https://www.zohoapis.com";
/// Where the API of each data centre is, and where its access tokens are made.
const DATA_CENTRES: [(&str, &str); 8] = [
    ("www.zohoapis.com", "accounts.zoho.com"),
    ("www.zohoapis.eu", "accounts.zoho.eu"),
    ("www.zohoapis.in", "accounts.zoho.in"),
    ("www.zohoapis.com.au", "accounts.zoho.com.au"),
    ("www.zohoapis.jp", "accounts.zoho.jp"),
    ("www.zohoapis.sa", "accounts.zoho.sa"),
    ("www.zohoapis.com.cn", "accounts.zoho.com.cn"),
    ("www.zohoapis.ca", "accounts.zohocloud.ca"),
];

pub(super) fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let missing = |key, why| DestinationError::Missing { name: name(), key, why };
    let invalid = |key, why: String| DestinationError::Invalid { name: name(), key, why };
    let console = "make a Self Client in the API console of your data centre (like https://api-console.zoho.com)";
    let client_id = config.client_id.clone().ok_or_else(|| missing("client_id", console))?;
    let secret = config.client_secret.clone();
    let client_secret = secret.ok_or_else(|| missing("client_secret", console))?;
    let refresh_token = config.refresh_token.clone().ok_or_else(|| {
        missing("refresh_token", "make one with the Self Client and the scopes that README lists")
    })?;
    let module = match config.object.as_deref() {
        None | Some("Leads") => Module::Leads,
        Some("Contacts") => Module::Contacts,
        Some(_) => return Err(invalid("object", "must be \"Leads\" or \"Contacts\"".to_owned())),
    };
    let key = config.key_property.clone().unwrap_or_else(|| "Email".to_owned());
    if !is_name(&key) {
        return Err(invalid(
            "key_property",
            "is no API name of a field, like \"Email\"".to_owned(),
        ));
    }
    for (value, to) in &config.fields {
        let to = to.to();
        if (to == "Email" || to == key) && value != "email" {
            let why =
                format!("maps something else to the field {to}, which is how leads are told apart");
            return Err(invalid("fields", why));
        }
        if !is_name(to) {
            let why = format!("maps {value} to something that is no API name of a field");
            return Err(invalid("fields", why));
        }
    }
    let client = Client::new(config, Some(DEFAULT_BASE), setup.call_timeout)?;
    let base = config.base_url.as_deref().unwrap_or(DEFAULT_BASE);
    let token_url = config.token_url.clone().unwrap_or_else(|| token_url(base));
    let why = "it says where access tokens are made";
    let token_client = Client::to(config, "token_url", Some(&token_url), why, setup.call_timeout)?;
    let oauth = OAuth::new(oauth::Settings {
        destination: name(),
        token_client,
        client_id,
        client_secret,
        refresh_token: Some(refresh_token),
        encoding: oauth::Encoding::Form,
        scheme: "Zoho-oauthtoken",
        // Where only `token_url` is told, Zoho says where the API of that data centre is.
        base_member: (config.base_url.is_none() && config.token_url.is_some())
            .then_some("api_domain"),
        tokens: setup.tokens.clone(),
    });
    let follow = config.converted.unwrap_or_default() == config::Converted::Follow;
    Ok(Arc::new(Zoho {
        client,
        oauth,
        module,
        key,
        follow,
        leads: Cached::default(),
        contacts: Cached::default(),
    }))
}

/// Where the access tokens of an API are made: at the accounts server of its data centre, else beside it.
fn token_url(base: &str) -> String {
    let host = base.split("//").nth(1).and_then(|rest| rest.split(['/', ':']).next());
    let host = host.unwrap_or_default().to_lowercase();
    match DATA_CENTRES.iter().find(|(api, _)| *api == host) {
        Some((_, accounts)) => format!("https://{accounts}/oauth/v2/token"),
        None => {
            let base = base.split(['?', '#']).next().unwrap_or_default();
            format!("{}/oauth/v2/token", base.trim_end_matches('/'))
        }
    }
}

/// Whether it can be a field's name; it goes into queries as it is.
fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 128
}
