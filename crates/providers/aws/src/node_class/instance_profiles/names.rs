//! Names and paths of instance profiles. Pure.
//!
//! # Source
//! IAM's rules for names of instance profiles, and the names and paths that Karpenter's profiles have, so that each finds the other's.

use mortise_apis::hash::structure::{Structure, text, text_value};

/// Longest name that IAM takes.
const MAX_NAME: usize = 128;
/// Room in a name for an underscore and the digits of a 64-bit number.
const HASH_ROOM: usize = 21;

/// Path of all profiles of a cluster.
pub(crate) fn cluster_path(region: &str, cluster: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// Path of the profiles of a node class.
pub(crate) fn class_path(region: &str, cluster: &str, uid: &str) -> String {
    format!("{}{uid}/", cluster_path(region, cluster))
}

/// UID of the node class whose profiles have this path; `None` for a path that is not one of the cluster's.
pub(crate) fn class_of_path<'a>(cluster_path: &str, path: &'a str) -> Option<&'a str> {
    let uid = path.strip_prefix(cluster_path)?.strip_suffix('/')?;
    (!uid.is_empty() && !uid.contains('/')).then_some(uid)
}

/// What the name of a new profile follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProfileIdentity<'a> {
    pub(crate) region: &'a str,
    pub(crate) cluster: &'a str,
    /// UID of the node class.
    pub(crate) class_uid: &'a str,
    /// Name of the role, without its path.
    pub(crate) role: &'a str,
    /// The profile that the new one takes the place of.
    pub(crate) replaces: Option<&'a str>,
}

impl ProfileIdentity<'_> {
    /// Name of the profile. The same as long as the status of the class is: an attempt that was cut off is found again. Another one
    /// for every later profile of the class: a name never gets another meaning.
    pub(crate) fn name(&self) -> String {
        let hash = Structure::new("InstanceProfile")
            .field("Region", text_value(self.region))
            .field("Cluster", text_value(self.cluster))
            .field("NodeClassUID", text_value(self.class_uid))
            .field("Role", text_value(self.role))
            .field("Replaces", self.replaces.map(text))
            .finish();
        // A cluster may have any name; a profile may not.
        let cluster: String = self
            .cluster
            .chars()
            .map(|each| if is_legal_char(each) { each } else { '-' })
            .take(MAX_NAME - HASH_ROOM)
            .collect();
        format!("{cluster}_{hash}")
    }
}

/// Name, at the path `/`, of the profile that Karpenter before 1.7 made for a class; `None` if IAM takes no such name, so that there
/// can be none.
pub(crate) fn legacy_name(region: &str, cluster: &str, class_name: &str) -> Option<String> {
    let name = format!("{cluster}_{}", text(&format!("{region}{class_name}")));
    (name.len() <= MAX_NAME && name.chars().all(is_legal_char)).then_some(name)
}

/// Name of a role without its path, which is how IAM's calls and answers name it.
pub(crate) fn bare_role(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

fn is_legal_char(each: char) -> bool {
    each.is_ascii_alphanumeric() || "_+=,.@-".contains(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: ProfileIdentity<'_> = ProfileIdentity {
        region: "us-west-2",
        cluster: "test",
        class_uid: "uid",
        role: "role",
        replaces: None,
    };

    #[test]
    fn a_name_says_what_it_follows_from() {
        let changes = [
            ProfileIdentity {
                region: "us-east-1",
                ..IDENTITY
            },
            ProfileIdentity {
                cluster: "other",
                ..IDENTITY
            },
            ProfileIdentity {
                class_uid: "other",
                ..IDENTITY
            },
            ProfileIdentity {
                role: "other",
                ..IDENTITY
            },
            ProfileIdentity {
                replaces: Some("test_1"),
                ..IDENTITY
            },
            ProfileIdentity {
                replaces: Some("test_2"),
                ..IDENTITY
            },
        ];
        let mut names: Vec<_> = changes.iter().map(ProfileIdentity::name).collect();
        names.push(IDENTITY.name());
        assert_eq!(IDENTITY.name(), IDENTITY.name());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 7, "{names:?}");
    }

    #[test]
    fn names_are_legal_whatever_the_cluster_is_called() {
        for cluster in [
            "aws:1:eu-central-1:kubernetes",
            "a b/c",
            &"x".repeat(200),
            "ü",
        ] {
            let name = ProfileIdentity {
                cluster,
                ..IDENTITY
            }
            .name();
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(name.chars().all(is_legal_char), "{name}");
        }
    }

    #[test]
    fn the_old_name_of_a_profile_is_karpenters() {
        let name = legacy_name("us-west-2", "test-cluster", "turnermeteor-6-l0ueqlnm46");
        assert_eq!(name.as_deref(), Some("test-cluster_4009183541998920316"));
        for cluster in ["aws:1", &"x".repeat(110)] {
            assert_eq!(legacy_name("us-west-2", cluster, "class"), None);
        }
    }

    #[test]
    fn a_path_names_its_class() {
        let cluster = cluster_path("us-west-2", "test");
        assert_eq!(cluster, "/karpenter/us-west-2/test/");
        assert_eq!(
            class_of_path(&cluster, &class_path("us-west-2", "test", "u")),
            Some("u")
        );
        for other in [
            "/",
            "/karpenter/us-west-2/test/",
            "/karpenter/us-west-2/test/u/v/",
            "/karpenter/us-west-2/other/u/",
            "/karpenter/us-west-2/test/u",
        ] {
            assert_eq!(class_of_path(&cluster, other), None, "{other}");
        }
        assert_eq!(
            (bare_role("role/with/path"), bare_role("role")),
            ("path", "role")
        );
    }
}
