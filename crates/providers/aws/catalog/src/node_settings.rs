//! What a node class says about the inside of its nodes: kubelet settings, disks and network interfaces, read once.

use mortise_apis::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use mortise_apis::values::Quantity;
use mortise_aws_class::spec::{BlockDeviceMapping, Ec2NodeClassSpec};
use serde_json::{Map, Value};

use crate::ami_family::AmiFamily;
use crate::capacity_options::CapacityOptions;
use crate::kubelet_expression::Expression;

/// GiB in bytes.
pub const GIB: i64 = 1 << 30;
/// MiB in bytes.
pub const MIB: i64 = 1 << 20;

/// A reservation that may say some resources and leave others to the default. Units: milli CPU, bytes, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedResources {
    /// CPU in milli.
    pub cpu: Option<i64>,
    /// Memory in bytes.
    pub memory: Option<i64>,
    /// Local disk in bytes.
    pub ephemeral_storage: Option<i64>,
}

/// Amounts of a reservation that depend on the instance type. Units of the results: milli CPU, MiB, GiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedExpressions {
    /// CPU in milli, rounded up to 10.
    pub cpu: Option<Expression>,
    /// Memory in MiB, rounded up to 16.
    pub memory: Option<Expression>,
    /// Local disk in GiB.
    pub ephemeral_storage: Option<Expression>,
}

/// When the kubelet begins to evict pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// When this number of bytes is left.
    Bytes(i64),
    /// When this share of the capacity is left, in units of 10^-`scale` per cent.
    Percent {
        /// Digits of the number.
        digits: i64,
        /// How many of them stand behind the point.
        scale: u32,
    },
}

impl Threshold {
    /// The amount that may not be given to pods. 100 % switches a threshold off.
    #[must_use]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent { digits, scale } => {
                let whole = 100 * 10_i128.pow(scale);
                if i128::from(digits) == whole {
                    return 0;
                }
                let product = i128::from(capacity) * i128::from(digits);
                i64::try_from(
                    product.div_euclid(whole) + i128::from(product.rem_euclid(whole) != 0),
                )
                .unwrap_or(i64::MAX)
            }
        }
    }

    /// Reads a quantity, or a percentage such as `7.77%`.
    /// # Errors
    /// What is allowed instead.
    fn parse(text: &str) -> Result<Self, String> {
        let bad =
            || format!("expected a quantity or a percentage between 0% and 100%, got {text:?}");
        let Some(number) = text.strip_suffix('%') else {
            return Quantity::parse(text)
                .ok()
                .filter(|quantity| quantity.signum() >= 0)
                .map(|quantity| Self::Bytes(quantity.value()))
                .ok_or_else(bad);
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let scale = u32::try_from(fraction.len())
            .ok()
            .filter(|scale| *scale <= 9)
            .ok_or_else(bad)?;
        if whole.is_empty() || digits.bytes().any(|byte| !byte.is_ascii_digit()) {
            return Err(bad());
        }
        let digits: i64 = digits.parse().map_err(|_| bad())?;
        if i128::from(digits) > 100 * 10_i128.pow(scale) {
            return Err(bad());
        }
        Ok(Self::Percent { digits, scale })
    }
}

/// A network interface that the class asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index of the network card.
    pub card: usize,
    /// Number of the device on its card.
    pub device: i64,
    /// For the elastic fabric only: it has no address for pods.
    pub efa_only: bool,
}

/// What a node class says about the inside of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// Image family.
    pub family: AmiFamily,
    /// Controller settings.
    pub options: CapacityOptions,
    /// `kubelet.maxPods`, when it is a number.
    pub max_pods: Option<i64>,
    /// `kubelet.maxPods`, when it is an expression.
    pub max_pods_expression: Option<Expression>,
    /// `kubelet.podsPerCore`.
    pub pods_per_core: Option<i64>,
    /// `kubelet.kubeReserved`.
    pub kube_reserved: ReservedResources,
    /// `kubelet.systemReserved`.
    pub system_reserved: ReservedResources,
    /// Expressions of `kubelet.kubeReserved`.
    pub kube_reserved_expressions: ReservedExpressions,
    /// Expressions of `kubelet.systemReserved`.
    pub system_reserved_expressions: ReservedExpressions,
    /// `kubelet.evictionHard["memory.available"]`.
    pub evict_memory: Option<Threshold>,
    /// `kubelet.evictionHard["nodefs.available"]`.
    pub evict_disk: Option<Threshold>,
    /// Size of the disk for pods' data in bytes; `None` is the family's default.
    pub data_disk: Option<i64>,
    /// Whether local disks are joined and hold pods' data instead.
    pub raid0: bool,
    /// `spec.networkInterfaces`; empty when the class leaves them to us.
    pub interfaces: Vec<Interface>,
    /// Whether nested virtualization is required.
    pub nested_virtualization: bool,
    /// Whether connection tracking times are set, which only Nitro instances can take.
    pub connection_tracking: bool,
}

