#!/bin/bash
# lib.bash: what the scripts that run the tests have in common; they source it.

# forget_store unsets what names the caller's own store, which is not for tests.
forget_store() {
	local name
	for name in $(compgen -e | grep -E '^(PG|ONCECTL_|DATABASE_URL$|KUBERNETES_SERVICE_HOST$)'); do
		unset "$name"
	done
}

# start_server BIN DIR [SETTING…] makes a cluster in DIR, whose parent others may
# pass through, and starts it with the server's programs in BIN (with a slash, or
# empty for those on the PATH), and with settings such as fsync=on. It prints a
# superuser's URL, on stderr the rest. Root may not run a server: an unprivileged
# user does.
start_server() (
	local bin=$1 dir=$2 account="" as=() try port
	if [ "$(id -u)" -eq 0 ]; then
		for account in postgres nobody; do id -u "$account" >/dev/null && break; done
		as=(setpriv --reuid "$account" --regid "$(id -g "$account")" --clear-groups)
	fi
	mkdir "$dir" && cd "$dir" || return
	[ -z "$account" ] || chown "$account" .
	"${as[@]}" "${bin}initdb" -D data -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >&2 || return
	cat >>data/postgresql.conf <<-END
		listen_addresses = '127.0.0.1'
		unix_socket_directories = '$dir'
		max_connections = 300
		fsync = off
	END
	[ $# -eq 2 ] || printf '%s\n' "${@:3}" >>data/postgresql.conf
	for try in 1 2 3 4 5; do
		port=$((15000 + RANDOM % 15000)) # below those that clients get
		"${as[@]}" "${bin}pg_ctl" -D data -l log -o "-p $port" -w -t 60 start >&2 || { cat log >&2; continue; }
		echo "postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
		return
	done
	return "$try"
)

# end_servers DIR ends the servers in the folders of DIR: start_server's, and
# those of a test that was killed. They are in sessions of their own, and remove
# postmaster.pid when they have ended.
end_servers() {
	local pidfile i
	for pidfile in "$1"/*/data/postmaster.pid; do
		[ ! -e "$pidfile" ] || kill -QUIT "$(head -n 1 "$pidfile")"
		for ((i = 0; i < 100; i++)); do
			[ -e "$pidfile" ] || break
			sleep 0.1
		done
	done
}

# cover TMP DIR lets files of DIR be added and removed in this mount namespace and
# nowhere else. What the host has there stays visible.
cover() {
	local host=$1/host$2
	mkdir -p "$host" && mount --rbind "$2" "$host" && mount -t tmpfs -o mode=755 tmpfs "$2" || return
	find "$host" -mindepth 1 -maxdepth 1 -exec ln -s -t "$2" {} +
}

# hide_cron TMP gives this mount namespace crontabs of its own, none at first, and
# a sendmail that puts each mail into a file TMP/mail.*: the host's cron, mail and
# files stay as they are.
hide_cron() {
	cover "$1" /usr/sbin || return # for sendmail, also where the host has none
	cover "$1" /run || return      # for cron's pid file
	rm -f /usr/sbin/sendmail /run/crond.pid /run/crond.reboot
	cat >/usr/sbin/sendmail <<-EOS
		#!/bin/sh
		exec cat >"\$(mktemp $1/mail.XXXXXX)"
	EOS
	chmod 755 /usr/sbin/sendmail
	mount -t tmpfs tmpfs /etc/cron.d || return
	[ ! -e /etc/crontab ] || { : >"$1/empty" && mount --bind "$1/empty" /etc/crontab; } || return
	mount -t tmpfs tmpfs /var/spool/cron && mkdir -m 1730 /var/spool/cron/crontabs
}

# go_output reads what 'go test -json' wrote. With fail it prints the output of
# tests and packages that failed or did not end, and lines that are not JSON, so
# that other steps' output passes unchanged. With skip it prints the reasons of
# skipped tests, the last line that each wrote with its place, and one of them.
go_output() {
	awk -v want="$1" '
		function field(name,   s) {
			if (!match($0, "\"" name "\":\"")) return ""
			s = substr($0, RSTART + RLENGTH)
			gsub(/\\\\/, "\001", s); gsub(/\\"/, "\002", s)
			sub(/".*/, "", s)
			gsub(/\\n/, "\n", s); gsub(/\\t/, "\t", s); gsub(/\\u003c/, "<", s); gsub(/\\u003e/, ">", s); gsub(/\\u0026/, "\\&", s)
			gsub(/\002/, "\"", s); gsub(/\001/, "\\", s)
			return s
		}
		!/^{"/ { if (want == "fail") print; next }
		{ action = field("Action"); pkg = field("Package"); test = field("Test"); key = pkg SUBSEP test }
		action ~ /output$/ {
			line = field("Output")
			if (action == "build-output") { if (want == "fail") printf "%s", line }
			else if (line !~ /^ *(=== |--- (PASS|SKIP)|PASS\n|ok |\?   )/) out[key] = out[key] line
			if (line ~ /^ *[[:alnum:]_]+\.go:[0-9]+: /) { why[key] = line; gsub(/^ *[^ ]+ |\n.*/, "", why[key]) }
			next
		}
		action == "skip" && test != "" { if (!n[why[key]]++) first[why[key]] = test }
		action == "fail" {
			if (want == "fail") printf "%s", out[key]
			# What has not ended when its package has is where it broke.
			for (k in out) if (test == "" && want == "fail" && k != key && index(k, pkg SUBSEP) == 1) printf "%s", out[k]
		}
		action ~ /^(pass|fail|skip)$/ { delete out[key]; delete why[key] }
		END { if (want == "skip") for (w in n) print first[w] (n[w] > 1 ? " and " n[w] - 1 " more" : "") ": " w }
	' "$2"
}
