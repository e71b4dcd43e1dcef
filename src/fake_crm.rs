//! A stand-in CRM that speaks real HTTP and keeps state: for tests, the demo and anybody's trial runs.
//!
//! One server plays several CRMs ([`Crm`]): Brevo, HubSpot, Odoo, Pipedrive, RD Station, Salesforce and Zoho with their
//! habits, a plain CRM that knows no unique key, and a receiver of signed webhooks. Faults are scripted per request or drawn from a seed, and a
//! fault may strike *after* the write was done, which is where duplicates come from. It shares no code with
//! the destinations it tests, so that it cannot share their mistakes: it imports nothing of this house.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod behind;
pub mod brevo;
mod control;
mod exchange;
pub mod fault;
pub mod hubspot;
pub mod odoo;
mod page;
pub mod pipedrive;
pub mod plain;
pub mod rdstation;
pub mod salesforce;
mod select;
mod socket;
pub mod webhook;
pub mod zoho;

pub use behind::{Act, Behind};
pub use fault::{Apply, Body, Fault, FaultRates, Order, Scripted};

/// Which of the CRMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Crm {
    /// `/v3/contacts…`
    Brevo,
    /// `/crm/v3/objects/contacts…`
    Hubspot,
    /// `/jsonrpc`, `/json/2/…`
    Odoo,
    /// `/api/v2/persons…`
    Pipedrive,
    /// `/plain/contacts`
    Plain,
    /// `/platform/…`, `/auth/token`
    Rdstation,
    /// `/services/data…`, `/services/oauth2/token`
    Salesforce,
    /// `/webhook`
    Webhook,
    /// `/crm/v8/…`, `/oauth/v2/token`
    Zoho,
}

impl Crm {
    /// All of them.
    pub const ALL: [Crm; 9] = [
        Crm::Brevo,
        Crm::Hubspot,
        Crm::Odoo,
        Crm::Pipedrive,
        Crm::Plain,
        Crm::Rdstation,
        Crm::Salesforce,
        Crm::Webhook,
        Crm::Zoho,
    ];
}

/// How the stand-in behaves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Brevo's part.
    pub brevo: brevo::Options,
    /// HubSpot's part.
    pub hubspot: hubspot::Options,
    /// Odoo's part.
    pub odoo: odoo::Options,
    /// Pipedrive's part.
    pub pipedrive: pipedrive::Options,
    /// The plain CRM's part.
    pub plain: plain::Options,
    /// RD Station's part.
    pub rdstation: rdstation::Options,
    /// Salesforce's part.
    pub salesforce: salesforce::Options,
    /// The webhook receiver's part.
    pub webhook: webhook::Options,
    /// Zoho's part.
    pub zoho: zoho::Options,
    /// Faults that come by themselves.
    pub rates: FaultRates,
    /// Seed of those faults and of shuffled results. A change starts the random numbers anew.
    pub seed: u64,
}

/// A contact as the stand-in keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contact {
    /// The CRM's id; the lead id at the webhook receiver; "crm.lead,7" of a lead at Odoo.
    pub id: String,
    /// Lower case.
    pub email: String,
    /// Properties with a value, as text. Webhook: members of the last `data`.
    pub properties: BTreeMap<String, String>,
    /// Not one of the CRM's contacts any more: in the bin, deleted, archived, merged into another, or a lead that was converted.
    pub archived: bool,
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts from 1.
    pub seq: u64,
    /// `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in order, without credentials.
    pub headers: Vec<(String, String)>,
    /// The exact bytes; where they have credentials in them, without those.
    pub body: Bytes,
    /// When it had come in.
    pub at: jiff::Timestamp,
    /// The fault that struck it.
    pub fault: Option<Fault>,
    /// Whether the CRM did something with it.
    pub applied: bool,
    /// The status it was answered with; `None`: no answer, or none yet.
    pub status: Option<u16>,
}

