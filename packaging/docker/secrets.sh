#!/bin/sh
# Makes the secrets that compose.yaml reads, once: random passwords, in files for their owner and the images' user. Overwrites nothing.
set -eu
cd "$(dirname "$0")"
umask 027
mkdir -p secrets
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
make cloud-token ''
# Compose hands files over as they are: the images' user 10001 must be able to read them, and RabbitMQ its own.
chmod 0644 secrets/*; chmod 0711 secrets
echo "secrets are in $PWD/secrets; next: README.md"
