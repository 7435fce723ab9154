#!/bin/sh
# The manual test of worker loss, made repeatable: take the workers away, ask for an execution, wait for the TTL of
# their queues, and check the result. For the sandbox (./run up) and for Docker Compose; see --help.
# Needs a POSIX shell, and curl or python3. Whatever happens, the workers are brought back.
set -eu

usage() {
    cat <<'USAGE'
usage: scripts/stop-workers-test.sh [--how kill|stop] [--target sandbox|compose]

  --how kill   (default) kill the workers. Their rows stay active until the heartbeat is stale, so a new execution is
               dispatched, expires in the queue, and must fail with "Worker queue TTL expired".
  --how stop   stop them in good order. Their rows are inactive at once: only what was queued already expires, and a
               new request stays `requested`. When they are back it must be announced again, and run.
  --target     the sandbox of ./run up, or Docker Compose. Found out if not given.

Variables; what is not set is found out, or as given here:
  API_URL, TOKEN                  Attune's API, and a bearer token for it
  BROKER_URL                      RabbitMQ's management API (empty: not asked)
  BROKER_USER, BROKER_PASSWORD, BROKER_VHOST (%2F)
  OPS_URL                         where the sidecar answers /readyz (empty: not asked)
  TTL_MS                          if x-message-ttl cannot be read; else the value in CONFIG (config.docker.yaml)
  WORKERS                         worker-shell worker-python worker-node
  LATE_SECONDS (60)               how much later than its TTL an execution may end
  RETURN_SECONDS (1200)           how long a forgotten request may take once the workers are back
  RUN (./run), COMPOSE (docker compose), HTTP_CLIENT (curl or python3)

Exit 0: all as it should be. 1: not so. 64: usage.
USAGE
}

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }
fail() {
    say "FAILED: $*" >&2
    exit 1
}
refuse() {
    echo "$*; see --help" >&2
    exit 64
}

how='kill'
target=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
        --how | --target)
            [ $# -ge 2 ] || refuse "$1 needs a value"
            [ "$1" = --how ] && how=$2
            [ "$1" = --target ] && target=$2
            shift 2
            ;;
        *) refuse "no option $1" ;;
    esac
done
case $how in kill | stop) ;; *) refuse "--how is kill or stop" ;; esac
case $target in '' | sandbox | compose) ;; *) refuse "--target is sandbox or compose" ;; esac

root=$(cd "$(dirname "$0")/.." && pwd -P)
state=${SANDBOX_FOLDER:-$root/.sandbox}/state.json
RUN=${RUN:-$root/run}
COMPOSE=${COMPOSE:-docker compose}
CONFIG=${CONFIG:-$root/config.docker.yaml}
WORKERS=${WORKERS:-worker-shell worker-python worker-node}
LATE_SECONDS=${LATE_SECONDS:-60}
RETURN_SECONDS=${RETURN_SECONDS:-1200}
# What is on this machine is not behind a proxy.
no_proxy=${no_proxy:+$no_proxy,}localhost,127.0.0.1
export no_proxy

# --- HTTP and JSON, without more than sh has ---

# http METHOD URL bearer|basic SECRET [BODY]: the body of the answer. The secret is on no command line.
if [ "${HTTP_CLIENT:-curl}" = curl ] && command -v curl >/dev/null 2>&1; then
    http() {
        case $3 in
            bearer) printf 'header = "Authorization: Bearer %s"\n' "$4" ;;
            basic) printf 'user = "%s"\n' "$4" ;;
        esac | curl --config - --silent --show-error --fail --max-time 20 --request "$1" \
            --header 'Content-Type: application/json' ${5:+--data-binary "$5"} "$2"
    }
elif command -v python3 >/dev/null 2>&1; then
    http() {
        HTTP_SECRET=$4 python3 -c '
import base64, os, sys, urllib.request
method, url, kind, body = *sys.argv[1:4], "".join(sys.argv[4:]).encode()
secret = os.environ["HTTP_SECRET"]
if kind == "basic":
    secret = base64.b64encode(secret.encode()).decode()
headers = {"Authorization": f"{kind.capitalize()} {secret}", "Content-Type": "application/json"}
request = urllib.request.Request(url, body or None, headers, method=method)
try:
    print(urllib.request.urlopen(request, timeout=20).read().decode())
except (OSError, ValueError) as error:
    sys.exit(f"{url}: {error}")' "$1" "$2" "$3" ${5:+"$5"}
    }
