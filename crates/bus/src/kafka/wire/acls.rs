//! Access rules: what they say, and the calls that list, make and delete them.

use std::fmt;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};
use kafka_protocol::protocol::StrBytes;

use super::connection::Connection;
use super::{Need, WireError};

/// In a filter: whatever it is.
const ANY: i8 = 1;

/// Kafka's numbers with the words that its tools have for them. One that is not known here stays a number.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $(
                #[doc = $word]
                $variant,
            )*
            /// One that came after this was written.
            Other(i8),
        }

        impl $name {
            fn code(self) -> i8 {
                match self {
                    $($name::$variant => $code,)*
                    $name::Other(code) => code,
                }
            }

            fn from_code(code: i8) -> $name {
                match code {
                    $($code => $name::$variant,)*
                    other => $name::Other(other),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$variant => f.pad($word),)*
                    $name::Other(code) => write!(f, "#{code}"),
                }
            }
        }
    };
}

coded! {
    /// What a rule is about.
    Resource {
        Topic = 2 "topic",
        Group = 3 "group",
        Cluster = 4 "cluster",
        TransactionalId = 5 "transactional-id",
        DelegationToken = 6 "delegation-token",
        User = 7 "user",
    }
}

coded! {
    /// How a rule names its resource.
    Pattern {
        Literal = 3 "literal",
        Prefixed = 4 "prefixed",
    }
}

coded! {
    /// What may be done, or may not.
    Operation {
        All = 2 "All",
        Read = 3 "Read",
        Write = 4 "Write",
        Create = 5 "Create",
        Delete = 6 "Delete",
        Alter = 7 "Alter",
        Describe = 8 "Describe",
        ClusterAction = 9 "ClusterAction",
        DescribeConfigs = 10 "DescribeConfigs",
        AlterConfigs = 11 "AlterConfigs",
        IdempotentWrite = 12 "IdempotentWrite",
        CreateTokens = 13 "CreateTokens",
        DescribeTokens = 14 "DescribeTokens",
        TwoPhaseCommit = 15 "TwoPhaseCommit",
    }
}

coded! {
    /// Whether it may.
    Permission {
        Deny = 2 "deny",
        Allow = 3 "allow",
    }
}

/// The name of a resource or a host that stands for all of them.
pub(in crate::kafka) const EVERY: &str = "*";

/// An access rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// `User:name`; `User:*` is everybody.
    pub principal: String,
    /// What it is about.
    pub resource: Resource,
    /// The name of that; `*` is all of them.
    pub name: String,
    /// Whether the name is whole.
    pub pattern: Pattern,
    /// What may be done.
    pub operation: Operation,
    /// Whether it may.
    pub permission: Permission,
    /// From where; `*` is everywhere.
    pub host: String,
}

impl Rule {
    /// Allows a user something, from everywhere.
    pub fn allow(user: &str, operation: Operation, resource: Resource, name: &str) -> Rule {
        Rule {
            principal: format!("User:{user}"),
            resource,
            name: name.to_owned(),
            pattern: Pattern::Literal,
            operation,
            permission: Permission::Allow,
            host: EVERY.to_owned(),
        }
    }

    /// True when the rule's name stands for this resource, too.
    pub(in crate::kafka) fn covers(&self, resource: Resource, name: &str) -> bool {
        self.resource == resource
            && match self.pattern {
                Pattern::Prefixed => name.starts_with(&self.name),
                Pattern::Literal | Pattern::Other(_) => self.name == EVERY || self.name == name,
            }
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Connection {
    /// Every rule of one principal.
    pub(in crate::kafka) async fn rules_of(
        &mut self,
        principal: &str,
    ) -> Result<Vec<Rule>, WireError> {
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_principal_filter(Some(text(principal)))
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY);
        let answer = self.call(&request).await?;
        let message = answer.error_message.as_ref();
        self.accept::<DescribeAclsRequest>(Need::Describe, answer.error_code, message)?;
        let mut rules = Vec::new();
        for resource in &answer.resources {
            rules.extend(resource.acls.iter().map(|acl| Rule {
                principal: acl.principal.to_string(),
                resource: Resource::from_code(resource.resource_type),
                name: resource.resource_name.to_string(),
                pattern: Pattern::from_code(resource.pattern_type),
                operation: Operation::from_code(acl.operation),
                permission: Permission::from_code(acl.permission_type),
                host: acl.host.to_string(),
            }));
        }
        Ok(rules)
    }

    /// Makes rules; one that is there already stays.
    pub(in crate::kafka) async fn create_rules(&mut self, rules: &[Rule]) -> Result<(), WireError> {
        let creations = rules.iter().map(|rule| {
            AclCreation::default()
                .with_resource_type(rule.resource.code())
                .with_resource_name(text(&rule.name))
                .with_resource_pattern_type(rule.pattern.code())
                .with_principal(text(&rule.principal))
                .with_host(text(&rule.host))
                .with_operation(rule.operation.code())
                .with_permission_type(rule.permission.code())
        });
        let request = CreateAclsRequest::default().with_creations(creations.collect());
        for result in &self.call(&request).await?.results {
            let message = result.error_message.as_ref();
            self.accept::<CreateAclsRequest>(Need::Alter, result.error_code, message)?;
        }
        Ok(())
    }

    /// Deletes exactly these rules.
    pub(in crate::kafka) async fn delete_rules(&mut self, rules: &[Rule]) -> Result<(), WireError> {
        let filters = rules.iter().map(|rule| {
            DeleteAclsFilter::default()
                .with_resource_type_filter(rule.resource.code())
                .with_resource_name_filter(Some(text(&rule.name)))
                .with_pattern_type_filter(rule.pattern.code())
                .with_principal_filter(Some(text(&rule.principal)))
                .with_host_filter(Some(text(&rule.host)))
                .with_operation(rule.operation.code())
                .with_permission_type(rule.permission.code())
        });
        let request = DeleteAclsRequest::default().with_filters(filters.collect());
        for result in &self.call(&request).await?.filter_results {
            let message = result.error_message.as_ref();
            self.accept::<DeleteAclsRequest>(Need::Alter, result.error_code, message)?;
            for deleted in &result.matching_acls {
                let message = deleted.error_message.as_ref();
                self.accept::<DeleteAclsRequest>(Need::Alter, deleted.error_code, message)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_covers_what_its_name_stands_for() {
        let rule = |pattern, name: &str| Rule {
            pattern,
            ..Rule::allow("ada", Operation::Read, Resource::Topic, name)
        };
        let covers = |rule: Rule| rule.covers(Resource::Topic, "scada.l2.events");
        assert!(covers(rule(Pattern::Literal, "scada.l2.events")));
        assert!(covers(rule(Pattern::Literal, "*")));
        assert!(covers(rule(Pattern::Prefixed, "scada.")));
        assert!(!covers(rule(Pattern::Literal, "scada.")));
        assert!(!covers(rule(Pattern::Prefixed, "farm.")));
        assert!(!rule(Pattern::Literal, "*").covers(Resource::Group, "scada.l2.events"));
    }

    #[test]
    fn numbers_are_kafkas_and_unknown_ones_stay() {
        for code in i8::MIN..=i8::MAX {
            assert_eq!(Operation::from_code(code).code(), code);
            assert_eq!(Resource::from_code(code).code(), code);
        }
        assert_eq!(Operation::from_code(12).to_string(), "IdempotentWrite");
        assert_eq!(Operation::from_code(99).to_string(), "#99");
    }
}
