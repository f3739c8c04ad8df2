//! Drift hashes against the answers of the reference implementation.
//!
//! A wrong number here would replace every node of a fleet that is taken over. Every recorded case is compared;
//! `MORTISE_FACTS_DIR` points the same comparison at another folder.

mod facts;

use facts::check_hashes;
use mortise_apis::NodePool;
use mortise_apis::hash::NODE_POOL_HASH_VERSION;

#[test]
fn node_pool_hash() {
    check_hashes(
        "nodepool_hash",
        "nodePool",
        NODE_POOL_HASH_VERSION,
        |pool: &NodePool, _| pool.hash(),
    );
}
