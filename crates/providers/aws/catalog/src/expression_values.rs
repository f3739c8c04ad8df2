//! Kubelet settings of an instance type that the class gives as expressions. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::instance_type_info::InstanceTypeInfo;
use crate::kubelet_expression::{EvaluationError, Expression, Variables};
use crate::node_settings::{GIB, MIB, NodeSettings, ReservedExpressions, ReservedResources};

/// Most pods that the field of the kubelet can hold.
const MOST_PODS: i64 = i32::MAX as i64;
/// Steps that reserved CPU is rounded up to, in milli.
const CPU_STEP: i64 = 10;
/// Steps that reserved memory is rounded up to, in MiB.
const MEMORY_STEP: i64 = 16;

/// Reserved amounts that are expressions, with their values as the kubelet reads them, by key. Those without a value are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservedTexts {
    /// Of `kubeReserved`.
    pub kube: BTreeMap<&'static str, String>,
    /// Of `systemReserved`.
    pub system: BTreeMap<&'static str, String>,
}

fn rounded(amount: i64, step: i64) -> i64 {
    amount.saturating_add(step - 1) / step * step
}

/// The expressions of a class, evaluated for a type.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionValues<'a> {
    info: &'a InstanceTypeInfo,
    shape: &'a NodeSettings,
}

impl<'a> ExpressionValues<'a> {
    /// Of a class with these settings, for `info`.
    #[must_use]
    pub const fn new(info: &'a InstanceTypeInfo, shape: &'a NodeSettings) -> Self {
        Self { info, shape }
    }

    /// Reserved amounts of the class that are expressions, for this type.
    #[must_use]
    pub fn reserved_texts(self) -> ReservedTexts {
        let variables = self.variables(self.info.pods(self.shape));
        let amount = |of: &Option<Expression>| {
            let amount = of.as_ref()?.number(&variables).ok()?;
            (amount >= 0).then_some(amount)
        };
        let texts = |of: &ReservedExpressions| {
            let texts = [
                (
                    "cpu",
                    amount(&of.cpu).map(|cpu| format!("{}m", rounded(cpu, CPU_STEP))),
                ),
                (
                    "memory",
                    amount(&of.memory).map(|memory| format!("{}Mi", rounded(memory, MEMORY_STEP))),
                ),
                (
                    "ephemeral-storage",
                    amount(&of.ephemeral_storage).map(|disk| format!("{disk}Gi")),
                ),
            ];
            let texts = texts.into_iter();
            texts.filter_map(|(key, text)| Some((key, text?))).collect()
        };
        ReservedTexts {
            kube: texts(&self.shape.kube_reserved_expressions),
            system: texts(&self.shape.system_reserved_expressions),
        }
    }

    fn variables(self, max_pods: i64) -> Variables {
        let info = self.info;
        let interfaces = info.interfaces.get(info.default_card);
        Variables {
            instance_type: Arc::clone(&info.name),
            vcpus: info.vcpus,
            memory_mib: info.memory_mib,
            default_enis: interfaces.copied().unwrap_or_default(),
            ips_per_eni: info.ipv4_per_interface,
            max_pods,
        }
    }

    /// Value of `maxPods`; the error is the reference implementation's text.
    pub(crate) fn max_pods(self, of: &Expression, by_family: i64) -> Result<i64, String> {
        let (text, name) = (of.text(), &self.info.name);
        let pods = of.number(&self.variables(by_family)).map_err(|error| {
            format!(
                "evaluating maxPods expression, {}",
                evaluating(&error, text, name)
            ) + &format!(" (expression={text}, instance-type={name})")
        })?;
        if (0..=MOST_PODS).contains(&pods) {
            return Ok(pods);
        }
        Err(format!(
            "maxPods expression evaluated to a value outside the valid range [0, {MOST_PODS}] (expression={text}, instance-type={name}, result={pods})"
        ))
    }

    /// Why `maxPods` of the class has no value for this type; `None` when it has one.
    #[must_use]
    pub fn max_pods_failure(self) -> Option<String> {
        let (name, error) = (&self.info.name, self.max_pods_problem()?);
        Some(format!(
            "resolving instance type {name}, resolving maxPods, {error} (instance-type={name})"
        ))
    }

    /// The same, in the words of the class's condition.
    #[must_use]
    pub fn max_pods_problem(self) -> Option<String> {
        let expression = self.shape.max_pods_expression.as_ref()?;
        let without = NodeSettings {
            max_pods_expression: None,
            pods_per_core: None,
            ..self.shape.clone()
        };
        self.max_pods(expression, self.info.pods(&without)).err()
    }

    /// Why a reserved amount of the class has no value for this type, the first by field and key; `None` when all have one. Such an
    /// amount counts as not given.
    #[must_use]
    pub fn reserved_failure(self) -> Option<String> {
        let variables = self.variables(self.info.pods(self.shape));
        let (kube, system) = (
            &self.shape.kube_reserved_expressions,
            &self.shape.system_reserved_expressions,
        );
        let fields = [("kubeReserved", kube), ("systemReserved", system)];
        let mut entries = fields.into_iter().flat_map(|(field, of)| {
            let keys = [
                ("cpu", &of.cpu),
                ("ephemeral-storage", &of.ephemeral_storage),
                ("memory", &of.memory),
            ];
            keys.map(|(key, of)| (field, key, of))
        });
        entries.find_map(|(field, key, of)| {
            let of = of.as_ref()?;
            let (text, name) = (of.text(), &self.info.name);
            let place = format!("(expression={text}, field={field}, instance-type={name}, key={key}");
            match of.number(&variables) {
                Ok(amount) if amount >= 0 => None,
                Ok(amount) => Some(format!(
                    "kubelet resource expression evaluated to a negative value {place}, result={amount})"
                )),
                Err(error) => Some(format!(
                    "evaluating kubelet resource expression, {} {place})",
                    evaluating(&error, text, name)
                )),
            }
        })
    }

    /// Reserved amounts: those that are given, and the values of expressions. An expression without a value counts as not given.
    pub(crate) fn reserved(
        self,
        given: &ReservedResources,
        of: &ReservedExpressions,
    ) -> ReservedResources {
        if *of == ReservedExpressions::default() {
            return *given;
        }
        let variables = self.variables(self.info.pods(self.shape));
        let amount = |of: &Option<Expression>| {
            let amount = of.as_ref()?.number(&variables).ok()?;
            (amount >= 0).then_some(amount)
        };
        let cpu = || Some(rounded(amount(&of.cpu)?, CPU_STEP));
        let memory = || Some(rounded(amount(&of.memory)?, MEMORY_STEP).saturating_mul(MIB));
        let disk = || Some(amount(&of.ephemeral_storage)?.saturating_mul(GIB));
        ReservedResources {
            cpu: given.cpu.or_else(cpu),
            memory: given.memory.or_else(memory),
            ephemeral_storage: given.ephemeral_storage.or_else(disk),
        }
    }
}

fn evaluating(error: &EvaluationError, text: &str, name: &str) -> String {
    format!("evaluating expression, {error} (expression={text}, instance-type={name})")
}