impl Call {
    /// The body as JSON, `null` where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }
}

/// What became of the contacts of one CRM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Contacts that are there now, the bin not counted.
    pub contacts: u64,
    /// Contacts ever created.
    pub creates: u64,
    /// Writes to a contact that was there.
    pub updates: u64,
    /// Contacts beyond the first of an e-mail, letter case ignored.
    pub doubles: u64,
}

/// Everything in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Sum over the CRMs.
    #[serde(flatten)]
    pub total: Counts,
    /// Each CRM.
    pub by_crm: BTreeMap<Crm, Counts>,
    /// Requests so far.
    pub calls: u64,
    /// Answers by status; "none" where the connection was reset.
    pub calls_by_status: BTreeMap<String, u64>,
    /// Faults that wait for their request.
    pub faults_waiting: usize,
}

/// How far the requests have come, for waiting without sleeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    arrived: u64,
    applied: u64,
}

/// Calls kept for [`FakeCrm::calls`]; older ones are only counted.
const CALLS_KEPT: usize = 20_000;

struct State {
    options: Options,
    rng: StdRng,
    script: VecDeque<Scripted>,
    calls: VecDeque<Call>,
    arrived: u64,
    applied: u64,
    statuses: BTreeMap<String, u64>,
    brevo: brevo::Account,
    hubspot: hubspot::Account,
    odoo: odoo::Account,
    pipedrive: pipedrive::Account,
    plain: plain::Contacts,
    rdstation: rdstation::Account,
    salesforce: salesforce::Account,
    webhook: webhook::Receiver,
    zoho: zoho::Account,
}

impl State {
    fn new(options: Options) -> State {
        State {
            rng: StdRng::seed_from_u64(options.seed),
            options,
            script: VecDeque::new(),
            calls: VecDeque::new(),
            arrived: 0,
            applied: 0,
            statuses: BTreeMap::new(),
            brevo: brevo::Account::default(),
            hubspot: hubspot::Account::default(),
            odoo: odoo::Account::default(),
            pipedrive: pipedrive::Account::default(),
            plain: plain::Contacts::default(),
            rdstation: rdstation::Account::default(),
            salesforce: salesforce::Account::default(),
            webhook: webhook::Receiver::default(),
            zoho: zoho::Account::default(),
        }
    }

    fn set_options(&mut self, options: Options) {
        if options.seed != self.options.seed {
            self.rng = StdRng::seed_from_u64(options.seed);
        }
        self.options = options;
    }

    /// Takes the fault of a request: the first scripted one that fits, else one by chance.
    fn take_fault(&mut self, method: &str, path: &str) -> Option<Fault> {
        let fits =
            |s: &Scripted| match s.path.as_deref().map(|p| p.split_once(' ').unwrap_or(("", p))) {
                None => true,
                Some((of, prefix)) => {
                    (of.is_empty() || of.split('|').any(|m| m == method))
                        && path.starts_with(prefix)
                }
            };
        match self.script.iter().position(fits) {
            Some(at) => self.script.remove(at).map(|s| s.fault),
            None => self.options.rates.draw(&mut self.rng),
        }
    }

    fn contacts(&self, crm: Crm) -> Vec<Contact> {
        match crm {
            Crm::Brevo => self.brevo.contacts(),
            Crm::Hubspot => self.hubspot.contacts(),
            Crm::Odoo => self.odoo.contacts(),
            Crm::Pipedrive => self.pipedrive.contacts(),
            Crm::Plain => self.plain.contacts(),
            Crm::Rdstation => self.rdstation.contacts(),
            Crm::Salesforce => self.salesforce.contacts(),
            Crm::Webhook => self.webhook.contacts(),
            Crm::Zoho => self.zoho.contacts(),
        }
    }

