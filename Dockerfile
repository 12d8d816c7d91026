# A Redis server with the redis-rl module:
#
#   docker build -t redis-rl .
#   docker run --name limiter -p 127.0.0.1:6379:6379 -v limiter-data:/data redis-rl
#
# Other servers, by their official images (those on Debian, not on Alpine):
#
#   docker build -t redis-rl --build-arg REDIS_IMAGE=redis:7 .
#   docker build -t redis-rl --build-arg REDIS_IMAGE=valkey/valkey:8 .
#
# The module is built on the oldest Debian release that the server images use, so that it never
# asks for a newer C library than theirs.
ARG RUST_IMAGE=rust:1-bookworm
ARG REDIS_IMAGE=redis:8

FROM ${RUST_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends libclang-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build

# The dependencies, in a layer that stays as long as they do. Cargo reads the manifests of all
# members of the workspace and wants a source file for each, but builds and fetches only what the
# module needs.
COPY Cargo.toml Cargo.lock ./
COPY benches/gateway/Cargo.toml benches/gateway/
COPY examples/adapters/tower/Cargo.toml examples/adapters/tower/
COPY examples/gateway/Cargo.toml examples/gateway/
COPY tests/support/Cargo.toml tests/support/
RUN for source in src/lib.rs benches/gateway/src/main.rs examples/adapters/tower/src/lib.rs \
      examples/gateway/src/main.rs tests/support/src/lib.rs; do \
      mkdir -p "${source%/*}" && echo '//! Nothing yet.' >"$source" || exit 1; \
    done \
 && cargo build --release --locked --lib

# The module. A source older than the empty library above would pass for built: hence the touch.
# A server loads only what it may execute.
COPY src src
RUN touch src/lib.rs \
 && cargo build --release --locked --lib \
 && install -D -m 0755 target/release/libredis_rl.so /out/libredis_rl.so

FROM ${REDIS_IMAGE}
COPY --from=build /out/libredis_rl.so /usr/local/lib/redis-rl/libredis_rl.so
COPY scripts/image/with-module scripts/image/health /usr/local/lib/redis-rl/

# The server's program moves beside the module, and a script that adds the module takes its place.
# The other names of that program (redis-sentinel, redis-check-aof) go on meaning the program.
# Entry point, user and command stay those of the base image: it gives /data to its own user (redis
# or valkey) and runs the server as that user, so there is no USER here. The module lies outside the
# folder that the entry point of Redis 8 loads by itself: this way is the same on every base.
RUN home=/usr/local/lib/redis-rl \
 && server=$(readlink -f "$(command -v valkey-server || command -v redis-server)") \
 && mv "$server" "$home/" \
 && ln -s "$home/with-module" "$server" \
 && for link in "${server%/*}"/*; do \
      case "$link" in *-server) continue ;; esac; \
      if [ "$(readlink -f "$link")" = "$home/with-module" ]; then \
        ln -sf "$home/${server##*/}" "$link" || exit 1; \
      fi; \
    done \
 && mkdir -m 1777 /run/redis-rl

HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/usr/local/lib/redis-rl/health"]

ARG REDIS_IMAGE
ARG VERSION=unknown
LABEL org.opencontainers.image.title="redis-rl" \
      org.opencontainers.image.description="Rate limiting for Redis and Valkey as native commands: RL.FIXED, RL.TOKEN, RL.SLIDE, RL.LEASE and RL.ALL" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.base.name="${REDIS_IMAGE}"
