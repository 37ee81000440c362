#!/bin/bash
# outbox: how soon a committed row goes out, and how many a second do.
# shellcheck disable=SC2154,SC2016 # scripts/bench sets them; Markdown's backticks
rounds=$(pick 1 3 5)
rows=$(pick 500 20000 20000)

# publish [ARG…] runs the measuring program on the fleet's store.
publish() { env "${fleet[@]}" "$tmp/outbox" "$@"; }

# of NAME FILE prints the median of the numbers with that name.
of() { awk -v name="$1" '$1 == name { print $2 }' "$2" | median; }

publish -rows "$(pick 5 150 500)" -every "$(pick 20ms 200ms 200ms)" latency \
	oncectl outbox publish --for 10m >"$tmp/latency"
amount 'outbox, a row every 200 ms: commit to request, median, `--for`' ms "$(of median "$tmp/latency")" "" "" "≤ 150"
amount "… 99th percentile" ms "$(of p99 "$tmp/latency")" "" "" "≤ 1000"
if [ -n "$full" ]; then
	publish -rows 50 -every 3s latency oncectl outbox publish --for 10m >"$tmp/latency"
	amount "outbox, a row every 3 s: commit to request, median" ms "$(of median "$tmp/latency")" "" ""
	amount "… 99th percentile" ms "$(of p99 "$tmp/latency")" "" "" "≤ 1500"
fi

for keys in "" -keys; do
	for ((round = 0; round < rounds; round++)); do
		settle
		publish -rows "$rows" $keys rate
	done >"$tmp/rate"
	what="outbox of $(thousands "$rows") rows${keys:+ with 50 keys}, nothing sent"
	ratio "$what" rows/s "$(of publisher "$tmp/rate")" "bare loop" "$(of bare "$tmp/rate")" "≥ 0.5"
	ratio "… under an open transaction" rows/s "$(of held "$tmp/rate")" "without" "$(of publisher "$tmp/rate")" "≥ 0.5"
done

# The same with a request for each row, four at a time.
rows=$(pick 200 5000 20000)
for ((round = 0; round < rounds; round++)); do
	receive
	publish -rows "$rows" -url "$url" send >>"$tmp/sent"
	publish -rows "$rows" fill
	spent=$(seconds env "${fleet[@]}" oncectl outbox publish --url "$url")
	received
	all_came $((2 * rows))
	echo "ours $(calc "$rows / $spent")" >>"$tmp/sent"
done
ratio "outbox of $(thousands "$rows") rows, sent 4 at once" rows/s "$(of ours "$tmp/sent")" "bare loop" "$(of bare "$tmp/sent")"
