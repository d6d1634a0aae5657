//! Who we say we are: a user with a password, an API key, or a bearer token, and where each is kept.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

use crate::secret::Kept;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub kind: Kind,
    pub kept: Kept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Basic {
        user: String,
    },
    /// `id:key`, or the two already in base64.
    ApiKey,
    Bearer,
}

impl Login {
    /// The header `authorization`, with the secret as it is now.
    pub fn header(&self) -> anyhow::Result<HeaderValue> {
        let secret = self.kept.get()?;
        let secret = secret.reveal();
        match &self.kind {
            Kind::Basic { user } => basic(user, secret),
            Kind::ApiKey if secret.contains(':') => header(&format!("ApiKey {}", STANDARD.encode(secret))),
            Kind::ApiKey => header(&format!("ApiKey {secret}")),
            Kind::Bearer => header(&format!("Bearer {secret}")),
        }
    }

    /// Whether another secret can be there later.
    pub fn can_change(&self) -> bool {
        !matches!(self.kept, Kept::Given(_))
    }

    /// In words, without the secret.
    pub fn words(&self) -> String {
        let kind = match self.kind {
            Kind::Basic { .. } => "a user and a password",
            Kind::ApiKey => "an API key",
            Kind::Bearer => "a bearer token",
        };
        format!("{kind}{}", self.kept.words())
    }
}

pub fn basic(user: &str, password: &str) -> anyhow::Result<HeaderValue> {
    header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn header(text: &str) -> anyhow::Result<HeaderValue> {
    // the error would not say the text, and must not
    let mut value = HeaderValue::from_str(text).ok().context("credentials with a byte that no header may have")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn credentials_as_logstash_sends_them() {
        let check = |kind: Kind, secret: &str, want: &str| {
            let login = Login { kind, kept: Kept::Given(Secret::new(secret)) };
            let header = login.header().unwrap();
            assert_eq!(header.as_bytes(), want.as_bytes());
            assert!(!format!("{login:?}{header:?}{}", login.words()).contains(secret));
        };
        check(Kind::ApiKey, "some_id:some_api_key", "ApiKey c29tZV9pZDpzb21lX2FwaV9rZXk=");
        check(Kind::ApiKey, "c29tZV9pZDpzb21lX2FwaV9rZXk=", "ApiKey c29tZV9pZDpzb21lX2FwaV9rZXk=");
        check(Kind::Basic { user: "u".to_string() }, "pw", "Basic dTpwdw==");
        check(Kind::Bearer, "eyJ0.abc-_~+/=", "Bearer eyJ0.abc-_~+/=");
        let odd = Login { kind: Kind::Bearer, kept: Kept::Given(Secret::new("a\nb")) };
        assert!(!format!("{:#}", odd.header().unwrap_err()).contains("a\nb"));
    }
}
