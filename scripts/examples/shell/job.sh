#!/bin/bash
# job.sh: one mail to each of the customers in a file, once, however often it is
# started and on however many hosts:
#
#   job.sh reminders.tsv      # lines of: invoice number, tab, address
#   oncectl run --lock reminders -- job.sh reminders.tsv      # one host at a time
#
# Exit status: 0 all have been sent, now or before; 1 some could not be; 75 not
# decided, try again later.
set -euo pipefail

sendmail=${SENDMAIL:-/usr/sbin/sendmail}
failed=0

# Standard input stays free: what the loop starts would read the rest of the file.
while IFS=$'\t' read -r number address <&3 || [ -n "$number" ]; do # also a last line without newline
	# The id comes from the event, not from the attempt: no date of today, no
	# random number, no host.
	id=reminder/$number

	# Under set -e, "oncectl claim …; case $?" would end here at status 1, before
	# case. And "oncectl claim … || continue" would take an outage for a duplicate:
	# all would be skipped, and the job end 0.
	status=0
	oncectl claim --expires 10m "$id" || status=$?
	case $status in
	0) ;;           # ours: nobody else sends it
	1) continue ;;  # it has been sent, or somebody is at it
	*) exit 75 ;;   # not decided: send nothing
	esac

	# pipefail: without it, the pipe's status would be sendmail's alone.
	if printf 'To: %s\nSubject: Invoice %s is due\n\nPlease pay invoice %s.\n' "$address" "$number" "$number" |
		"$sendmail" -i "$address"; then
		oncectl 'done' "$id" # quoted only because shellcheck knows another done
	else
		# sendmail took nothing, which is sure: the next run may send it. Where it
		# is not (a time-out, say), leave the claim alone.
		oncectl release "$id"
		failed=1
	fi
	# If we die between claim and done, the event is in doubt: 'oncectl claims
	# --in-doubt' names it, and after 10 minutes the next run sends it again. To
	# rather send none than two, claim without --expires, and leave out done.
done 3<"$1"

exit "$failed"
