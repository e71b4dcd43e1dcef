#!/usr/bin/env bash
# Fuzzes every target, or those named, for so many minutes each; two at a time, at the lowest priority.
#     tests/fuzz/run.sh MINUTES [TARGET...]
# Corpora and findings are in target/fuzz/. A finding fails its target and is named at the end: shrink it with
# `cargo fuzz tmin`, mend the code, and put it into tests/fixtures/fuzz/TARGET/, where `cargo test` replays it.
# On a machine that is busy with other things TIMEOUT=60 keeps what waited for its turn from being called slow.
set -euo pipefail
cd "$(dirname "$0")/../.."

minutes=${1:?how many minutes for each target}
shift
# cargo-fuzz needs the compiler's unstable flags for coverage and sanitizer; so any compiler will do.
export RUSTC_BOOTSTRAP=1
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cargo fuzz list --fuzz-dir tests/fuzz); fi
work=target/fuzz
mkdir -p "$work/logs"

# The payloads of tests/fixtures/sources, in the form that a target reads, beside its old findings.
seed() {
    local corpus=$work/corpus/$1 headers stem kind body type
    mkdir -p "$corpus" "$work/artifacts/$1"
    cp tests/fixtures/fuzz/"$1"/* "$corpus/"
    for headers in tests/fixtures/sources/*/*.headers; do
        stem=${headers%.headers}
        kind=$(basename "$(dirname "$headers")")
        body=$stem.json
        if [ ! -e "$body" ]; then body=$stem.body; fi
        type=$(sed -n 's/^[Cc]ontent-[Tt]ype: *//p' "$headers" | tr -d '\r' | head -n 1)
        case $1 in
            map) { echo "$kind"; cat "$headers"; printf '\n\n'; cat "$body"; } ;;
            decode) { printf '%s\n\n' "$type"; cat "$body"; } ;;
            split | api) { printf 'application/json\n\n'; cat "$body"; } ;;
            credentials) { echo; cat "$headers"; printf '\n\n'; cat "$body"; } ;;
            normalise) head -c 200 "$body" ;;
            handshake) printf 'secret\n\nhub.mode=subscribe&hub.challenge=1&hub.verify_token=secret&challengeCode=2' ;;
            # Numbers and short texts first, as `arbitrary` reads them.
            *) { head -c 24 /dev/zero; cat "$body"; printf '\1\1\1\1'; } ;;
        esac > "$corpus/$(basename "$stem")"
    done
}

# One target; the limits are those that no request may reach.
run() {
    local TIMEFORMAT='took %R s, processor %U s + %S s'
    time ASAN_OPTIONS=detect_odr_violation=0:quarantine_size_mb=16 nice -n 19 "$binaries/$1" "$work/corpus/$1" \
        -max_total_time=$((minutes * 60)) -timeout="${TIMEOUT:-10}" -rss_limit_mb=512 -malloc_limit_mb=256 -max_len=65536 \
        -dict=tests/fuzz/words.dict -artifact_prefix="$work/artifacts/$1/" -print_final_stats=1
}

cargo fuzz build --fuzz-dir tests/fuzz --target-dir "$work"
binaries=$work/$(rustc -vV | sed -n 's/^host: //p')/release
found=0
for ((at = 0; at < ${#targets[@]}; at += 2)); do
    pair=("${targets[@]:at:2}")
    pids=()
    for target in "${pair[@]}"; do
        seed "$target"
        run "$target" > "$work/logs/$target.log" 2>&1 &
        pids+=($!)
    done
    for n in "${!pids[@]}"; do
        if wait "${pids[n]}"; then
            echo "${pair[n]}: $(grep -c . <(ls "$work/corpus/${pair[n]}")) inputs, nothing found"
        else
            echo "${pair[n]}: see $work/logs/${pair[n]}.log and $work/artifacts/${pair[n]}/" >&2
            found=1
        fi
    done
done
exit $found
