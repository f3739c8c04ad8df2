//! mortise: a virtual cluster.
