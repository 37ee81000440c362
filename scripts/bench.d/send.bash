#!/bin/bash
# send: batches of messages, beside curl, which keeps no record of them, and the
# loop of tutorials, where the receiver takes everything and where it does not.
# shellcheck disable=SC2154,SC2016 # scripts/bench sets them; Markdown's backticks

sends=0
# lines N writes a batch of new ids.
lines() {
	sends=$((sends + 1))
	seq 1 "$1" | awk -v batch=$sends '{ printf "{\"id\":\"send/%d/%d\",\"data\":\"x\"}\n", batch, $1 }' >"$tmp/batch"
}

by_local() { env "${embedded[@]}" oncectl send --batch --url "$url" --concurrency "$concurrency" <"$tmp/batch" >"$tmp/results"; }
by_postgres() { env "${fleet[@]}" oncectl send --batch --url "$url" --concurrency "$concurrency" <"$tmp/batch" >"$tmp/results" || [ $? -eq 1 ]; }
by_loop() { "$tmp/loop" -url "$url" -n "$(wc -l <"$tmp/batch")" -concurrency "$concurrency" >"$tmp/looped"; }
by_queue() { "$tmp/loop" -requeue -url "$url" -n "$(wc -l <"$tmp/batch")" -concurrency "$concurrency" >"$tmp/looped"; }
by_curl() {
	awk -v url="$url" '{ printf "url = \"%s%d\"\noutput = \"/dev/null\"\n", url, NR }' "$tmp/batch" >"$tmp/curl"
	curl -sS --parallel --parallel-max "$concurrency" --parallel-immediate -d x -K "$tmp/curl" >/dev/null 2>"$tmp/curl.err"
}

# turn WHO adds to the times in $tmp/send.WHO, and what an ideal sender, which
# spends no time of its own, would have taken to those in $tmp/send.WHO.ideal.
turn() {
	local spent
	lines "$requests"
	[ "$1" != postgres ] || settle
	receive "${receiver_args[@]}"
	spent=$(seconds "by_$1")
	received
	all_came "$requests"
	echo "$spent" >>"$tmp/send.$1"
	echo "$ideal" >>"$tmp/send.$1.ideal"
}

# turns ROUNDS WHO… takes turns anew.
turns() {
	local rounds=$1 round who
	shift
	for who in "$@"; do rm -f "$tmp/send.$who"*; done
	for ((round = 0; round < rounds; round++)); do
		for who in "$@"; do turn "$who"; done
	done
}

median_of() { median <"$tmp/send.$1"; }

rounds=$(pick 1 3 5)
concurrency=4 requests=$(pick 100 1000 2000) receiver_args=(-latency 20ms)
turns "$rounds" local postgres loop curl
what="$(thousands "$requests") sends, 20 ms each, 4 at once"
ratio "$what, local store" s "$(median_of local)" "no time of its own" "$(median_of local.ideal)" "≤ 1.042"
ratio "$what, PostgreSQL" s "$(median_of postgres)" "no time of its own" "$(median_of postgres.ideal)" "≤ 1.042"
ratio "$what, PostgreSQL" s "$(median_of postgres)" "tutorial's loop" "$(median_of loop)"
ratio "$what, PostgreSQL" s "$(median_of postgres)" '`curl --parallel`' "$(median_of curl)"

concurrency=64 requests=$(pick 500 10000 20000) receiver_args=()
turns "$rounds" postgres loop curl
what="$(thousands "$requests") sends, no latency, 64 at once, PostgreSQL"
ratio "$what" s "$(median_of postgres)" "tutorial's loop" "$(median_of loop)"
ratio "$what" s "$(median_of postgres)" '`curl --parallel`' "$(median_of curl)" "≤ 3.33"

# limited RATE N GOAL sends N messages where RATE a second are taken: the time
# beside the least there is, and ours beside the loop, whose messages keep their
# place while they wait, and the queue, where they make room for others.
limited() {
	local rate=$1 requests=$2 goal=$3 who what
	local -A took share lost again
	concurrency=4
	lines "$requests"
	for who in postgres loop queue; do
		receive -rate "$rate" -latency 20ms
		took[$who]=$(seconds "by_$who")
		received
		share[$who]=$(calc "100 * $refused / $came")
		lost[$who]=$((requests - (came - refused - twice)))
		again[$who]=$twice
	done
	what="$(thousands "$requests") sends where $rate a second are taken"
	ratio "$what" s "${took[postgres]}" "the least there is" "$(calc "($requests - $rate / 10 - 1) / $rate")" "$goal"
	for who in loop queue; do
		# Who gives up is done soon: no ratio.
		amount "$what" s "${took[postgres]}" "tutorial's $who" "${took[$who]}"
		amount "… requests refused" % "${share[postgres]}" "tutorial's $who" "${share[$who]}" "≤ 5"
		amount "… given up" "" "${lost[postgres]}" "tutorial's $who" "${lost[$who]}" "≤ 0"
		amount "… delivered twice" "" "${again[postgres]}" "tutorial's $who" "${again[$who]}" "≤ 0"
	done
}

limited 100 "$(pick 50 1000 1000)" "≤ 1.25"
[ -z "$full" ] || limited 100 10000 "≤ 1.1"

# The lines come as fast as they are taken: whatever a batch kept of each would
# show.
concurrency=64 requests=$(pick 500 50000 200000)
lines "$requests"
receive
most=$(beside 1 -warmup 0 "${fleet[@]}" sh -c "exec oncectl send --batch --url '$url' --concurrency 64 <'$tmp/batch' >'$tmp/results'" | column 4)
received
all_came "$requests"
amount "a batch of $(thousands "$requests") sends, memory" MiB "$(calc "$most / 1024")" "" "" "≤ 64"
