//! `leadsync try`

use clap::Args;
use serde_json::Value;

use super::{Failure, Global};
use crate::error::Exit;
use crate::sources::{Item, Verified};

mod page;
pub(super) mod payload;
mod report;

use payload::Payload;
use report::Report;

/// Show what a payload would become, value by value
///
/// Reads a delivery as the service would, stores nothing, and tells for every target where its value was
/// found, what the other paths of the mapping came to, and which values no path looks at. Needs neither
/// a database nor a signature. Ends with 1 if a lead would be rejected.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync try --source site payload.json\n  \
    leadsync try --source site --header 'X-Event-Id: e1' payload.json\n  \
    leadsync try --source site - < payload.json\n  \
    leadsync try --source site --json payload.json | jq '.parts[].lead'")]
pub(super) struct Try {
    #[command(flatten)]
    payload: Payload,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Try {
    pub(super) fn run(self, global: &Global) -> Result<Exit, Failure> {
        let config = global.load(Vec::new())?;
        let source = self.payload.source(&config)?;
        let request = self.payload.request(&source)?;
        let content_type = request.header("content-type").unwrap_or_default().to_owned();
        // Nothing is stored, so it does not matter who sent it.
        let explained = source.explain(&Verified::stored(request));
        let now = jiff::Timestamp::now().as_microsecond();
        let report = match &explained {
            Ok(explained) => Report::of(&source, &config.leads, explained, now),
            Err(error) => Report::malformed(error),
        };
        let rejected = match &explained {
            Ok(read) => read.parts.iter().any(|p| matches!(p.item, Item::Rejected { .. })),
            Err(_) => true,
        };
        if self.json {
            let mut whole = serde_json::to_value(&report).map_err(std::io::Error::from)?;
            whole["source"] = Value::from(source.name.as_str());
            whole["kind"] = Value::from(source.kind);
            whole["content_type"] = Value::from(content_type);
            say!("{whole}")?;
        } else {
            say!("source {} ({}), read as {content_type}", source.name, source.kind)?;
            page::print(&report)?;
        }
        Ok(if rejected { Exit::Failed } else { Exit::Ok })
    }
}
