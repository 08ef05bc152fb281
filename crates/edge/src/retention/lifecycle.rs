//! Rules for the object store of an operator who prefers that it forgets by itself.

use serde_json::{Value, json};

use crate::config::Retention;

/// Said with the rules, always.
pub const WARNING: &str = "These rules do not know what was delivered to the cloud, nor which session is open, and count from the upload. \
Holdfast's own retention (role retention, or holdfast edge retain) does. Use one of the two; archives of dead letters are kept by both.";

/// Media lie under this; archives of dead letters do not.
const PREFIX: &str = "tenants/";
const ID: &str = "holdfast-media";

/// The rules as `aws s3api put-bucket-lifecycle-configuration` takes them.
pub fn json(retention: &Retention) -> Value {
    json!({"Rules": [{
        "ID": ID,
        "Status": "Enabled",
        "Filter": {"Prefix": PREFIX},
        "Expiration": {"Days": retention.media_days},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}
    }]})
}

/// The rules as S3's own API takes them.
pub fn xml(retention: &Retention) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">
  <Rule>
    <ID>{ID}</ID>
    <Filter><Prefix>{PREFIX}</Prefix></Filter>
    <Status>Enabled</Status>
    <Expiration><Days>{}</Days></Expiration>
    <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>
  </Rule>
</LifecycleConfiguration>
",
        retention.media_days
    )
}
