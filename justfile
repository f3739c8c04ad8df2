# Recipes for people who work on mortise. `just` alone lists them.

# Where `just cluster` keeps its state, and where `just serve` finds it.
cluster_dir := env("MORTISE_CLUSTER_DIR", ".cache/cluster")
# Always the whole workspace: another selection of packages changes features and rebuilds the AWS SDK.
build := "cargo build --workspace"
# The pure crates, and what stands on them alone.
pure := "-p mortise-apis -p mortise-cloudprovider -p mortise-state -p mortise-planning -p mortise-engine -p mortise-deciders -p mortise-manifests -p mortise-webhooks -p mortise-sim -p mortise-aws-class -p mortise-aws-catalog -p mortise-kwok-class"

# List the recipes
default:
    @just --list --unsorted

# The inner loop: format, lints, tests of the pure crates
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test {{pure}} --profile inner --target-dir target/pure

# Everything that continuous integration runs
ci:
    bash .ci/run

# Format all sources
fmt:
    cargo fmt --all

# All tests, also those on a real control plane (the first run builds it: about ten minutes)
test *ARGS:
    cargo test --workspace {{ARGS}}

# The manifests in examples/: lint, then a real control plane with our CRDs and webhooks
examples:
    cargo test --workspace --test stories examples

# Rewrite what is generated: CRDs, chart, expected texts, lists of known violations; then look at the diff
update-expect:
    UPDATE_EXPECT=1 cargo test {{pure}} --profile inner --target-dir target/pure
    UPDATE_EXPECT=1 cargo test --workspace --lib chart
    UPDATE_EXPECT=1 cargo test --workspace --lib upstream
    UPDATE_EXPECT=1 cargo test --workspace --test stories -- house documents

# Dependencies that no source names: the house rule, and cargo-machete where it is installed
machete:
    cargo test --workspace --test stories every_dependency_is_named_by_a_source
    @if command -v cargo-machete >/dev/null; then cargo machete; fi

# docs/ as a book in target/book (needs `cargo install mdbook`)
book:
    @command -v mdbook >/dev/null || { echo "mdbook is missing: cargo install mdbook" >&2; exit 1; }
    mdbook build docs --dest-dir "{{justfile_directory()}}/target/book"

# Feed a fuzz target for ten minutes, no input longer than 5 s or with more than 1 GiB (needs `cargo install cargo-fuzz` and a nightly compiler): admission, conversion, cron, duration, extender, manifest, quantity
fuzz TARGET *FLAGS="-max_total_time=600":
    cargo +nightly fuzz run --fuzz-dir fuzz/run -s none {{TARGET}} fuzz/corpus/{{TARGET}} -- -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=1048576 {{FLAGS}}

# Every scenario of the agreement with the simulator, on a real control plane
agreement:
    MORTISE_AGREEMENT=all cargo test --workspace --test stories simulator -- --nocapture

# The service killed around every step of nodes' lives in the simulator, for so many seeds (about a second of processor time each)
crash-matrix SEEDS="1000":
    MORTISE_CRASH_SEEDS={{SEEDS}} cargo test -p mortise-sim --release --target-dir target/pure --test simulations crash_matrix

# Loses the lease before and after every step of nodes' lives, with two and three replicas, for many seeds
lease-matrix SEEDS="1000":
    MORTISE_LEASE_SEEDS={{SEEDS}} cargo test -p mortise-sim --release --target-dir target/pure --test simulations lease_matrix

# Clusters that change a few times and are then left alone, for many seeds: consolidation moves no pod back, and comes to an end
cycles SEEDS="10000":
    MORTISE_CYCLE_SEEDS={{SEEDS}} cargo test -p mortise-sim --release --target-dir target/pure --test simulations cycles

# Half an hour of workloads that change at random while nodes are deleted and the process is killed: all of it replays bit for bit
chaos MINUTES="30":
    MORTISE_CHAOS_MINUTES={{MINUTES}} cargo test --workspace --test stories chaos -- --nocapture

# The leader killed ten times while so many nodes come and go on a real control plane; each Lease runs out by itself
failover NODES="200":
    MORTISE_FAILOVER_NODES={{NODES}} cargo test --workspace --test stories failover -- --nocapture

# The API server hangs for so many seconds, then a leader is cut off, then one hangs
freeze SECONDS="30":
    MORTISE_FREEZE_SECONDS={{SECONDS}} cargo test --workspace --test stories only_the_leader_acts -- --nocapture

# Everything embedded: simulated cluster and cloud, live page; see `just demo --help`
demo *FLAGS:
    cargo run -p mortise-demo -- {{FLAGS}}

# Benchmarks next to the recorded figures of the reference implementation, for example `just bench schedule --json`
bench *ARGS="schedule":
    cargo run -p mortise-bench --release -- {{ARGS}}

# A real control plane with kwok until Ctrl-C, for example `just cluster --mortise https://127.0.0.1:8443`; see `just cluster --help`
cluster *FLAGS:
    {{build}}
    @mkdir -p {{cluster_dir}}
    @target/debug/cluster --dir {{cluster_dir}} {{FLAGS}}

# mortise on the cluster of `just cluster`, with any flags, for example `just serve --provider kwok --log-level debug`
serve *FLAGS:
    {{build}}
    @env -u MORTISE_CLUSTER_DIR MORTISE_CERT_DIR="${MORTISE_CERT_DIR-{{cluster_dir}}/certs}" \
        MORTISE_BIND_ADDRESS="${MORTISE_BIND_ADDRESS-127.0.0.1}" \
        LEADER_ELECTION_NAMESPACE="${LEADER_ELECTION_NAMESPACE-kube-system}" \
        target/debug/mortise serve --kubeconfig {{cluster_dir}}/kubeconfig {{FLAGS}}

# A container image of a small build (profile `dist`) in target/image, without a container engine; flags as in `target/dist/image --help`
image *FLAGS:
    {{build}} --profile dist --bin mortise --bin image
    rm -rf target/image
    target/dist/image --binary target/dist/mortise --out target/image {{FLAGS}}

# kubectl on the cluster of `just cluster`
kubectl *ARGS:
    @KUBECONFIG={{cluster_dir}}/kubeconfig {{cluster_dir}}/kubectl {{ARGS}}
