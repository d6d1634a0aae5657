//! The output to Elasticsearch and OpenSearch, by the bulk endpoint that both have.
//!
//! ```toml
//! [output]
//! type   = "elasticsearch"
//! hosts  = ["http://127.0.0.1:9200"]
//! action = "index"                   # or "create", for events that never change
//! user     = "app"                   # with a password; or an api_key or bearer_token; each with _file and _command
//! password = "${PASSWORD}"
//! tls      = { ca = "ca.pem" }
//! template = { install = true, name = "app", shards = 1, replicas = 1 }
//! ```
//!
//! Every item is answered for. What time mends is sent again, alone, for as long as it takes; what is the event's
//! own fault becomes a dead letter with the engine's answer; what is an index's trouble holds that index's events
//! while others go on; what somebody must mend is said, and everything is kept. Nothing is decided by searching
//! text: the status and the error's type decide.
//!
//! - `answer`: reads an answer, says what it means
//! - `load`: parcels on their way, and what of them is still needed
//! - `request`: one request without I/O: its items, and what an answer makes of them
//! - `hold`: events of indices in trouble
//! - `at_work`: whether the engine is still at a request that was given up
//! - `wait`: waits that grow, trouble that is said once
//! - `flow`: the loop: lanes, requests in flight, fates told
//! - `read`: what the pipeline file says
//! - `client`: HTTP: hosts, connections, answers
//! - `login`: credentials
//! - `tls`: certificates
//! - `target`: what is made sure of before the first event, and the index template

mod answer;
mod at_work;
mod client;
mod flow;
mod hold;
mod load;
mod login;
mod read;
mod request;
mod target;
mod tls;
mod wait;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

pub use client::{Exchange, Lost};
pub use flow::Room;
pub use login::{Kind, Login};
pub use target::Template;
pub use tls::{Identity, Tls, Version};

use crate::ack::Acks;
use crate::input::budget;
use crate::output::{Action, Form, Output, Parcels, Phases, abandoned};
use crate::pipeline::Pipeline;
use client::{Access, Client};
use flow::{Flow, Limits};
use request::Rules;
use wait::Waits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
}

/// What the output is told.
#[derive(Clone)]
pub struct Config {
    /// URLs of nodes of one cluster. User info in them is used and never shown.
    pub hosts: Vec<String>,
    pub action: Action,
    /// Who we are: read again after a 401 or 403 where it is kept in a file or told by a command.
    pub login: Option<Login>,
    pub tls: Tls,
    /// A larger request is cut. Lowered by itself where the engine takes less.
    pub bulk_bytes_max: usize,
    pub bulk_items_max: usize,
    pub requests_in_flight_max: usize,
    pub request_timeout: Duration,
    /// Waits between tries: up to the least at first, doubling up to the most, each a random part of its bound.
    pub retry_wait_min: Duration,
    pub retry_wait_max: Duration,
    /// How often an item is sent again that fails inside the engine while its neighbours do not.
    pub item_retries_max: u32,
    /// Costs more than it saves on one machine or a fast network.
    pub compression: Compression,
    /// Older writes must never overtake newer ones of the same id: needed where the action is `index` and the id
    /// does not come from the whole event.
    pub ordered: bool,
    /// What all requests' names begin with, in the engine's lists of tasks and logs.
    pub name: String,
    /// What is held may leave no room to read, which is said.
    pub room: Room,
    /// Refuse targets in which an id can live twice.
    pub strict: bool,
    /// All names that events can go to, `*` for what differs: `sales-*`, or `sales`.
    pub index_pattern: String,
    /// One of them, as an event of this moment would have it: `sales-2026.02.02`. None where an event's fields decide.
    pub index_sample: Option<String>,
    /// The index template to install.
    pub template: Option<Template>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hosts: vec!["http://127.0.0.1:9200".to_string()],
            action: Action::Index,
            login: None,
            tls: Tls::default(),
            bulk_bytes_max: 8 << 20,
            bulk_items_max: 20_000,
            requests_in_flight_max: 4,
            request_timeout: Duration::from_secs(60),
            retry_wait_min: Duration::from_millis(20),
            retry_wait_max: Duration::from_secs(30),
            item_retries_max: 10,
            compression: Compression::None,
            ordered: false,
            name: "onceline".to_string(),
            room: Room { bytes_in_flight_max: usize::MAX, batch_bytes: 0 },
            strict: true,
            index_pattern: "*".to_string(),
            index_sample: None,
            template: None,
        }
    }
}