/// A field of the node class that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field}: {message}")]
pub struct NodeClassFieldError {
    /// Path below `spec`.
    pub field: String,
    /// What is allowed, and what was found.
    pub message: String,
}

impl NodeSettings {
    /// Reads the class.
    /// # Errors
    /// The first field that does not mean anything, with what is allowed. Texts in place of numbers under `kubelet.maxPods`,
    /// `kubeReserved` and `systemReserved` are expressions; unless `options` allow them they count as absent here, see [`expressions`].
    pub fn read(
        spec: &Ec2NodeClassSpec,
        options: CapacityOptions,
    ) -> Result<Self, NodeClassFieldError> {
        let empty = Map::new();
        let kubelet = spec.kubelet.as_ref().unwrap_or(&empty);
        check_kinds(kubelet)?;
        let family = AmiFamily::of(spec);
        let evict = |signal: &str| {
            let text = kubelet
                .get("evictionHard")
                .and_then(|hard| hard.get(signal));
            text.map(|value| threshold(value, &format!("kubelet.evictionHard[{signal:?}]")))
                .transpose()
        };
        let interfaces = spec
            .network_interfaces
            .as_deref()
            .unwrap_or_default()
            .iter()
            .map(|each| Interface {
                card: usize::try_from(each.network_card_index).unwrap_or(usize::MAX),
                device: i64::from(each.device_index),
                efa_only: each.interface_type == "efa-only",
            });
        Ok(Self {
            family,
            options,
            max_pods: count(kubelet, "maxPods")?,
            max_pods_expression: match kubelet.get("maxPods") {
                Some(Value::String(text)) if options.expressions => {
                    Some(expression("kubelet.maxPods", text)?)
                }
                _ => None,
            },
            pods_per_core: count(kubelet, "podsPerCore")?,
            kube_reserved: reserved(kubelet, "kubeReserved")?,
            system_reserved: reserved(kubelet, "systemReserved")?,
            kube_reserved_expressions: reserved_expressions(kubelet, "kubeReserved", options)?,
            system_reserved_expressions: reserved_expressions(kubelet, "systemReserved", options)?,
            evict_memory: evict("memory.available")?,
            evict_disk: evict("nodefs.available")?,
            data_disk: data_disk(
                family,
                spec.block_device_mappings.as_deref().unwrap_or_default(),
            )?,
            raid0: spec.instance_store_policy.as_deref() == Some("RAID0"),
            interfaces: interfaces.collect(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .is_some_and(|cpu| cpu.nested_virtualization.as_deref() == Some("enabled")),
            connection_tracking: spec.connection_tracking.is_some(),
        })
    }

    /// Size of the data disk in bytes when it is a network volume.
    #[must_use]
    pub fn volume_bytes(&self) -> i64 {
        let default = self
            .family
            .default_disks()
            .last()
            .map_or(20, |(_, gib)| *gib);
        self.data_disk.unwrap_or(default * GIB)
    }
}

/// Kubelet fields that hold an expression instead of a value. Sorted.
#[must_use]
pub fn expressions(spec: &Ec2NodeClassSpec) -> Vec<String> {
    let Some(kubelet) = &spec.kubelet else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for map in ["kubeReserved", "systemReserved"] {
        let entries = kubelet
            .get(map)
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        found.extend(
            entries
                .filter(|(_, value)| {
                    value
                        .as_str()
                        .is_some_and(|text| Quantity::parse(text).is_err())
                })
                .map(|(key, _)| format!("kubelet.{map}.{key}")),
        );
    }
    if kubelet.get("maxPods").is_some_and(Value::is_string) {
        found.push("kubelet.maxPods".to_owned());
    }
    found.sort();
    found
}

fn wrong(field: impl Into<String>, allowed: &str, found: &Value) -> NodeClassFieldError {
    NodeClassFieldError {
        field: field.into(),
        message: format!("expected {allowed}, got {found}"),
    }
}

fn count(kubelet: &Map<String, Value>, field: &str) -> Result<Option<i64>, NodeClassFieldError> {
    match kubelet.get(field) {
        None | Some(Value::Null | Value::String(_)) => Ok(None),
        Some(value) => match value
            .as_i64()
            .filter(|number| (0..=i64::from(i32::MAX)).contains(number))
        {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(
                format!("kubelet.{field}"),
                "a whole number of at least 0",
                value,
            )),
        },
    }
}

