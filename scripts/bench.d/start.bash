#!/bin/bash
# start: what one command costs, from its start to its end.
# shellcheck disable=SC2154,SC2016 # scripts/bench sets them; Markdown's backticks
runs=$(pick 3 50 100)
insert=("$psql" -X -q -d "$database" -c "insert into $schema.processed_events (event_id) values ('psql/{}') on conflict do nothing")
touch "$tmp/lock"

compare '`oncectl version`' "an empty Go program" "≤ 2.5" "$runs" oncectl version --- "$tmp/empty"
amount "size of the binary" B "$(stat -c %s "$tmp/oncectl")" "" "" "≤ 15000000"
compare '`run -- true`, local store' '`flock -n FILE true`' "≤ 2.5" "$runs" \
	"${embedded[@]}" oncectl run --lock bench -- true --- flock -n "$tmp/lock" true
compare '`run -- true`, PostgreSQL' '`psql -c insert`' "≤ 1.4" "$runs" \
	"${fleet[@]}" oncectl run --lock bench -- true --- "${insert[@]}"
compare '`claim`' '`psql -c insert`' "≤ 0.9" "$runs" "${fleet[@]}" oncectl claim 'claim/{}' --- "${insert[@]}"

# The run is that of the command that takes the times: its claims are the job's.
times=$(env "${fleet[@]}" oncectl run --lock bench -- \
	"$tmp/beside" -runs "$runs" oncectl claim 'run/{}' --- "${insert[@]}" | column 1)
ratio '`claim` in a run' ms "${times%%$'\n'*}" '`psql -c insert`' "${times##*$'\n'}" "≤ 0.45"
