//! mortise: the synchronous questions the control plane asks: admission and scheduler extender.
