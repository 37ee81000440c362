#!/bin/bash
# rows: what the number of rows that are there adds to a claim, to publishing a
# message and to a look at the status: 1,000 claims and sent messages, a million,
# with --full 10 million; a tenth as many runs, a hundredth as many dead letters.
# shellcheck disable=SC2154,SC2016 # scripts/bench sets them; Markdown's backticks
runs=$(pick 3 40 60)
read -ra sizes <<<"$(pick "100 1000" "1000 1000000" "1000 1000000 10000000")"

# grow N makes a schema with N rows, without waiting for the disk at each step.
# The ids are spread over the index, as those of a claim are that comes.
grow() {
	env "${fleet[@]}" ONCECTL_SCHEMA="${schema}_$1" oncectl schema apply >/dev/null
	PGOPTIONS="-c search_path=${schema}_$1 -c synchronous_commit=off -c work_mem=256MB" "$psql" -Xqv ON_ERROR_STOP=1 -v n="$1" -d "$database" <<-'END'
		insert into processed_events (event_id, outcome, expires_at, finished_at)
			select 'event/' || id, case when i % 100000 < 10 then null when i % 1000 = 17 then 'in_doubt' when i % 3 = 0 then 'delivered' end,
				case when i % 100000 < 5 then now() when i % 100000 < 10 then '2100-01-01'::timestamptz end, case when i % 3 = 0 then now() end
			from (select i, md5(i::text) as id from generate_series(1, :n) i) ids order by id collate "C";
		insert into runs (lock, lock_key, token, host, pid, started_at, finished_at, outcome, exit_code)
			select 'lock ' || i % 50, i % 50, gen_random_uuid(), 'host', 1, now(), now(),
				case when i % 7 = 0 then 'failed' else 'succeeded' end, 0
			from generate_series(1, :n / 10) i;
		insert into failed_jobs (kind, name, event_id, last_error, certainty, resolved_at)
			select 'send', 'api.example.com', 'event/' || md5((i * 100 + 17)::text), 'it failed',
				case when i % 10 = 0 then 'in_doubt' else 'failed' end, case when i % 2 = 0 then now() end
			from generate_series(1, :n / 100) i;
		insert into outbox (topic, payload, sent_at) select 'orders', '{"n": 1}', now() from generate_series(1, :n) i;
		-- One more for each publisher that is measured.
		insert into outbox (topic, payload) select 'orders', '{"n": 1}' from generate_series(1, 1000) i;
		vacuum analyze processed_events, runs, failed_jobs, outbox;
	END
}

# each COMMAND… prints its median time in ms with each size, one a line.
each() {
	local size words=()
	for size in "${sizes[@]}"; do
		words+=("${fleet[@]}" "ONCECTL_SCHEMA=${schema}_$size" "$@" ---)
	done
	beside "$runs" "${words[@]}" | column 1
}

# growth WHAT GOAL COMMAND… compares each size with the first.
growth() {
	local what=$1 goal=$2 times i
	mapfile -t times < <(each "${@:3}")
	for ((i = 1; i < ${#sizes[@]}; i++)); do
		ratio "$what at $(thousands "${sizes[i]}") rows" ms "${times[i]}" "at $(thousands "${sizes[0]}")" "${times[0]}" "$goal"
	done
}

for size in "${sizes[@]}"; do grow "$size"; done
settle
growth '`claim`' "≤ 1.3" oncectl claim 'event/{}'
receive
growth '`outbox publish` of one message' "" oncectl outbox publish --limit 1 --url "$url"
received
growth '`status`' "" oncectl status
for size in "${sizes[@]:1}"; do
	env=("${fleet[@]}" "ONCECTL_SCHEMA=${schema}_$size")
	mapfile -t times < <(beside "$runs" "${env[@]}" oncectl status --- "${env[@]}" oncectl schema status | column 1)
	amount "\`status\` beyond a connection, at $(thousands "$size") rows" ms "$(calc "${times[0]} - ${times[1]}")" \
		'`schema status`' "${times[1]}" "≤ 100"
done
