//! Event ids whose time in the dedupe cache is over. Ingress removes them too; a site whose retention is a cron has one for all.

use std::time::Instant;

use super::report::Job;
use super::{Error, Turn, count};
use crate::maintenance::{SWEEP_LOCK, sweep_some};

impl Turn<'_> {
    /// Removes event ids whose time is over, unless a replica of ingress is at it.
    pub(super) async fn dedupe(&mut self) -> Result<(), Error> {
        let ttl = self.retention.dedupe_ttl;
        let mut rows = 0;
        if self.report.dry_run {
            let text = "SELECT count(*) FROM ingress_dedupe WHERE first_seen_at < now() - make_interval(secs => $1)";
            rows = count(self.client.query_one(text, &[&ttl.as_secs_f64()]).await?.try_get(0)?);
        } else {
            let lock = "SELECT pg_try_advisory_lock($1)";
            if !self.client.query_one(lock, &[&SWEEP_LOCK]).await?.try_get(0)? {
                return Ok(());
            }
            loop {
                let began = Instant::now();
                let removed = sweep_some(&self.client, ttl).await?;
                self.step("dedupe.batch")?;
                if removed == 0 {
                    break;
                }
                rows += removed;
                self.rest(began).await;
            }
            self.client.execute("SELECT pg_advisory_unlock($1)", &[&SWEEP_LOCK]).await?;
        }
        let why = format!("first seen more than {} hours ago", ttl.as_secs() / 3600);
        let fate = self.report.leaving();
        self.report.add(Job::Dedupe, "ingress_dedupe", fate, (rows, None), why);
        Ok(())
    }
}
