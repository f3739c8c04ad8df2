//! kube-scheduler's configuration with the extender, written from the route table.

use mortise_webhooks::routes::{Handler, ROUTES};
use serde_json::{Value, json};

/// Paths of the files with which kube-scheduler proves who it is.
#[derive(Clone, Debug)]
pub struct SchedulerFiles {
    /// CA of the service's certificate.
    pub ca: String,
    /// Client certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
    /// Name that the service's certificate must have; `None`: the host of the URL, which kube-scheduler takes by itself.
    pub server_name: Option<String>,
    /// kubeconfig of kube-scheduler.
    pub kubeconfig: String,
}

/// A KubeSchedulerConfiguration with the recommended extender entry.
#[must_use]
pub fn scheduler_configuration(url: &str, files: &SchedulerFiles) -> Value {
    let verb = |handler| {
        ROUTES
            .iter()
            .find(|route| route.handler == handler)
            .and_then(|route| route.path.rsplit('/').next())
            .unwrap_or_default()
    };
    let mut tls = json!({ "caFile": files.ca, "certFile": files.cert, "keyFile": files.key });
    if let Some(name) = &files.server_name {
        tls["serverName"] = json!(name);
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": files.kubeconfig },
        "extenders": [{
            "urlPrefix": format!("{}/extender/v1", url.trim_end_matches('/')),
            "filterVerb": verb(Handler::Filter),
            "prioritizeVerb": verb(Handler::Prioritize),
            "preemptVerb": verb(Handler::Preempt),
            "weight": 5,
            "enableHTTPS": true,
            "tlsConfig": tls,
            "httpTimeout": "300ms",
            "nodeCacheCapable": true,
            "ignorable": true,
        }],
    })
}