else
    fail "neither curl nor python3 is here"
fi

api() { http "$1" "$API_URL/api/v1$2" bearer "$TOKEN" ${3:+"$3"}; }
broker() { http GET "$BROKER_URL/api/queues/$BROKER_VHOST$1" basic "$BROKER_USER:$BROKER_PASSWORD"; }

# lines: JSON on stdin, one field a line. field NAME: the first of that name that has a plain value.
lines() { tr -d '\n' | sed 's/[],{}[]/\
/g' | sed 's/^ *//; s/ *$//'; }
field() { lines | sed -n 's/^"'"$1"'" *: *\([^ ]\)/\1/p' | sed 's/^"//; s/"$//; 1q'; }

# --- the two targets ---

find_target() {
    if [ -n "$target" ]; then
        return
    elif [ -f "$state" ]; then
        target=sandbox
    elif [ -n "$($COMPOSE ps --quiet api 2>/dev/null)" ]; then
        target=compose
    else
        fail "neither the sandbox nor Docker Compose runs here: ./run up, or docker compose up --wait"
    fi
}

port_of() { $COMPOSE port "$1" "$2" 2>/dev/null | sed 's|^0\.0\.0\.0:|127.0.0.1:|; s|^|http://|; 1q'; }

find_addresses() {
    BROKER_VHOST=${BROKER_VHOST:-%2F}
    if [ "$target" = sandbox ]; then
        [ -f "$state" ] || fail "the sandbox is not running: ./run up"
        user=$(field amqp <"$state" | sed 's|^[a-z]*://||; s|@.*||')
        API_URL=${API_URL:-$(field api <"$state")}
        TOKEN=${TOKEN:-$(field api_token <"$state")}
        BROKER_URL=${BROKER_URL-$(field management <"$state")}
        BROKER_USER=${BROKER_USER:-${user%%:*}}
        BROKER_PASSWORD=${BROKER_PASSWORD:-${user#*:}}
        OPS_URL=${OPS_URL-$(field ops <"$state")}
    else
        API_URL=${API_URL:-$(port_of api 8080)}
        TOKEN=${TOKEN:-${SANDBOX_API_TOKEN:-sandbox}}
        BROKER_URL=${BROKER_URL-$(port_of rabbitmq 15672)}
        BROKER_USER=${BROKER_USER:-attune}
        BROKER_PASSWORD=${BROKER_PASSWORD:-${RABBITMQ_PASSWORD:-attune}}
        OPS_URL=${OPS_URL-$(port_of dlq-handler 9464)}
        [ -n "$API_URL" ] || fail "$COMPOSE shows no port of the service api: docker compose up --wait, or set API_URL"
    fi
}

# each COMMAND WORKER...: side by side, because all must have ended before the first heartbeat is stale.
each() {
    command=$1
    shift
    pids=
    for name in "$@"; do
        $command "$name" >/dev/null &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || return 1; done
}
break_one() { "$RUN" break "$1" --how "$how"; }
repair_one() { "$RUN" repair "$1"; }

down=
take_away() {
    down="$down $*"
    if [ "$target" = sandbox ]; then
        each break_one "$@" || fail "./run break did not work"
    else
        $COMPOSE "$how" "$@" >/dev/null || fail "$COMPOSE $how did not work"
    fi
    say "taken away ($how): $*"
}

# shellcheck disable=SC2086  # $down is a list of names
bring_back() {
    if [ "$target" = sandbox ]; then
        each repair_one $down || return 1
    else
        $COMPOSE start $down >/dev/null || return 1
    fi
    down=
}

at_the_end() {
    code=$?
    trap - EXIT INT TERM
    if [ -n "$down" ]; then
        say "bringing the workers back:$down"
        bring_back || say "FAILED: they did not come back; do it by hand" >&2
    fi
    exit "$code"
}
trap at_the_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- executions and workers ---

ask_for() {
    answer=$(api POST /executions/execute "{\"action_ref\": \"$1\", \"parameters\": $2}") ||
        fail "the API does not take an execution: $API_URL"
    number=$(printf '%s' "$answer" | field id)
}

# look_at NUMBER: its status, worker, and error; and `path`, which way it was ended, by the fields of its result.
look_at() {
    answer=$(api GET "/executions/$1") || fail "the API does not answer: $API_URL"
    IFS='|' read -r status worker path error <<FIELDS
$(printf '%s' "$answer" | lines | awk '
    function value() { sub(/^"[^"]*" *: */, ""); gsub(/"|\|/, ""); return $0 }
    /^"status"/ && status == "" { status = value() }
    /^"worker" *:/ && worker == "" { worker = value() }
    /^"reason"/ && reason == "" { reason = value() }
    /^"error"/ && error == "" { error = value() }
    /^"(failed|abandoned|cancelled)_by"/ && by == "" { by = value() }
    END {
        if (status == "completed") path = "its worker"
        else if (by == "dlq_handler") path = reason != "" ? "letter" : "monitor of dlq-handler"
        else path = by != "" ? "monitor: " by : "unknown component"
        printf "%s|%s|%s|%s\n", status, worker, path, error
    }')
FIELDS
}

has_ended() { case $status in completed | failed | cancelled | timeout | abandoned) ;; *) return 1 ;; esac; }
is_dispatched() { [ "$status" = scheduled ] || has_ended; }

