//! Letting a node in, changing its secret, shutting it out.

use event::id::{BarnId, DeviceId, FarmId, NodeId, TenantId};
use settings::Secret;
use tokio_postgres::Client;

use super::secret::{SecretHash, broker_hash, mint};
use super::{EDGE_USER, Error, broker_files, node_config};
use crate::config::Config;

/// One change of the registry at a time, so that the broker's files are written from the newest
/// state.
const REGISTRY_LOCK: i64 = 0x6e6f_6465;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Enrolment {
    /// The node.
    pub node_id: NodeId,
    /// Whose data it sends.
    pub tenant_id: TenantId,
    /// The farm it stands on.
    pub farm_id: Option<FarmId>,
    /// The barn it stands in.
    pub barn_id: Option<BarnId>,
    /// The device of samples that name none; minted when absent.
    pub device_id: Option<DeviceId>,
    /// A name for people.
    pub label: String,
    /// Whether a node that is enrolled already gets a new secret. What is absent here stays as it
    /// was.
    pub rotate: bool,
}

/// A node that was let in.
#[derive(Debug)]
pub struct Enrolled {
    /// The node.
    pub node_id: NodeId,
    /// The device of samples that name none.
    pub device_id: DeviceId,
    /// Its secret; this is the only time it is seen.
    pub secret: Secret,
    /// The node's configuration, secret included.
    pub node_config: String,
    /// Whether the node was enrolled before.
    pub rotated: bool,
    /// Whether the broker's files were written; the broker has to read them again.
    pub broker_files_written: bool,
}

/// Lets a node in: mints its secret, records it, writes the broker's files.
pub async fn enroll(config: &Config, request: &Enrolment) -> Result<Enrolled, Error> {
    if [EDGE_USER, config.broker_user.0.as_str()].contains(&request.node_id.as_str()) {
        return Err(Error::Reserved);
    }
    let client = locked(config).await?;
    let secret = mint();
    let (rotated, device_id) = record(&client, request, &secret).await?;
    let broker_files_written = broker_files::write(config, &client).await?;
    Ok(Enrolled {
        node_id: request.node_id.clone(),
        device_id,
        node_config: node_config::text(config, request, device_id, &secret),
        secret,
        rotated,
        broker_files_written,
    })
}

async fn record(
    client: &Client,
    request: &Enrolment,
    secret: &Secret,
) -> Result<(bool, DeviceId), Error> {
    let node = request.node_id.as_str();
    let hash = SecretHash::of(secret.expose());
    let known = client
        .query_opt("SELECT tenant_id, device_id FROM nodes WHERE node_id = $1", &[&node])
        .await?;
    let tenant = request.tenant_id.uuid();
    let (farm, barn) = (request.farm_id.map(FarmId::uuid), request.barn_id.map(BarnId::uuid));
    let device = request.device_id.map(DeviceId::uuid);
    let Some(known) = known else {
        let device = request.device_id.unwrap_or_else(DeviceId::mint);
        client
            .execute(
                "INSERT INTO nodes (node_id, tenant_id, farm_id, barn_id, device_id, label,
                     secret_hash, broker_hash)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                &[
                    &node,
                    &tenant,
                    &farm,
                    &barn,
                    &device.uuid(),
                    &request.label,
                    &hash.bytes(),
                    &broker_hash(secret),
                ],
            )
            .await?;
        return Ok((false, device));
    };
    if !request.rotate {
        return Err(Error::Enrolled(request.node_id.clone()));
    }
    if known.get::<_, uuid::Uuid>(0) != tenant {
        return Err(Error::OtherTenant(request.node_id.clone()));
    }
    let row = client
        .query_one(
            "UPDATE nodes SET farm_id = coalesce($2, farm_id), barn_id = coalesce($3, barn_id),
                 device_id = coalesce($4, device_id), label = coalesce(nullif($5, ''), label),
                 secret_hash = $6, broker_hash = $7, rotated_at = now()
             WHERE node_id = $1 RETURNING device_id",
            &[&node, &farm, &barn, &device, &request.label, &hash.bytes(), &broker_hash(secret)],
        )
        .await?;
    let device = DeviceId::from_uuid(row.get(0))
        .map_err(|error| Error::Damaged { node: node.to_owned(), problem: error.to_string() })?;
    Ok((true, device))
}

/// Shuts a node out, or lets it in again with the secret it has. Its data stays.
pub async fn set_disabled(config: &Config, node: &NodeId, disabled: bool) -> Result<(), Error> {
    let client = locked(config).await?;
    let changed = client
        .execute(
            "UPDATE nodes SET disabled_at = CASE WHEN $2 THEN coalesce(disabled_at, now()) END
             WHERE node_id = $1",
            &[&node.as_str(), &disabled],
        )
        .await?;
    if changed == 0 {
        return Err(Error::Unknown(node.clone()));
    }
    broker_files::write(config, &client).await?;
    Ok(())
}

/// Takes the flag off a node, after a person has seen to the cloned card.
pub async fn clear_flag(config: &Config, node: &NodeId) -> Result<(), Error> {
    let client = pg::connect(&config.database).await?;
    let changed = client
        .execute(
            "UPDATE nodes SET flagged_at = NULL, flag_reason = NULL WHERE node_id = $1",
            &[&node.as_str()],
        )
        .await?;
    if changed == 0 { Err(Error::Unknown(node.clone())) } else { Ok(()) }
}

/// A connection that holds the registry's lock until it is dropped.
async fn locked(config: &Config) -> Result<Client, Error> {
    let client = pg::connect(&config.database).await?;
    client.execute("SELECT pg_advisory_lock($1)", &[&REGISTRY_LOCK]).await?;
    Ok(client)
}
