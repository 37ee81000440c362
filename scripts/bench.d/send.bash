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
by_postgres() { env "${fleet[@]}" oncectl send --batch --url "$url" --concurrency "$concurrency" <"$tmp/batch" >"$tmp/results"; }
by_loop() { "$tmp/loop" -url "$url" -n "$(wc -l <"$tmp/batch")" -concurrency "$concurrency" >"$tmp/looped"; }
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

# limited RATE N LIMIT sends N messages where RATE a second are taken: ours beside
# the loop, and the time beside the least there is.
limited() {
	local rate=$1 requests=$2 what ours theirs least
	concurrency=4
	lines "$requests"
	for who in postgres loop; do
		receive -rate "$rate" -latency 20ms
		# Both end 1 or say so where they give up.
		if [ $who = postgres ]; then
			ours=$(seconds by_postgres || true)
		else
			theirs=$(seconds by_loop)
		fi
		received
		echo "$(calc "100 * $refused / $came") $((requests - (came - refused - twice))) $twice" >"$tmp/limited.$who"
	done
	what="$(thousands "$requests") sends where $rate a second are taken"
	least=$(calc "($requests - $rate / 10 - 1) / $rate")
	ratio "$what" s "$ours" "the least there is" "$least" "$3"
	ratio "$what" s "$ours" "tutorial's loop" "$theirs"
	amount "… requests refused" % "$(column 1 <"$tmp/limited.postgres")" "tutorial's loop" "$(column 1 <"$tmp/limited.loop")" "≤ 5"
	amount "… given up" "" "$(column 2 <"$tmp/limited.postgres")" "tutorial's loop" "$(column 2 <"$tmp/limited.loop")" "≤ 0"
	amount "… delivered twice" "" "$(column 3 <"$tmp/limited.postgres")" "tutorial's loop" "$(column 3 <"$tmp/limited.loop")" "≤ 0"
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
