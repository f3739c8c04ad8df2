# syntax=docker/dockerfile:1
# The image of mortise: `docker buildx build --platform linux/amd64,linux/arm64 -t NAME .`
# The compiler runs on the machine's own architecture and compiles for the image's; nothing is emulated.
# `just image` makes the same kind of image without a container engine.

FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS build
ARG TARGETARCH
# jemalloc and the TLS library are written in C: a compiler for the target and make.
RUN <<EOF
set -eu
case "$TARGETARCH" in
  amd64) target=x86_64-unknown-linux-gnu; packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;;
  arm64) target=aarch64-unknown-linux-gnu; packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
  *) echo "TARGETARCH is $TARGETARCH: allowed are amd64 and arm64" >&2; exit 1 ;;
esac
apt-get update
# On the machine's own architecture its own compiler does.
if [ "$(dpkg --print-architecture)" = "$TARGETARCH" ]; then packages="gcc libc6-dev"; fi
apt-get install --yes --no-install-recommends make cmake $packages
rustup target add "$target"
echo "$target" > /target
EOF
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target,id=target-$TARGETARCH <<EOF
set -eu
target=$(cat /target)
linker=$(echo "$target" | sed 's/-unknown//')-gcc
if command -v "$linker" >/dev/null; then
  variable=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER
  export "$variable=$linker" "CC_$(echo "$target" | tr - _)=$linker"
fi
cargo build --profile dist --locked --bin mortise --target "$target"
cp "target/$target/dist/mortise" /mortise
EOF

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /mortise /usr/bin/mortise
USER 65532:65532
ENTRYPOINT ["/usr/bin/mortise"]
