//! Users of SCRAM-SHA-512: who has a password, and setting one.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::connection::Connection;
use super::scram::credential;
use super::{Need, WireError};

/// Kafka's number of SCRAM-SHA-512.
const SHA_512: i8 = 2;
/// RESOURCE_NOT_FOUND: the user has no password by any mechanism.
const NOT_FOUND: i16 = 91;

fn name(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Connection {
    /// Those of the users that have a password, and how often it is hashed.
    pub(in crate::kafka) async fn iterations_of(
        &mut self,
        users: &[&str],
    ) -> Result<BTreeMap<String, u32>, WireError> {
        let mut found = BTreeMap::new();
        // An empty list asks for all users.
        if users.is_empty() {
            return Ok(found);
        }
        let asked = users.iter().map(|user| UserName::default().with_name(name(user))).collect();
        let request = DescribeUserScramCredentialsRequest::default().with_users(Some(asked));
        let answer = self.call(&request).await?;
        let accept = |code, message: Option<&StrBytes>| {
            self.accept::<DescribeUserScramCredentialsRequest>(Need::Describe, code, message)
        };
        accept(answer.error_code, answer.error_message.as_ref())?;
        for result in &answer.results {
            if result.error_code == NOT_FOUND {
                continue;
            }
            accept(result.error_code, result.error_message.as_ref())?;
            let sha_512 = result.credential_infos.iter().find(|one| one.mechanism == SHA_512);
            if let Some(credential) = sha_512 {
                let iterations = u32::try_from(credential.iterations).unwrap_or_default();
                found.insert(result.user.to_string(), iterations);
            }
        }
        Ok(found)
    }

    /// Gives users passwords, old ones or new. The cluster gets salt and hash.
    pub(in crate::kafka) async fn set_passwords(
        &mut self,
        users: &[(&str, &str)],
    ) -> Result<(), WireError> {
        self.must_be_private()?;
        let upsertions = users.iter().map(|(user, password)| {
            let made = credential(password);
            ScramCredentialUpsertion::default()
                .with_name(name(user))
                .with_mechanism(SHA_512)
                .with_iterations(i32::try_from(made.iterations).unwrap_or(i32::MAX))
                .with_salt(Bytes::from(made.salt))
                .with_salted_password(Bytes::from(made.salted_password))
        });
        let request =
            AlterUserScramCredentialsRequest::default().with_upsertions(upsertions.collect());
        for result in &self.call(&request).await?.results {
            let message = result.error_message.as_ref();
            self.accept::<AlterUserScramCredentialsRequest>(
                Need::Alter,
                result.error_code,
                message,
            )?;
        }
        Ok(())
    }
}
