//! Calls of the emulated AWS as its query APIs have them: what a test does in the account itself.

use anyhow::{Result, bail, ensure};

use super::http::Http;
use super::moto::Moto;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The owner of the account: neither policy nor rate limits concern them, and their calls are counted.
    Owner,
    /// Whom the policy is for.
    Controller,
}

impl Caller {
    /// Access key.
    const fn key(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Controller => "test",
        }
    }
}

impl Moto {
    /// A call of `ec2` or `iam`, with `Action` among its parameters. Returns the body of the answer, XML.
    ///
    /// # Errors
    /// The service refuses; the text is what it said.
    pub async fn query(
        &self,
        caller: Caller,
        service: &str,
        parameters: &[(&str, &str)],
    ) -> Result<String> {
        let version = match service {
            "ec2" => "2016-11-15",
            "iam" => "2010-05-08",
            other => bail!("{other} has no query API here"),
        };
        let credential = format!(
            "AWS4-HMAC-SHA256 Credential={}/20260101/{}/{service}/aws4_request, SignedHeaders=host, Signature=0",
            caller.key(),
            Self::REGION
        );
        let query: Vec<String> = parameters
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let reply = Http::new("", None)?
            .with_header("Authorization", &credential)
            .get(&format!(
                "{}/?Version={version}&{}",
                self.endpoint(),
                query.join("&")
            ))
            .await?;
        ensure!(
            reply.status == 200,
            "status {}: {}",
            reply.status,
            reply.body
        );
        Ok(reply.body)
    }
}
