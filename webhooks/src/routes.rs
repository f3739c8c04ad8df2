//! One table of what is served and who may call: the router and the manifests are built from it.

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A client certificate of the extender CA, with an allowed name.
    ExtenderClient,
    /// Anyone who reaches the port: API servers seldom have a client certificate. Answers are cheap; whom facts of the
    /// cluster are told is [`crate::router::Trusted`]'s matter.
    Open,
    /// A token (or client certificate) that may read this path.
    Debug,
}

/// What answers a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Extender filter.
    Filter,
    /// Extender prioritize.
    Prioritize,
    /// Extender preempt.
    Preempt,
    /// Admission validation.
    Validate,
    /// Admission defaulting.
    Default,
    /// The scheduler of new pods.
    SchedulerName,
    /// Conversion between versions.
    Convert,
    /// Filter without charging, for people.
    SimulateFilter,
    /// Prioritize for people.
    SimulatePrioritize,
}

impl Handler {
    /// Its answers to anybody hold facts of the cluster, where the caller is trusted with them.
    #[must_use]
    pub const fn reveals_cluster_state(self) -> bool {
        matches!(self, Self::Validate | Self::SchedulerName)
    }
}

/// One route. All are POST.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Path.
    pub path: &'static str,
    /// What answers.
    pub handler: Handler,
    /// Who may call.
    pub access: Access,
    /// Largest body, in bytes.
    pub body_limit: usize,
}

const MIB: usize = 1 << 20;

/// Every route of this crate.
pub const ROUTES: [Route; 9] = [
    Route {
        path: "/extender/v1/filter",
        handler: Handler::Filter,
        access: Access::ExtenderClient,
        body_limit: 16 * MIB,
    },
    Route {
        path: "/extender/v1/prioritize",
        handler: Handler::Prioritize,
        access: Access::ExtenderClient,
        body_limit: 16 * MIB,
    },
    Route {
        path: "/extender/v1/preempt",
        handler: Handler::Preempt,
        access: Access::ExtenderClient,
        body_limit: 16 * MIB,
    },
    Route {
        path: "/admission/v1/validate",
        handler: Handler::Validate,
        access: Access::Open,
        body_limit: 8 * MIB,
    },
    Route {
        path: "/admission/v1/default",
        handler: Handler::Default,
        access: Access::Open,
        body_limit: 8 * MIB,
    },
    Route {
        path: "/admission/v1/scheduler",
        handler: Handler::SchedulerName,
        access: Access::Open,
        body_limit: 8 * MIB,
    },
    Route {
        path: "/conversion/v1",
        handler: Handler::Convert,
        access: Access::Open,
        body_limit: 32 * MIB,
    },
    Route {
        path: "/debug/simulate/filter",
        handler: Handler::SimulateFilter,
        access: Access::Debug,
        body_limit: 16 * MIB,
    },
    Route {
        path: "/debug/simulate/prioritize",
        handler: Handler::SimulatePrioritize,
        access: Access::Debug,
        body_limit: 16 * MIB,
    },
];

/// The route of a path of the table.
#[must_use]
pub fn route(path: &str) -> Option<&'static Route> {
    const TABLE: &[Route] = &ROUTES;
    TABLE.iter().find(|route| route.path == path)
}

/// Who may call a path that this process serves. Paths outside the table are debug paths: closed unless the
/// administrator opens them.
#[must_use]
pub fn access(path: &str) -> Access {
    route(path).map_or(Access::Debug, |route| route.access)
}
