#!/bin/sh
# Makes the secrets that compose.yaml reads, once: random passwords, in a folder for its owner alone. Overwrites nothing.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
# The folder keeps other users of this machine out. Docker's daemon mounts each file by itself, so a container needs no way through it.
chmod 0700 secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
make() { [ -e "secrets/$1" ] || printf '%s' "$2" >"secrets/$1"; }
make postgres-password "$(random)"
make rabbitmq-password "$(random)"
make edge-mqtt "$(random)"
make cloud-database "postgres://holdfast:$(cat secrets/postgres-password)@postgres/cloud"
make edge-database "postgres://holdfast:$(cat secrets/postgres-password)@postgres/site"
make rabbitmq-url "amqp://holdfast:$(cat secrets/rabbitmq-password)@rabbitmq:5672/%2f"
make rabbitmq.conf "default_user = holdfast
default_pass = $(cat secrets/rabbitmq-password)
"
# Tokens are made later, by `holdfast token create`: README.md.
for token in cloud-token console-cloud-token console-site-token; do make "$token" ''; done
# Compose hands files over with their modes: the images' user 10001 must be able to read them, and RabbitMQ its own.
chmod 0644 secrets/*
echo "secrets are in $PWD/secrets; next: README.md"
