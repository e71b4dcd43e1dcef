//! A destination that keeps no key: the plain stand-in over real HTTP. What Pipedrive's persons or Odoo's partners
//! are to the sync loop, without their API.

use std::time::Duration;

use async_trait::async_trait;
use leadsync::destinations::{
    CallError, Destination, Key, Mapped, Outcome, Page, Record, Remote, Reply,
};
use reqwest::Method;
use serde_json::{Map, Value, json};

/// Contacts at `{url}/plain/contacts`, one per call.
pub struct Keyless {
    http: reqwest::Client,
    url: String,
}

impl Keyless {
    pub fn new(url: &str, deadline: Duration) -> Keyless {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(deadline).build().expect("client");
        Keyless { http, url: format!("{url}/plain/contacts") }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(u16, Value), CallError> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let unknown = |e: reqwest::Error| match e.is_connect() {
            true => CallError::Unreachable { message: e.to_string() },
            false => CallError::Unknown { after: None, message: e.to_string() },
        };
        let answer = request.send().await.map_err(unknown)?;
        let status = answer.status().as_u16();
        if status >= 500 {
            return Err(CallError::Unknown { after: None, message: status.to_string() });
        }
        if status == 429 {
            return Err(CallError::SlowDown { after: None, message: status.to_string() });
        }
        let text = answer.text().await.map_err(unknown)?;
        let read = serde_json::from_str(&text);
        let unread =
            |_| CallError::Unknown { after: None, message: "the answer is not JSON".into() };
        Ok((status, if status < 300 { read.map_err(unread)? } else { Value::Null }))
    }
}

fn remote(contact: &Value) -> Remote {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let properties = contact["properties"].as_object().into_iter().flatten();
    Remote {
        id: contact["id"].to_string(),
        email: text(&contact["email"]).map(|email| email.to_lowercase()),
        properties: properties.map(|(name, value)| (name.clone(), text(value))).collect(),
        archived: false,
    }
}

#[async_trait]
impl Destination for Keyless {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[("first_name", "first"), ("city", "town")]
    }

    fn key(&self) -> Key {
        Key::None
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let [record] = records else { panic!("one per call") };
        let properties = record.properties.iter();
        let mut body: Map<String, Value> = properties
            .map(|(to, value)| (to.clone(), json!(value.as_deref().unwrap_or_default())))
            .collect();
        let (status, answer) = match &record.remote_id {
            Some(id) => self.call(Method::PATCH, &format!("/{id}"), Some(body.into())).await?,
            None => {
                body.insert("email".into(), json!(record.lead.email));
                self.call(Method::POST, "", Some(body.into())).await?
            }
        };
        let outcome = match status {
            200 | 201 => {
                let remote_id = Some(answer["id"].to_string());
                Outcome::Written { remote_id, created: Some(status == 201) }
            }
            404 => Outcome::Gone,
            _ => Outcome::Rejected { code: status.to_string(), field: None, message: "no".into() },
        };
        Ok(vec![outcome].into())
    }

    async fn look_up(
        &self,
        records: &[Record],
        _: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        let [record] = records else { panic!("one per call") };
        let found = match &record.remote_id {
            Some(id) => match self.call(Method::GET, &format!("/{id}"), None).await? {
                (200, contact) => vec![remote(&contact)],
                _ => Vec::new(),
            },
            None => {
                let path = format!("/search?email={}", record.lead.email);
                let (_, answer) = self.call(Method::GET, &path, None).await?;
                answer["results"].as_array().into_iter().flatten().map(remote).collect()
            }
        };
        Ok(vec![found].into())
    }

    async fn list(&self, cursor: Option<&str>, _: &[String]) -> Result<Reply<Page>, CallError> {
        let path = cursor.map(|after| format!("?after={after}")).unwrap_or_default();
        let (_, answer) = self.call(Method::GET, &path, None).await?;
        let contacts: Vec<Remote> =
            answer["results"].as_array().into_iter().flatten().map(remote).collect();
        let next = contacts.last().map(|remote| remote.id.clone());
        Ok(Page { contacts, next }.into())
    }

    async fn check(&self, _: &[Mapped]) -> Result<Vec<String>, CallError> {
        Ok(Vec::new())
    }
}
