#!/usr/bin/env bash
# The tests against a real Odoo, which is installed once and kept in $LEADSYNC_ODOO. Where it cannot be had they are
# skipped, and their number is told.
set -euo pipefail

here=$(dirname "$0")
cargo=${CARGO:-cargo}
folder=${LEADSYNC_ODOO:-${XDG_CACHE_HOME:-$HOME/.cache}/leadsync/odoo-14}

mkdir -p "$(dirname "$folder")"
tests=$("$cargo" test --locked -q --test odoo -- --list | grep -c ': test$')
status=0
"$here/server.sh" install "$folder" 2> >(tee "$folder.log" >&2) || status=$?
case $status in
0) ;;
77)
    echo "test-odoo: $tests tests skipped: $(tail -1 "$folder.log")"
    exit 0
    ;;
*) exit "$status" ;;
esac
trap '"$here/server.sh" stop "$folder"' EXIT
"$here/server.sh" start "$folder"
# They share one database and end its servers.
LEADSYNC_TEST_ODOO=$folder "$cargo" test --locked --test odoo -- --test-threads=1
