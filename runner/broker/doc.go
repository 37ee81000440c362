// Package broker is the Unix socket by which a job's own claims and sends go
// through the `oncectl run` above them: a claim that went around its run's
// lock would not be fenced.
//
// It speaks HTTP, so that a job in any language can use it:
//
//	curl -sS --unix-socket "$ONCECTL_SOCKET" -X POST http://oncectl/claim/invoice/4711
//
// Bodies and answers are JSON; times are RFC 3339, durations like "10m". Fields
// that are not named here are refused, and so is a body without its list, an
// "expires" that is not more than zero, and text that is no Unicode.
//
//	POST /claim     {"ids":["a","b"],"expires":"10m"} → {"won":[true,false],"token":"…"}
//	                also: "token", "owner", "payload_hashes", "targets", "take"
//	                (of "expired", "failed", "in_doubt", "bare_of_run"; with
//	                "expires" and no "take": "expired")
//	POST /claim/ID  200 won, 409 already claimed, everything else: undecided or
//	                not possible. ?expires=10m, ?token=…, ?owner=…
//	POST /done      {"ids":["a"]} → {"answers":["settled"]}; "outcome", "token".
//	                Answers: settled, already_settled, not_owner, not_claimed
//	POST /done/ID   200, or 409 if it is not this run's or not claimed
//	POST /release   {"ids":["a"]} → {"answers":["settled"]}; "token"
//	POST /release/ID  200, or 409
//	POST /renew     {"ids":["a"],"token":"…","expires":"10m"} → {"renewed":1}
//	POST /lookup    {"ids":["a"]} → {"claims":[…]}, those that exist
//	POST /settle    {"settlements":[…],"token":"…"} → {"answers":[…]}
//	POST /turn      {"settle":{…},"claim":{…}} → {"answers":[…],"won":[…]}
//	GET  /run       the run: {"run_id":7,"lock":"nightly",…}
//	POST /slot      {"host":"https://h:443","patience":"5m"}: the answer begins
//	                when a request to host may be sent, with the line
//	                {"slot":"1","delivered":N}, and goes on for as long as the
//	                slot is held: until the connection or the slot is closed
//	POST /slot/SLOT/done  {"answer":"delivered","retry_after":"2s"} →
//	                {"delivered":M}; answers: none, delivered, other, refused
//
// ID is the rest of the path, with %, ? and # (and . and .. between slashes)
// percent-encoded. Only the status 409 means "already claimed": a script looks
// at curl's -w '%{http_code}', since -f alone cannot tell it from an outage.
//
// Errors are {"code":"…","message":"…"}. While the job is paused because its
// lock is lost, requests wait; when the run has to end, they are refused.
package broker
