#!/bin/bash
# lib.bash: what the parts of scripts/bench have in common. That sets tmp, the
# folder for everything; psql, the program; database, the server's URL; schema,
# where oncectl's tables are; fleet and embedded, the variables that choose the
# stores; full and smoke, 1 or empty. A part is sourced.
# shellcheck disable=SC2034,SC2154 # used, or set, by those that source it

# pick SMOKE DEFAULT FULL prints a size.
pick() {
	if [ -n "$smoke" ]; then echo "$1"; elif [ -n "$full" ]; then echo "$3"; else echo "$2"; fi
}

# beside RUNS COMMAND… [--- COMMAND…]… runs them in turns and prints a line for
# each: median, least and 99th percentile in ms, most memory in KiB.
beside() { "$tmp/beside" -runs "$@"; }

# column N prints the Nth words of such lines.
column() { awk -v n="$1" '{ print $n }'; }

# compare WHAT NAME GOAL RUNS COMMAND… --- COMMAND… adds their medians to the
# table: of oncectl's command and of NAME's.
compare() {
	local times
	times=$(beside "${@:4}" | column 1)
	ratio "$1" ms "${times%%$'\n'*}" "$2" "${times##*$'\n'}" "$3"
}

# median prints that of the numbers on stdin, one a line.
median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# thousands N prints it with commas.
thousands() { sed -E ':a; s/([0-9])([0-9]{3})($|,)/\1,\2\3/; ta' <<<"$1"; }

# calc EXPRESSION prints what awk makes of it.
calc() { awk "BEGIN { print $1 }"; }

# sql [ARG…] runs what psql is told to, or what is on stdin.
sql() { PGOPTIONS="-c search_path=$schema -c client_min_messages=warning" "$psql" -Xqv ON_ERROR_STOP=1 -d "$database" "$@"; }

# settle lets the server write what it has put off, if it lets us.
settle() { sql -c checkpoint 2>/dev/null || true; }

# seconds COMMAND… prints how long it takes.
seconds() {
	local start=$EPOCHREALTIME
	"$@" || return
	calc "$EPOCHREALTIME - $start"
}

# receive [ARG…] starts a receiver and sets url.
receive() {
	rm -f "$tmp/url"
	mkfifo "$tmp/url"
	"$tmp/receiver" "$@" >"$tmp/url" &
	receiver=$!
	exec 3<"$tmp/url"
	read -r url <&3
}

# received ends the receiver and sets came, ideal, refused and twice: how many
# requests came, the seconds they took shared by those in flight, and with a
# rate those it refused and those it took twice.
received() {
	kill "$receiver"
	wait "$receiver"
	receiver=
	local said
	read -r said <&3
	exec 3<&-
	read -r came ideal refused twice <<<"$(awk -F '[, ]+' -v share="${concurrency:-1}" '{ print $1, $6 / share, $8, $10 }' <<<"$said")"
}

# all_came N: a receiver that refuses nothing got each once.
all_came() { [ "$came" -eq "$1" ] || { echo "bench: $came requests came, not $1" >&2; exit 2; }; }

# ratio WHAT UNIT OURS NAME THEIRS [GOAL] adds a line to the table: what oncectl
# and what NAME took. The goal, "≤ 2" or "≥ 0.5", is about their ratio.
ratio() { line ratio "$@"; }

# amount WHAT UNIT OURS NAME THEIRS [GOAL] is the same with a goal for ours
# itself. NAME and THEIRS may be empty.
amount() { line amount "$@"; }

# line writes the table as it grows. A smoke test judges nothing: its numbers say
# only that everything works.
line() {
	[ -z "$smoke" ] || set -- "${@:1:6}"
	awk -v kind="$1" -v what="$2" -v unit="$3" -v ours="$4" -v name="$5" -v theirs="$6" -v goal="${7-}" '
		function thousands(n,   s) {
			s = sprintf("%.0f", n)
			while (s ~ /[0-9][0-9][0-9][0-9]/) sub(/[0-9][0-9][0-9]($|,)/, ",&", s)
			return s
		}
		function show(n) {
			if (unit == "" || unit == "B" || unit == "rows/s") n = thousands(n)
			else n = sprintf(unit == "s" ? "%.2f" : "%.1f", n)
			return unit == "" ? n : n " " unit
		}
		BEGIN {
			beside = "–"; quotient = "–"; met = "–"
			if (name != "") beside = theirs == "" ? name : name ": " show(theirs)
			if (theirs + 0 > 0 && kind == "ratio") quotient = sprintf("%.2f", ours / theirs)
			if (goal != "") {
				split(goal, g, " ")
				value = kind == "ratio" ? ours / theirs : ours
				kept = g[1] == "≤" ? value <= g[2] + 0 : value >= g[2] + 0
				met = kept ? "yes" : "**no**"
				if (kind == "amount") goal = g[1] " " (unit == "B" || unit == "" ? thousands(g[2]) : g[2]) (unit == "" ? "" : " " unit)
			}
			printf "| %s | %s | %s | %s | %s | %s |\n", what, show(ours), beside, quotient, goal == "" ? "–" : goal, met
		}' | tee -a "$tmp/table"
}