fn reserved(
    kubelet: &Map<String, Value>,
    field: &str,
) -> Result<ReservedResources, NodeClassFieldError> {
    let mut all = ReservedResources::default();
    let entries = match kubelet.get(field) {
        None | Some(Value::Null) => return Ok(all),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            return Err(wrong(
                format!("kubelet.{field}"),
                "an object of quantities",
                other,
            ));
        }
    };
    for (name, value) in entries {
        let path = format!("kubelet.{field}.{name}");
        let text = value
            .as_str()
            .ok_or_else(|| wrong(&*path, "a text with a quantity", value))?;
        if text.starts_with('-') {
            return Err(wrong(path, "a quantity of at least 0", value));
        }
        let Ok(quantity) = Quantity::parse(text) else {
            continue;
        };
        match name.as_str() {
            CPU => all.cpu = Some(quantity.milli()),
            MEMORY => all.memory = Some(quantity.value()),
            EPHEMERAL_STORAGE => all.ephemeral_storage = Some(quantity.value()),
            _ => {} // `pid` takes nothing that pods ask for
        }
    }
    Ok(all)
}

/// Amounts that are no quantities, if expressions are allowed.
fn reserved_expressions(
    kubelet: &Map<String, Value>,
    field: &str,
    options: CapacityOptions,
) -> Result<ReservedExpressions, NodeClassFieldError> {
    let mut all = ReservedExpressions::default();
    let entries = kubelet.get(field).and_then(Value::as_object);
    for (name, value) in entries
        .into_iter()
        .flatten()
        .filter(|_| options.expressions)
    {
        let Some(text) = value.as_str().filter(|text| Quantity::parse(text).is_err()) else {
            continue;
        };
        let parsed = Some(expression(&format!("kubelet.{field}[{name}]"), text)?);
        match name.as_str() {
            CPU => all.cpu = parsed,
            MEMORY => all.memory = parsed,
            EPHEMERAL_STORAGE => all.ephemeral_storage = parsed,
            _ => {} // `pid` takes nothing that pods ask for
        }
    }
    Ok(all)
}

fn expression(field: &str, text: &str) -> Result<Expression, NodeClassFieldError> {
    Expression::parse(text).map_err(|error| NodeClassFieldError {
        field: field.to_owned(),
        message: format!("compiling expression, {error} (expression={text})"),
    })
}

fn threshold(value: &Value, path: &str) -> Result<Threshold, NodeClassFieldError> {
    let text = value
        .as_str()
        .ok_or_else(|| wrong(path, "a text with a quantity or a percentage", value))?;
    Threshold::parse(text).map_err(|message| NodeClassFieldError {
        field: path.to_owned(),
        message,
    })
}

/// Whether a value is of a kind.
type IsAllowed = fn(&Value) -> bool;

/// Kubelet settings that this program reads itself, each with what it has to be.
const KINDS: [(&str, &str, IsAllowed); 12] = [
    ("clusterDNS", "a list of texts", is_texts),
    ("cpuCFSQuota", "true or false", Value::is_boolean),
    ("evictionHard", "an object of texts", is_text_map),
    ("evictionMaxPodGracePeriod", "a whole number", Value::is_i64),
    ("evictionSoft", "an object of texts", is_text_map),
    ("evictionSoftGracePeriod", "an object of texts", is_text_map),
    (
        "imageGCHighThresholdPercent",
        "a whole number",
        Value::is_i64,
    ),
    (
        "imageGCLowThresholdPercent",
        "a whole number",
        Value::is_i64,
    ),
    ("kubeReserved", "an object of texts", Value::is_object),
    (
        "maxPods",
        "a whole number or an expression",
        is_number_or_text,
    ),
    ("podsPerCore", "a whole number", Value::is_number),
    ("systemReserved", "an object of texts", Value::is_object),
];

fn is_texts(value: &Value) -> bool {
    let items = value.as_array();
    items.is_some_and(|items| items.iter().all(Value::is_string))
}

fn is_text_map(value: &Value) -> bool {
    let fields = value.as_object();
    fields.is_some_and(|fields| fields.values().all(Value::is_string))
}

fn is_number_or_text(value: &Value) -> bool {
    value.is_number() || value.is_string()
}

fn check_kinds(kubelet: &Map<String, Value>) -> Result<(), NodeClassFieldError> {
    for (field, allowed, is_allowed) in KINDS {
        if let Some(value) = kubelet.get(field)
            && !value.is_null()
            && !is_allowed(value)
        {
            return Err(wrong(format!("kubelet.{field}"), allowed, value));
        }
    }
    Ok(())
}

