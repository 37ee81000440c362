#!/bin/bash
# memory: what stays in it while a job runs: oncectl itself and its guard. The
# resident pages of each count what both map from the one binary; together those
# are counted once (Pss).
# shellcheck disable=SC2154,SC2016 # scripts/bench sets them; Markdown's backticks

# mib FIELD FILE prints a number of /proc in MiB.
mib() { awk -v field="$1:" '$1 == field { print $2 / 1024 }' "$2"; }

for store in "local store" PostgreSQL; do
	with=("${fleet[@]}")
	[ "$store" = PostgreSQL ] || with=("${embedded[@]}")
	rm -f "$tmp/claimed" "$tmp/end"
	mkfifo "$tmp/claimed" "$tmp/end"
	# The job claims once and waits, past a heartbeat or two.
	env "${with[@]}" oncectl run --lock memory -- sh -c \
		"oncectl claim 'memory/$store' && echo >'$tmp/claimed' && read -r _ <'$tmp/end'" &
	run=$!
	read -r _ <"$tmp/claimed"
	sleep "$(pick 0 7 7)"
	guard=
	mapfile -t children < <(cat "/proc/$run"/task/*/children | tr -s ' ' '\n')
	for child in "${children[@]}"; do
		! grep -q ^oncectl-guard "/proc/$child/cmdline" || guard=$child
	done
	[ -n "$guard" ] || { echo "bench: the guard is not there" >&2; exit 2; }
	amount "memory while a job runs, $store, oncectl, most" MiB "$(mib VmHWM "/proc/$run/status")" "" ""
	amount "… its guard, most" MiB "$(mib VmHWM "/proc/$guard/status")" "" ""
	both=$(calc "$(mib Pss "/proc/$run/smaps_rollup") + $(mib Pss "/proc/$guard/smaps_rollup")")
	amount "… both, shared pages once" MiB "$both" "" "" "≤ 20"
	echo >"$tmp/end"
	wait "$run"
	run=
done
flock -o -n "$tmp/lock" sleep 1 &
flock=$!
sleep 0.3
amount "memory of \`flock\` while a job runs" MiB "$(mib VmHWM /proc/$flock/status)" "" ""
wait $flock
