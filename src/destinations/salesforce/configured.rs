//! What configuration says, checked.

use std::sync::Arc;

use super::super::cached::Cached;
use super::super::client::Client;
use super::super::oauth::{self, OAuth};
use super::super::{Built, DestinationError, Setup};
use super::{KEY, Object, Salesforce};
use crate::config;

pub(super) fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let missing = |key, why| DestinationError::Missing { name: name(), key, why };
    let invalid = |key, why: String| DestinationError::Invalid { name: name(), key, why };
    let base = config.base_url.as_deref().ok_or_else(|| {
        missing("base_url", "the address of your org, like \"https://example.my.salesforce.com\"")
    })?;
    let app = "make an External Client App in Salesforce (Setup, External Client App Manager) with the OAuth flow \
               \"client credentials\"";
    let client_id = config.client_id.clone().ok_or_else(|| missing("client_id", app))?;
    let client_secret =
        config.client_secret.clone().ok_or_else(|| missing("client_secret", app))?;
    let object = match config.object.as_deref() {
        None | Some("Lead") => Object::Lead,
        Some("Contact") => Object::Contact,
        Some(_) => return Err(invalid("object", "must be \"Lead\" or \"Contact\"".to_owned())),
    };
    let key = config.key_property.clone().unwrap_or_else(|| KEY.to_owned());
    if !is_name(&key) {
        return Err(invalid(
            "key_property",
            "is no name of a field, like \"Lead_Email_Key__c\"".into(),
        ));
    }
    for (value, to) in &config.fields {
        let to = to.to();
        let own = to.eq_ignore_ascii_case("Email") || to.eq_ignore_ascii_case(&key);
        if own && value != "email" {
            let why =
                format!("maps something else to the field {to}, which is how leads are told apart");
            return Err(invalid("fields", why));
        }
        if !is_name(to) {
            return Err(invalid(
                "fields",
                format!("maps {value} to something that is no name of a field"),
            ));
        }
    }
    let client = Client::new(config, None, setup.call_timeout)?;
    let token_url = config.token_url.clone().unwrap_or_else(|| {
        let base = base.split(['?', '#']).next().unwrap_or_default();
        format!("{}/services/oauth2/token", base.trim_end_matches('/'))
    });
    let why = "it says where access tokens are made";
    let token_client = Client::to(config, "token_url", Some(&token_url), why, setup.call_timeout)?;
    let oauth = OAuth::new(oauth::Settings {
        destination: name(),
        token_client,
        client_id,
        client_secret,
        refresh_token: config.refresh_token.clone(),
        encoding: oauth::Encoding::Form,
        scheme: "Bearer",
        // The answer names the same org as `base_url`, which may be a proxy.
        base_member: None,
        tokens: setup.tokens.clone(),
    });
    let follow = config.converted.unwrap_or_default() == config::Converted::Follow;
    Ok(Arc::new(Salesforce {
        client,
        oauth,
        object,
        key,
        follow,
        leads: Cached::default(),
        contacts: Cached::default(),
    }))
}

/// Whether it can be a field's name; it goes into queries and paths as it is.
fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 128
}
