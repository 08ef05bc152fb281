#!/bin/sh
# A model for tests: it weighs an image by its bytes. docs/spec/inference.md has the protocol.
read -r line
bytes=$(wc -c < "$(printf '%s' "$line" | sed 's/.*"image":"\([^"]*\)".*/\1/')")
printf '{"predicted_weight_kg":%s,"confidence":0.5,"model_version":"by-size-1"}\n' "$bytes"
