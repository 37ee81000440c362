#!/bin/bash
# batch: many claims by one command, beside the quickest way to insert as many.
# shellcheck disable=SC2154 # scripts/bench sets them
rounds=$(pick 1 3 5)
ids=$(pick 10000 1000000 1000000)

for ((round = 0; round < rounds; round++)); do
	seq 1 "$ids" | awk -v round="$round" '{ print "copy/" round "/" $1 }' >"$tmp/copied"
	seq 1 "$ids" | awk -v round="$round" '{ print "claim/" round "/" $1 }' >"$tmp/claims"
	cat >"$tmp/copy.sql" <<-END
		begin;
		create temp table ids (id text);
		\\copy ids from '$tmp/copied'
		insert into $schema.processed_events (event_id) select id from ids on conflict do nothing;
		commit;
	END
	ours=("${fleet[@]}" sh -c "exec oncectl claim - <'$tmp/claims' >'$tmp/won'")
	theirs=("$psql" -Xqv ON_ERROR_STOP=1 -d "$database" -f "$tmp/copy.sql")
	settle
	# What comes second is first in the next round.
	if ((round % 2 == 0)); then
		beside 1 -warmup 0 "${ours[@]}" --- "${theirs[@]}" >"$tmp/round"
	else
		beside 1 -warmup 0 "${theirs[@]}" --- "${ours[@]}" | tac >"$tmp/round"
	fi
	cmp -s "$tmp/claims" "$tmp/won" || { echo "bench: not all of the ids were won" >&2; exit 2; }
	head -n 1 "$tmp/round" >>"$tmp/claimed"
	tail -n 1 "$tmp/round" >>"$tmp/inserted"
done
what="\`claim -\` of $(thousands "$ids") ids"
claimed=$(column 1 <"$tmp/claimed" | median)
inserted=$(column 1 <"$tmp/inserted" | median)
ratio "$what" s "$(calc "$claimed / 1000")" "COPY + INSERT" "$(calc "$inserted / 1000")" "≤ 1"
most=$(column 4 <"$tmp/claimed" | sort -g | tail -n 1)
amount "$what, memory" MiB "$(calc "$most / 1024")" "" "" "≤ 64"
