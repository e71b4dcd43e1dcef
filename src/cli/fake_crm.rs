//! `leadsync fake-crm`

use std::net::SocketAddr;

use clap::Args;

use super::{Failure, note};
use crate::app::listen;
use crate::error::Exit;
use crate::fake_crm;
use crate::stop;

/// Run the stand-in CRM on its own, to try a set-up without a real one
///
/// Answers as the APIs of Brevo, HubSpot, Odoo, Pipedrive, RD Station, Salesforce and Zoho do, each at its own
/// paths, keeps contacts in memory, and shows them at its address. Faults are switched on by POST /_fake/faults.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync fake-crm\n  \
    curl -d '{\"fault\":\"reset_after\"}' http://127.0.0.1:8090/_fake/faults\n\n\
    In leadsync.toml:\n  \
    [[destination]]\n  name = \"trial\"\n  kind = \"hubspot\"\n  token = \"anything\"\n  base_url = \"http://127.0.0.1:8090\"")]
pub(super) struct FakeCrm {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
}

impl FakeCrm {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let stop = stop::on_signals()?;
        let listener = listen(self.listen).await?;
        let crm = fake_crm::FakeCrm::start(listener, fake_crm::Options::default())?;
        note(format_args!("stand-in CRM on {}", crm.url()));
        stop.cancelled().await;
        crm.stop().await;
        Ok(Exit::Ok)
    }
}