/// Size of the disk that pods' data is on: of the mapping marked as root volume, else of the family's data device; for `Custom`,
/// where the device is not known, of the last mapping.
fn data_disk(
    family: AmiFamily,
    disks: &[BlockDeviceMapping],
) -> Result<Option<i64>, NodeClassFieldError> {
    let sized = |index: usize, disk: &BlockDeviceMapping| {
        let Some(text) = disk.ebs.as_ref().and_then(|ebs| ebs.volume_size.as_deref()) else {
            return Ok(None);
        };
        let field = || format!("blockDeviceMappings[{index}].ebs.volumeSize");
        match Quantity::parse(text) {
            Ok(quantity) if quantity.signum() > 0 => Ok(Some(quantity.value())),
            _ => Err(NodeClassFieldError {
                field: field(),
                message: format!("expected a size such as 100Gi, got {text:?}"),
            }),
        }
    };
    let of = |found: Option<(usize, &BlockDeviceMapping)>| {
        found.map_or(Ok(None), |(index, disk)| sized(index, disk))
    };
    let indexed = || disks.iter().enumerate();
    if let Some(bytes) = of(indexed().find(|(_, disk)| disk.root_volume == Some(true)))? {
        return Ok(Some(bytes));
    }
    match family.data_device() {
        Some(device) => of(indexed().find(|(_, disk)| disk.device_name.as_deref() == Some(device))),
        None => of(indexed().next_back()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<NodeSettings, String> {
        NodeSettings::read(
            &serde_json::from_value(json).unwrap(),
            CapacityOptions::default(),
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn thresholds() {
        for (text, capacity, expected) in [
            ("10%", 1_000, 100),
            ("100%", 1_000, 0),
            ("0%", 1_000, 0),
            ("3.3%", 1_000, 33),
            ("0.01%", 9_999, 1),
            ("5Gi", 0, 5 * GIB),
            ("1k", 5, 1_000),
        ] {
            assert_eq!(
                Threshold::parse(text).unwrap().of(capacity),
                expected,
                "{text}"
            );
        }
        for text in [
            "",
            "%",
            "101%",
            "-1%",
            "-1Gi",
            "abc",
            "1.0000000001%",
            "1..2%",
        ] {
            assert!(Threshold::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bad_fields_are_named() {
        let error = |json| read(json).unwrap_err();
        assert_eq!(
            error(serde_json::json!({"kubelet": {"maxPods": -1}})),
            "spec.kubelet.maxPods: expected a whole number of at least 0, got -1"
        );
        assert_eq!(
            error(serde_json::json!({"kubelet": {"evictionHard": {"memory.available": "120%"}}})),
            "spec.kubelet.evictionHard[\"memory.available\"]: expected a quantity or a percentage between 0% and 100%, got \"120%\""
        );
        assert_eq!(
            error(serde_json::json!({"kubelet": {"kubeReserved": {"cpu": "-1"}}})),
            "spec.kubelet.kubeReserved.cpu: expected a quantity of at least 0, got \"-1\""
        );
        assert_eq!(
            error(
                serde_json::json!({"amiFamily": "AL2023", "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "Ti"}}]})
            ),
            "spec.blockDeviceMappings[0].ebs.volumeSize: expected a size such as 100Gi, got \"Ti\""
        );
    }

    #[test]
    fn settings_of_the_wrong_type_are_refused() {
        for (field, value, allowed) in [
            (
                "clusterDNS",
                serde_json::json!("10.0.0.10"),
                "a list of texts",
            ),
            ("cpuCFSQuota", serde_json::json!("no"), "true or false"),
            (
                "evictionSoft",
                serde_json::json!({"memory.available": 5}),
                "an object of texts",
            ),
            (
                "imageGCHighThresholdPercent",
                serde_json::json!(8.5),
                "a whole number",
            ),
            ("kubeReserved", serde_json::json!([]), "an object of texts"),
            (
                "maxPods",
                serde_json::json!(true),
                "a whole number or an expression",
            ),
        ] {
            let error = read(serde_json::json!({"kubelet": {field: value}})).unwrap_err();
            assert_eq!(
                error,
                format!("spec.kubelet.{field}: expected {allowed}, got {value}")
            );
        }
    }

    #[test]
    fn a_disk_without_volume_is_no_crash() {
        let shape = read(serde_json::json!({"amiFamily": "AL2023", "blockDeviceMappings": [{"rootVolume": true}, {"ebs": {}}]})).unwrap();
        assert_eq!(shape.volume_bytes(), 20 * GIB);
    }

    #[test]
    fn expressions_are_found() {
        let spec = serde_json::from_value(
            serde_json::json!({"kubelet": {"maxPods": "vcpus * 10", "kubeReserved": {"cpu": "vcpus * 30", "memory": "1Gi"}}}),
        );
        assert_eq!(
            expressions(&spec.unwrap()),
            ["kubelet.kubeReserved.cpu", "kubelet.maxPods"]
        );
    }
}