    fn creates_per_email(&self, crm: Crm) -> &BTreeMap<String, u64> {
        match crm {
            Crm::Brevo => &self.brevo.creates,
            Crm::Hubspot => &self.hubspot.creates,
            Crm::Odoo => &self.odoo.creates,
            Crm::Pipedrive => &self.pipedrive.creates,
            Crm::Plain => &self.plain.creates,
            Crm::Rdstation => &self.rdstation.creates,
            Crm::Salesforce => &self.salesforce.creates,
            Crm::Webhook => &self.webhook.creates,
            Crm::Zoho => &self.zoho.creates,
        }
    }

    fn salesforce(&mut self, act: &salesforce::Act) -> Result<String, String> {
        self.salesforce.act(&self.options.salesforce, act)
    }

    fn zoho(&mut self, act: &zoho::Act) -> Result<String, String> {
        self.zoho.act(&self.options.zoho, act)
    }

    fn counts(&self, crm: Crm) -> Counts {
        let mut per_email = BTreeMap::<String, u64>::new();
        for contact in self.contacts(crm).into_iter().filter(|c| !c.archived) {
            *per_email.entry(contact.email).or_default() += 1;
        }
        Counts {
            contacts: per_email.values().sum(),
            creates: self.creates_per_email(crm).values().sum(),
            updates: match crm {
                Crm::Brevo => self.brevo.updates,
                Crm::Hubspot => self.hubspot.updates,
                Crm::Odoo => self.odoo.updates,
                Crm::Pipedrive => self.pipedrive.updates,
                Crm::Plain => self.plain.updates,
                Crm::Rdstation => self.rdstation.updates,
                Crm::Salesforce => self.salesforce.updates,
                Crm::Webhook => self.webhook.updates,
                Crm::Zoho => self.zoho.updates,
            },
            doubles: per_email.values().map(|n| n - 1).sum(),
        }
    }

    fn summary(&self) -> Summary {
        let by_crm: BTreeMap<Crm, Counts> =
            Crm::ALL.into_iter().map(|crm| (crm, self.counts(crm))).collect();
        let sum = |part: fn(&Counts) -> u64| by_crm.values().map(part).sum();
        Summary {
            total: Counts {
                contacts: sum(|c| c.contacts),
                creates: sum(|c| c.creates),
                updates: sum(|c| c.updates),
                doubles: sum(|c| c.doubles),
            },
            by_crm,
            calls: self.arrived,
            calls_by_status: self.statuses.clone(),
            faults_waiting: self.script.len(),
        }
    }
}

/// What the server's tasks share.
struct Shared {
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    /// Counts releases of held requests.
    released: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves numbers that are still good enough to look at.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running stand-in. Dropped, it stops.
pub struct FakeCrm {
    shared: Arc<Shared>,
    addr: SocketAddr,
    stop: Mutex<CancellationToken>,
    server: tokio::sync::Mutex<JoinHandle<()>>,
}

impl FakeCrm {
    /// Serves on the listener. Fails only where the listener has no address.
    pub fn start(listener: TcpListener, options: Options) -> std::io::Result<FakeCrm> {
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(options)),
            progress: watch::Sender::new(Progress::default()),
            released: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        let server = tokio::spawn(exchange::serve(listener, Arc::clone(&shared), stop.clone()));
        Ok(FakeCrm { shared, addr, stop: Mutex::new(stop), server: server.into() })
    }

    /// Binds a free loopback port and serves there.
    pub async fn on_free_port(options: Options) -> std::io::Result<FakeCrm> {
        FakeCrm::start(TcpListener::bind(("127.0.0.1", 0)).await?, options)
    }

    /// "http://127.0.0.1:4711", without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening and cuts all connections; both are done when it returns. State and log stay readable.
    pub async fn stop(&self) {
        self.cancel();
        FakeCrm::ended(&mut *self.server.lock().await).await;
    }

