# A Redis server with the redis-rl module:
#
#   docker build -t redis-rl . && docker run -p 6379:6379 redis-rl
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
COPY examples/gateway/Cargo.toml examples/gateway/
COPY tests/support/Cargo.toml tests/support/
RUN for source in src/lib.rs examples/gateway/src/main.rs tests/support/src/lib.rs; do \
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

# Adds the module to whatever server is started, with any options or configuration file, and
# leaves the rest to the entry point of the base image: it gives /data to the image's own user
# (redis or valkey) and runs the server as that user, so there is no USER here. The module lies
# outside the folder that the one of Redis 8 loads by itself: this way is the same on every
# base, and a server that is told to load a module twice stops. Therefore, too, nothing is
# added where the command line or the configuration file (CONFIG REWRITE puts it there, at a
# sentinel's failover too) has the module already. A sentinel gets no module.
RUN printf '%s\n' \
      '#!/bin/sh' \
      'module=/usr/local/lib/redis-rl/libredis_rl.so' \
      'server=redis-server' \
      'if command -v valkey-server >/dev/null; then' \
      '  server=valkey-server' \
      'fi' \
      'case "${1:--}" in' \
      '-* | *.conf) set -- "$server" "$@" ;;' \
      'redis-server | valkey-server | */redis-server | */valkey-server) shift && set -- "$server" "$@" ;;' \
      '*) exec docker-entrypoint.sh "$@" ;;' \
      'esac' \
      'for word in "$@"; do' \
      '  case "$word" in' \
      '  --sentinel | *libredis_rl.so*) exec docker-entrypoint.sh "$@" ;;' \
      '  esac' \
      'done' \
      'if [ -f "${2-}" ] && grep -Eiq "^[[:space:]]*loadmodule[[:space:]].*libredis_rl[.]so" "$2"; then' \
      '  exec docker-entrypoint.sh "$@"' \
      'fi' \
      'exec docker-entrypoint.sh "$@" --loadmodule "$module"' \
      >/usr/local/bin/redis-rl-entrypoint.sh \
 && chmod 0755 /usr/local/bin/redis-rl-entrypoint.sh
ENTRYPOINT ["redis-rl-entrypoint.sh"]

# A server that asks for a password is up as well.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD "$(command -v valkey-cli || command -v redis-cli)" ping | grep -Eq 'PONG|NOAUTH'

ARG REDIS_IMAGE
ARG VERSION=unknown
LABEL org.opencontainers.image.title="redis-rl" \
      org.opencontainers.image.description="Rate limiting for Redis and Valkey as native commands: RL.FIXED, RL.TOKEN and RL.SLIDE" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.base.name="${REDIS_IMAGE}"