# becomes TEST SECONDS NUMBER: until the test holds for it; 1 when it does not in time.
becomes() {
    until_time=$(($(date +%s) + $2))
    while look_at "$3" && ! "$1"; do
        [ "$(date +%s)" -lt "$until_time" ] || return 1
        sleep 1
    done
}

# must_end_by_letter NUMBER: with the very words of Attune's own handler, and announced, as only dlq-handler does.
must_end_by_letter() {
    becomes has_ended $((ttl_seconds + LATE_SECONDS)) "$1" ||
        fail "execution $1 is still $status, $LATE_SECONDS s after its TTL: no letter ended it"
    say "execution $1: $status, ended by: $path; error: $error"
    [ "$path" = letter ] ||
        fail "execution $1 was not ended by its letter but by: $path. Is a sidecar running, is its intake queue its own, is" \
            "executor.scheduled_timeout longer than the TTL? (dlq-handler topology check)"
    [ "$status: $error" = "failed: Worker queue TTL expired" ] ||
        fail "execution $1 is $status with '$error', not failed with 'Worker queue TTL expired'"
}

# list_workers: how many may be given work (`active`), and each of them, NUMBER NAME, a line.
list_workers() {
    answer=$(api GET '/workers?role=action&page_size=100') || fail "the API does not answer: $API_URL"
    workers=$(printf '%s' "$answer" | lines | awk -F'"' '
        /^"id"/ { id = $3; gsub(/[^0-9]/, "", id) }
        /^"name"/ { name = $4 }
        /^"status"/ { status = $4 }
        /^"heartbeat_stale"/ && /false/ && status == "active" { print id, name }')
    active=$(printf '%s' "${workers:+$workers
}" | wc -l)
}

all_active() {
    until_time=$(($(date +%s) + 120))
    while list_workers && [ "$active" -lt "$before" ]; do
        [ "$(date +%s)" -lt "$until_time" ] || fail "only $active of $before workers are active again"
        sleep 1
    done
    say "all workers are back: $before active"
}

# --- the broker ---

# find_ttl WORKER_ID: what its queue was really declared with; settings may say anything.
find_ttl() {
    ttl_ms=
    [ -z "$BROKER_URL" ] || ttl_ms=$(broker "/worker.$1.executions" 2>/dev/null | field x-message-ttl)
    whence="x-message-ttl of worker.$1.executions"
    if [ -z "$ttl_ms" ] && [ -n "${TTL_MS:-}" ]; then
        ttl_ms=$TTL_MS whence=TTL_MS
    elif [ -z "$ttl_ms" ] && [ -f "$CONFIG" ]; then
        ttl_ms=$(sed -n 's/^ *worker_queue_ttl_ms: *\([0-9]*\).*/\1/p' "$CONFIG") whence=$CONFIG
    fi
    [ -n "$ttl_ms" ] || fail "the TTL is unknown: neither the broker ($BROKER_URL) nor $CONFIG has it; set TTL_MS"
    ttl_seconds=$(((ttl_ms + 999) / 1000))
    say "TTL: $ttl_ms ms ($whence)"
}

# Attune's dead-letter queue and the sidecar's own. The broker's numbers are some seconds old.
must_be_drained() {
    [ -n "$BROKER_URL" ] || { say "the dead-letter queues are not looked at" && return; }
    queues=$(broker '?columns=name' | lines | sed -n 's/^"name" *: *"\(attune\.dlx[^"]*\)"/\1/p')
    [ -n "$queues" ] || fail "the broker ($BROKER_URL) shows no queue attune.dlx.*"
    until_time=$(($(date +%s) + 30))
    for queue in $queues; do
        while messages=$(broker "/$queue?columns=messages" | field messages) && [ "$messages" != 0 ]; do
            [ "$(date +%s)" -lt "$until_time" ] || fail "${messages:-?} messages wait in $queue and are not consumed"
            sleep 1
        done
        say "empty: $queue"
    done
}

# --- the test ---

check_before() {
    list_workers
    before=$active
    [ "$before" -ge "$(echo "$WORKERS" | wc -w)" ] ||
        fail "only $before of the workers are active ($WORKERS); bring them back first, or wait"
    [ -n "$OPS_URL" ] || { say "the sidecar is not asked whether it is ready" && return; }
    http GET "$OPS_URL/readyz" bearer none >/dev/null 2>&1 ||
        fail "no sidecar is ready at $OPS_URL: lost executions would not end. Start it (./run repair sidecar, docker" \
            "compose start dlq-handler), or say where it is (OPS_URL)"
}

# shellcheck disable=SC2086  # $WORKERS is a list of names
test_kill() {
    # Only a worker whose heartbeat is not stale yet is given work: where taking them away took too long, once more.
    for attempt in 1 2 3; do
        take_away $WORKERS
        ask_for core.echo '{"message": "test"}'
        becomes is_dispatched 10 "$number" && break
        [ "$attempt" != 3 ] || fail "execution $number was not dispatched: it is $status"
        say "execution $number was not dispatched, as all heartbeats were stale by then; once more"
        bring_back || fail "the workers did not come back"
        all_active
    done
    say "execution $number: $status on worker $worker, whose row is still active"
    find_ttl "$worker"
    must_end_by_letter "$number"
}

# shellcheck disable=SC2086  # $WORKERS is a list of names
test_stop() {
    set -- $WORKERS
    last=$1
    shift
    [ $# -eq 0 ] || take_away "$@"
    list_workers
    find_ttl "$(echo "$workers" | sed -n "s/ $last\$//p")"
    # The last one gets more than it can take: some it runs, as many and two more it holds, the rest waits in its queue.
    runs=$(printf '%s' "$answer" | field max_concurrent_executions)
    takes=$((2 * ${runs:-10} + 2))
    taken='' queued=''
    while [ "$(echo "$queued" | wc -w)" -lt 2 ]; do
        ask_for core.sleep "{\"seconds\": $((2 * ttl_seconds + 30))}"
        if [ "$(echo "$taken" | wc -w)" -lt "$takes" ]; then taken="$taken $number"; else queued="$queued $number"; fi
    done
    for number in $queued; do
        becomes is_dispatched 10 "$number" || fail "execution $number was not dispatched: it is $status"
    done
    say "$last has all it can take ($takes executions); these wait in its queue:$queued"
    take_away "$last"
    ask_for core.echo '{"message": "test"}'
    forgotten=$number
    for number in $queued; do must_end_by_letter "$number"; done
    for number in $taken; do
        becomes has_ended $((ttl_seconds + LATE_SECONDS + 120)) "$number" ||
            fail "execution $number, which $last had when it was stopped, is still $status: no monitor ended it"
        say "execution $number: $status, ended by: $path; error: $error"
    done
    look_at "$forgotten"
    case $status in
        requested | scheduling) say "execution $forgotten, asked for when no worker was left: $status" ;;
        *) fail "execution $forgotten, asked for when no worker was left, is $status, not requested" ;;
    esac
}

find_target
find_addresses
say "target: $target, API $API_URL; workers: $WORKERS; how: $how"
check_before
forgotten=
"test_$how"
must_be_drained
bring_back || fail "the workers did not come back"
all_active
if [ -n "$forgotten" ]; then
    becomes has_ended "$RETURN_SECONDS" "$forgotten" ||
        fail "execution $forgotten is still $status: its request was forgotten, and no monitor announced it again"
    say "execution $forgotten: $status, ended by: $path, for it was announced again"
    [ "$status" = completed ] || fail "execution $forgotten is $status, not completed: $error"
fi
ask_for core.echo '{"message": "and on"}'
becomes has_ended 60 "$number" || fail "a new execution, $number, is still $status with all workers back"
say "execution $number: $status, ended by: $path"
[ "$status" = completed ] || fail "a new execution, $number, is $status, not completed: $error"
say "OK"