    /// Serves again on the same port with the state it had.
    pub async fn resume(&self) -> std::io::Result<()> {
        self.cancel();
        let mut server = self.server.lock().await;
        FakeCrm::ended(&mut server).await;
        let listener = TcpListener::bind(self.addr).await?;
        let stop = CancellationToken::new();
        *server = tokio::spawn(exchange::serve(listener, Arc::clone(&self.shared), stop.clone()));
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop;
        Ok(())
    }

    async fn ended(server: &mut JoinHandle<()>) {
        if !server.is_finished() {
            // It has no result, and that it ended is all that matters.
            let _ = server.await;
        }
    }

    fn cancel(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    /// Contacts in the order of their creation.
    pub fn contacts(&self, crm: Crm) -> Vec<Contact> {
        self.shared.state().contacts(crm)
    }

    /// How often each lower-case e-mail was created. Exactly one contact means exactly 1.
    pub fn creates_per_email(&self, crm: Crm) -> BTreeMap<String, u64> {
        self.shared.state().creates_per_email(crm).clone()
    }

    /// Contacts beyond the first of an e-mail, letter case ignored.
    pub fn doubles(&self, crm: Crm) -> u64 {
        self.shared.state().counts(crm).doubles
    }

    /// Everything in numbers.
    pub fn summary(&self) -> Summary {
        self.shared.state().summary()
    }

    /// The newest requests, oldest first, without those to the stand-in's own pages.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.iter().cloned().collect()
    }

    /// Queues a fault for the next request that has none yet.
    pub fn script(&self, fault: impl Into<Scripted>) {
        self.shared.state().script.push_back(fault.into());
    }

    /// Forgets scripted faults that nothing has met yet.
    pub fn clear_script(&self) {
        self.shared.state().script.clear();
    }

    /// The options as they are.
    pub fn options(&self) -> Options {
        self.shared.state().options.clone()
    }

    /// Replaces the options; contacts stay.
    pub fn set_options(&self, options: Options) {
        self.shared.state().set_options(options);
    }

    /// Forgets contacts, calls and faults; options stay.
    pub fn reset(&self) {
        control::reset(&self.shared);
    }

    /// Lets every request that [`Fault::HoldBefore`] or [`Fault::HoldAfter`] holds go on.
    pub fn release(&self) {
        self.shared.released.send_modify(|n| *n += 1);
    }

    /// Waits until so many requests have come in since the start or reset. Give it a time limit.
    pub async fn wait_for_calls(&self, n: u64) {
        // The sender lives in `self.shared`, so waiting cannot fail.
        let _ = self.shared.progress.subscribe().wait_for(|p| p.arrived >= n).await;
    }

    /// Waits until so many requests have been done by the CRM, answered or not. Give it a time limit.
    pub async fn wait_for_applied(&self, n: u64) {
        let _ = self.shared.progress.subscribe().wait_for(|p| p.applied >= n).await;
    }

    /// Does by hand, behind the API's back, what people do in Salesforce. The id of the record that it is about or made.
    pub fn salesforce(&self, act: &salesforce::Act) -> Result<String, String> {
        self.shared.state().salesforce(act)
    }

    /// The same in Zoho.
    pub fn zoho(&self, act: &zoho::Act) -> Result<String, String> {
        self.shared.state().zoho(act)
    }

    /// Does in Odoo what people do in its own screens, as `POST /_fake/odoo/{action}`. The id of the record; `None`: there
    /// is none, or no such action.
    pub fn odoo(&self, action: &str, body: &serde_json::Value) -> Option<serde_json::Value> {
        self.shared.state().odoo.act(action, body)
    }

    /// The same in RD Station.
    pub fn rdstation(&self, action: &str, body: &serde_json::Value) -> Option<serde_json::Value> {
        self.shared.state().rdstation.act(action, body)
    }

    /// Test hook: makes HubSpot forget a contact and give its data a new id, as a merge does.
    pub fn renumber(&self, email: &str) {
        self.shared.state().hubspot.renumber(email);
    }
}

impl Drop for FakeCrm {
    fn drop(&mut self) {
        self.cancel();
    }
}