impl fmt::Debug for Config {
    /// Without hosts, which may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("action", &self.action)
            .field("login", &self.login)
            .field("index_pattern", &self.index_pattern)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Where events go, in words and without secrets.
    pub fn words(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().filter_map(|host| client::host_name(host)).collect();
        let who = self.login.as_ref().map(|login| format!(", with {}", login.words())).unwrap_or_default();
        let identity = if self.tls.identity.is_some() { ", with a client certificate" } else { "" };
        let template = match &self.template {
            Some(_) => ", with an index template of ours",
            None => "",
        };
        format!("the engine at {}{who}{identity}{template},", hosts.join(", "))
    }
}

/// The output, ready to run.
pub struct Elasticsearch {
    config: Config,
    client: Client,
}

impl Elasticsearch {
    /// The output of a pipeline, which says the rest.
    pub fn open(config: &Config, pipeline: &Pipeline) -> anyhow::Result<Elasticsearch> {
        let mut config = config.clone();
        config.complete(pipeline);
        Elasticsearch::new(config)
    }

    /// Fails on what is wrong without asking anybody: URLs, credentials, files, bounds.
    pub fn new(config: Config) -> anyhow::Result<Elasticsearch> {
        let bounds = [
            ("bulk_bytes_max", config.bulk_bytes_max),
            ("bulk_items_max", config.bulk_items_max),
            ("requests_in_flight_max", config.requests_in_flight_max),
        ];
        for (name, value) in bounds {
            if value == 0 {
                bail!("{name} must be at least 1");
            }
        }
        let access = Access {
            hosts: config.hosts.clone(),
            login: config.login.clone(),
            tls: config.tls.clone(),
            timeout: config.request_timeout,
            is_gzip: config.compression == Compression::Gzip,
        };
        let client = Client::new(access)?;
        Ok(Elasticsearch { config, client })
    }
}

impl Config {
    /// Fills in what the rest of a pipeline says.
    pub fn complete(&mut self, pipeline: &Pipeline) {
        self.ordered = pipeline.ordered;
        let mut hasher = DefaultHasher::new();
        (&pipeline.name, &pipeline.state).hash(&mut hasher);
        self.name = format!("onceline-{:08x}", hasher.finish() as u32);
        // a block that does not fit waits
        let tuning = &pipeline.tuning;
        let (bytes_in_flight_max, batch_bytes) = (tuning.bytes_in_flight_max, budget::weight(tuning.batch_bytes));
        self.room = Room { bytes_in_flight_max, batch_bytes };
        self.strict = pipeline.strict;
        self.index_pattern = pipeline.index_pattern.clone();
        self.index_sample = pipeline.route.sample(pipeline.clock().now);
        if let Some(template) = &mut self.template {
            template.complete(&pipeline.index_pattern);
        }
    }

    /// Delivers to `engine` until `parcels` ends.
    pub async fn deliver<E: Exchange>(
        &self,
        engine: E,
        parcels: Parcels,
        acks: Acks,
        mut phases: Phases,
    ) -> anyhow::Result<()> {
        let config = self;
        let engine = Arc::new(engine);
        let waits = Waits { min: config.retry_wait_min, max: config.retry_wait_max };
        let prepare = async {
            target::prepare(&*engine, config, &waits).await?;
            if config.ordered {
                at_work::await_earlier(&*engine, &config.name).await;
            }
            anyhow::Ok(())
        };
        let is_ready = tokio::select! {
            biased;
            () = abandoned(&mut phases) => false,
            ready = prepare => ready.map(|()| true)?,
        };
        if !is_ready {
            return Ok(());
        }
        let rules = Rules { action: config.action, ordered: config.ordered, item_retries_max: config.item_retries_max };
        let limits = Limits {
            bytes: config.bulk_bytes_max,
            items: config.bulk_items_max,
            in_flight: config.requests_in_flight_max,
            room: config.room,
        };
        Flow::new(engine, acks, rules, limits, waits, config).run(parcels, phases).await
    }
}

impl Output for Elasticsearch {
    fn form(&self) -> Form {
        Form::Bulk(self.config.action)
    }

    fn run(self: Box<Self>, parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot set up I/O")?;
        let Elasticsearch { config, client } = *self;
        runtime.block_on(config.deliver(client, parcels, acks, phases))
    }
}
