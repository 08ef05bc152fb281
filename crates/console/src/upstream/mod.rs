//! What is asked: sites, the cloud, the historian, SCADA nodes, schedules, the control socket of `up`.

pub(crate) mod cloud;
mod control;
mod exposition;
pub(crate) mod historian;
pub(crate) mod producer;
mod remote;
pub(crate) mod schedule;
pub(crate) mod site;

pub(crate) use control::{Control, WHOLE};
pub(crate) use remote::{Fault, PATIENT, QUICK, Remote};

use crate::config::Config;

/// Every upstream that is configured.
#[derive(Debug)]
pub(crate) struct Upstreams {
    /// The client that all share.
    pub(crate) client: reqwest::Client,
    pub(crate) sites: Vec<Remote>,
    pub(crate) cloud: Option<Remote>,
    pub(crate) historian: Option<Remote>,
    pub(crate) producers: Vec<Remote>,
    pub(crate) schedule: Option<Remote>,
    pub(crate) control: Option<Control>,
}

impl Upstreams {
    pub(crate) fn new(config: &Config) -> Result<Upstreams, crate::Error> {
        let client = remote::client(&config.trust)?;
        let remote = |place| Remote::new(client.clone(), place);
        Ok(Upstreams {
            sites: config.sites.iter().map(remote).collect(),
            cloud: config.cloud.as_ref().map(remote),
            historian: config.historian.as_ref().map(remote),
            producers: config.producers.iter().map(remote).collect(),
            schedule: config.schedule.as_ref().map(remote),
            control: config.up_control.clone().map(Control::new),
            client,
        })
    }

    /// The site of a name.
    pub(crate) fn site(&self, name: &str) -> Option<&Remote> {
        self.sites.iter().find(|site| site.name == name)
    }
}
