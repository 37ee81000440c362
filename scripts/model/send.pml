/*
 * The life of one event that is sent, as a model that spin searches completely.
 * ./check does it, and shows that every safeguard is needed.
 *
 * WHAT IS CLAIMED
 *   1. The receiver processes the event once at the most, and once more if a
 *      person says --in-doubt (processes).
 *   2. An outcome is true: delivered only what was processed, failed only what
 *      was not and will not be (consistent).
 *   3. None is lost unnamed: what may have been processed is delivered or has a
 *      dead letter in doubt, once its sender is gone; what failed has a dead
 *      letter; what has neither claim nor letter was not processed (inspects).
 *   4. Two senders are never at it at once, unless one was stopped or cut off
 *      for longer than its claim lasts (begins).
 *   5. A send that ends quietly says the truth: the event was delivered, or
 *      another sender has it; and all requests of a claim, whoever took it over,
 *      have one payload (answers, begins).
 *
 * WHO IS WHO
 *   send(h)     `oncectl send` on slot h, or one event of a batch: claims, sends
 *               up to TRIES times, records the outcome. When it is over, its slot
 *               is used for the next one. Slots 0 and 1 are sends of one run's
 *               job, 1 perhaps with another payload; the last is an operator's
 *               `failed retry`.
 *   receiver    a part of send: processes a request or not, and answers as it
 *               likes: 200 only after processing, 429 and 404 only without, 502
 *               and silence either way.
 *   strays      requests whose sender has given up may still be processed.
 *   others      the run's own job makes a bare claim before it sends; another run
 *               or program makes one and has the effect itself.
 *   person      `release` of what failed, or is in doubt and was looked up: not
 *               processed, its sender gone.
 *   faults      kill -9 of a sender; a claim that is not renewed in time, as its
 *               sender is dead, stopped or cut off from the store.
 *
 * PLAIN: all senders are without --idempotent, and the receiver does not know
 * the key. HONOURS: it processes each key once, and each sender may be with
 * --idempotent or without.
 *
 * The answer of any statement may be lost; then it is made again with the same
 * token, or the sender gives up, which is like being killed. Delays need no
 * words: between any two steps of a sender as much time passes as the others
 * like. That includes a stopped one, whose claim then expires.
 *
 * LIMITS, which fail: CARELESS, when a person releases what is in doubt without a
 * look. BATCH_TWICE, when a batch has an id twice, its first line failed, and that
 * outcome reached the store once in time and once more, late, while the second
 * line was being sent: all lines of a batch have one token.
 *
 * LEFT OUT: the fence of a run (see lock.pml), `done` and `resolve` (a person's
 * word), release of what a live sender has, prune, other kinds of claims, and
 * the pace.
 *
 * STEP BY STEP: the rule in what oncectl promises, and its code.
 *   step here               rule                    code
 *   ASKS, claim, takes      Claims the id first;    send.go Send, claimRequest;
 *                           adopted                 pgstore/claim.go claimTake,
 *                                                   sqlitestore/claim.go claimSQL
 *   LOOKS, answers          exit 0, quietly; in     send.go answerBefore,
 *                           doubt: exit 1           batch.go answerLost
 *   forced, doubt           --idempotent sends it   send.go takesDoubt, attempt
 *                           again
 *   READY, begins, FLIES    Retry only what surely  delivery/client.go try, note,
 *                           was not processed       classify.go, try.go attempt
 *   ends                    (the same)              client.go finish
 *   SETTLES, RETURNS        late outcome; TERM      pgstore/settle.go settleMany,
 *                                                   settleFailed, giveBack
 *   lapse, renew            expires_at, renewed     settle.go renew; keepalive.go
 *   sweep                   in_doubt dead letter    pgstore/deadletters.go sweep
 *   retries                 failed retry            cmd/failedretry.go retry
 *
 * SAFEGUARDS, each with the switch that removes it:
 *   SEND_FIRST           the event is claimed before it is sent, not after
 *   ONE_TOKEN            each claimer has a token of its own
 *   NO_TOKEN_AGAIN       a claim made again with its token is won again
 *   ANYBODYS_OUTCOME     an outcome is recorded for the claim's owner only
 *   ANYBODYS_RETURN      and only the owner gives a claim back
 *   NO_RENEWAL           a live sender renews its claim
 *   ADOPT_ANY            a bare claim is adopted in its own run only
 *   ADOPT_SENDS          and only while it is bare
 *   TAKE_EXPIRED, TAKE_DOUBT  what is in doubt, seen by a sweep or not yet, is not
 *                        sent again without being told
 *   RETRY_DOUBT          nor by `failed retry` without --in-doubt
 *   REPEAT_ALL           only what surely was not processed is tried again
 *   FORGET_TRY           a try in doubt is not forgotten when the next is refused
 *   FORGET_CLAIM         nor is the doubt of a claim that was taken over
 *   NO_SWEEP             an expired claim becomes a dead letter
 *   LATE_LETTER          an outcome and its dead letter are one transaction
 *   NO_HASH              another payload is refused
 *   KEY_PER_CLAIM        the key is the event's, not the claim's
 */

#define SLOTS 3
#define RETRY 2 /* the slot of `failed retry` */
#define NONE  SLOTS /* nobody */
#ifndef TRIES
#define TRIES 2
#endif
#ifdef HONOURS
#define honours true
#else
#define honours false
#endif

/* the claim */
#define FREE      0 /* there is none */
#define OURS      1 /* bare, of the senders' run */
#define THEIRS    2 /* bare, of another run or program */
#define OPEN      3 /* unfinished */
#define DELIVERED 4
#define FAILED    5
#define DOUBT     6
byte row;
byte tok = NONE;  /* who owns it, if that one still lives */
bit  expired;     /* its expires_at has passed */
bit  hash;        /* of its payload */
byte letter;      /* the unresolved dead letter: 0, FAILED or DOUBT */

/* senders */
#define OFF     0
#define ASKS    1 /* claims */
#define LOOKS   2 /* has not won and looks at what is there */
#define READY   3 /* has won: before the first or next try */
#define FLIES   4 /* the request is under way, or its answer */
#define SETTLES 5 /* has the result and records it */
#define RETURNS 6 /* was interrupted and gives the claim back */
byte st[SLOTS];
bit  idem[SLOTS];   /* --idempotent */
bit  told[SLOTS];   /* --in-doubt */
bit  pay[SLOTS];    /* its payload */
bit  forced[SLOTS]; /* claims also what is in doubt */
bit  doubt[SLOTS];  /* this or an earlier sender's try may have been processed */
byte tries[SLOTS];
byte res[SLOTS];    /* the result to be recorded */
bit  lapsed[SLOTS]; /* its claim has expired, since it was stopped or cut off */
#ifdef BATCH_TWICE
byte late[SLOTS];   /* an outcome that was sent to the store and is not there yet */
#endif
#ifdef LATE_LETTER
byte due[SLOTS];    /* the dead letter that it has yet to write */
#endif

/* the receiver's side. A request that somebody waits for is that of a slot in FLIES. */
byte stray;       /* requests on the way that nobody waits for */
byte processed;   /* how often */
byte allowed = 1;
#ifdef KEY_PER_CLAIM
bit  used[SLOTS]; /* the receiver knows the key of its claim */
#endif
bit  effect;      /* the owner of a bare claim of others has yet to have its effect */

/*
 * What must be possible, lest all this hold of a model in which nothing happens.
 * -DREACH=n makes it the error to be found.
 */
#define LATE_OUTCOME 1 /* what was swept is resolved by its sender's outcome */
#define WON_AGAIN    2 /* a claim whose answer was lost is won again, and delivered */
#define ADOPTED      3 /* a bare claim is adopted and delivered */
#define TOLD         4 /* what is in doubt is sent again on purpose, and delivered */
#define RETRIED      5 /* what failed is sent again and delivered */
#ifdef REACH
bit again[SLOTS];
bit adopts[SLOTS];
bit retakes[SLOTS];
#define reached(n, what) assert(n != REACH || !(what))
bit resends[SLOTS];
inline note(h) {
	again[h] = (row == OPEN && tok == h) || (again[h] && row == OPEN);
	adopts[h] = (row == OURS || (adopts[h] && tok == h));
	resends[h] = (row == DOUBT || (row == OPEN && expired && tok != h));
	retakes[h] = (row == FAILED || (retakes[h] && tok == h))
}
inline unnote(h) { again[h] = 0; adopts[h] = 0; retakes[h] = 0; resends[h] = 0 }
#else
#define reached(n, what) skip
inline note(h) { skip }
inline unnote(h) { skip }
#endif

/* that a claim above holds. -DONLY=n asks for the n-th only, so that it is known
 * which one a safeguard is needed for. */
#ifndef ONLY
#define ONLY 0
#endif
#define claimed(n, what) assert((ONLY != 0 && ONLY != n) || (what))

/* consistent is asked whenever one of its words has changed. */
inline consistent() {
	claimed(2, row != DELIVERED || processed > 0);
	claimed(2, row != FAILED || processed == 0)
}

inline processes() {
	processed++;
#ifdef HONOURS
#ifndef KEY_PER_CLAIM
	stray = 0; /* the others are repeats */
#endif
#endif
	claimed(1, processed <= allowed);
	consistent()
}

/* over empties the slot. Its token is nobody's from now on. */
inline over(h) {
	if
	:: tok == h -> tok = NONE
	:: else
	fi;
	st[h] = OFF; idem[h] = 0; told[h] = 0; pay[h] = 0; forced[h] = 0;
	doubt[h] = 0; tries[h] = 0; res[h] = 0; lapsed[h] = 0; unnote(h);
#ifdef BATCH_TWICE
	late[h] = 0;
#endif
#ifdef LATE_LETTER
	due[h] = 0;
#endif
	skip
}

/* what a claim takes, as the row is at its commit */
#ifdef ONE_TOKEN
#define owns(h) (row >= OPEN)
#else
#define owns(h) (tok == h)
#endif
#ifdef NO_TOKEN_AGAIN
#define wonBefore(h) false
#else
#define wonBefore(h) (row == OPEN && owns(h))
#endif
#ifdef NO_HASH
#define samePay(h) true
#else
#define samePay(h) (row < OPEN || hash == pay[h])
#endif
#ifdef TAKE_EXPIRED
#define takesExpired(h) true
#else
#define takesExpired(h) forced[h]
#endif
#ifdef TAKE_DOUBT
#define takesDoubt(h) true
#else
#define takesDoubt(h) forced[h]
#endif
#ifdef ADOPT_SENDS /* "of the same run" without "bare" */
#define adopt(h) (h != RETRY && (row == OURS || row == OPEN))
#else
#ifdef ADOPT_ANY
#define adopt(h) (row == OURS || row == THEIRS)
#else
#define adopt(h) (h != RETRY && row == OURS)
#endif
#endif
#define takes(h) (row == FREE || (samePay(h) && (wonBefore(h) || adopt(h) || row == FAILED || \
	(row == DOUBT && takesDoubt(h)) || (row == OPEN && expired && takesExpired(h)))))

inline claim(h) {
	note(h);
	claimed(5, row < OPEN || hash == pay[h]);
	row = OPEN; tok = h; expired = 0; hash = pay[h];
#ifdef KEY_PER_CLAIM
	used[h] = 0;
#endif
	skip
}

/* wins: the answer has come. Who has claimed what was in doubt does not forget it. */
inline wins(h) {
#ifdef FORGET_CLAIM
	doubt[h] = 0;
#else
	doubt[h] = forced[h];
#endif
	forced[h] = 0; lapsed[h] = 0;
	st[h] = READY
}

inline settle(h, r) {
	if
#ifdef ANYBODYS_OUTCOME
	:: (row == OPEN || (row == DOUBT && r != DOUBT)) ->
#else
#ifdef SEND_FIRST
	:: row != DELIVERED ->
		hash = pay[h];
#else
	:: owns(h) && (row == OPEN || (row == DOUBT && r != DOUBT)) ->
#endif
#endif
		reached(LATE_OUTCOME, row == DOUBT && r == DELIVERED);
		reached(WON_AGAIN, r == DELIVERED && again[h]);
		reached(ADOPTED, r == DELIVERED && adopts[h]);
		reached(TOLD, r == DELIVERED && resends[h]);
		reached(RETRIED, r == DELIVERED && retakes[h]);
		row = r; expired = 0;
#ifdef LATE_LETTER
		due[h] = (r == DELIVERED -> 0 : r); letter = 0;
#else
		letter = (r == DELIVERED -> 0 : r);
#endif
		consistent()
	:: else
	fi
}

#define mayRepeat(h) (idem[h] || told[h])
#define inDoubt      (row == DOUBT || (row == OPEN && expired))
#define inFlight(h)  (st[h] == FLIES && !lapsed[h])

/* begins a try. */
inline begins(h) {
	claimed(4, lapsed[h] || !((h != 0 && inFlight(0)) || (h != 1 && inFlight(1)) || (h != 2 && inFlight(2))));
	tries[h]++;
	st[h] = FLIES
}

/* ends: no more tries. */
inline ends(h, r) {
	res[h] = (r != DELIVERED && doubt[h] -> DOUBT : r);
	tries[h] = 0; doubt[h] = 0; lapsed[h] = 0;
	st[h] = SETTLES
}

#ifdef FORGET_TRY
inline forgets(h) { doubt[h] = 0 }
#else
inline forgets(h) { skip }
#endif

inline surelyNot(h) {
	forgets(h);
	if
	:: tries[h] < TRIES -> st[h] = READY
	:: else -> ends(h, FAILED)
	fi
}

inline rejected(h) { forgets(h); ends(h, FAILED) }

inline doubtful(h) {
	doubt[h] = 1;
	if
#ifdef REPEAT_ALL
	:: tries[h] < TRIES -> st[h] = READY
#else
	:: tries[h] < TRIES && idem[h] -> st[h] = READY
#endif
	:: else -> ends(h, DOUBT)
	fi
}

/* left: nobody waits for the request of h any more. Requests with one key are one. */
#define canLeave (stray < 2 || honours)
inline left() {
#ifdef HONOURS
#ifdef KEY_PER_CLAIM
	stray = 1
#else
	stray = (processed == 0)
#endif
#else
	stray++
#endif
}

#ifdef HONOURS
inline payload(h) { skip }
#else
inline payload(h) { if :: pay[h] = 0 :: pay[h] = 1 fi }
#endif

#ifdef KEY_PER_CLAIM
#define repeats(h) (honours && used[h])
inline keeps(h) { used[h] = 1 }
#else
#define repeats(h) (honours && processed > 0)
inline keeps(h) { skip }
#endif

proctype send(byte h) {
	do
	:: d_step { st[h] == OFF && h != RETRY -> st[h] = ASKS }
	:: d_step { st[h] == OFF && h == 1 && !honours -> pay[h] = 1; st[h] = ASKS }
	:: d_step { st[h] == OFF && h != RETRY && honours -> idem[h] = 1; st[h] = ASKS }

	/* failed retry: of what failed; of what is in doubt when told. It sends what
	   the letter has, which may have been the other payload. */
	:: atomic { st[h] == OFF && h == RETRY && letter == FAILED -> st[h] = ASKS; payload(h) }
#ifdef RETRY_DOUBT
	:: atomic { st[h] == OFF && h == RETRY && letter == DOUBT -> told[h] = 1; st[h] = ASKS; payload(h) }
#endif
	:: atomic { st[h] == OFF && h == RETRY && letter == DOUBT && honours -> idem[h] = 1; st[h] = ASKS }
	:: atomic { st[h] == OFF && h == RETRY && letter == DOUBT && !honours && allowed == 1 ->
		allowed = 2; told[h] = 1; st[h] = ASKS; payload(h) }

#ifdef SEND_FIRST
	:: d_step { st[h] == ASKS && (row == FREE || row == FAILED) -> wins(h) }
	:: d_step { st[h] == ASKS && !(row == FREE || row == FAILED) -> st[h] = LOOKS }
#else
	:: d_step { st[h] == ASKS && takes(h) -> claim(h); wins(h) }
	:: d_step { st[h] == ASKS && takes(h) -> claim(h) } /* the answer is lost */
	:: d_step { st[h] == ASKS && !takes(h) -> st[h] = LOOKS }
#endif

	/* lost: what is there by now? */
	:: d_step { st[h] == LOOKS ->
		if
		:: row == FREE || (row == FAILED && samePay(h)) -> st[h] = ASKS
		:: row >= OPEN && !samePay(h) -> over(h) /* refused */
		:: row < OPEN && row != FREE -> over(h)   /* refused: a bare claim */
		:: row >= OPEN && samePay(h) && inDoubt && mayRepeat(h) && !forced[h] -> forced[h] = 1; st[h] = ASKS
		:: row >= OPEN && samePay(h) && inDoubt && !(mayRepeat(h) && !forced[h]) -> over(h) /* named */
		:: row == DELIVERED && samePay(h) -> claimed(5, processed > 0 && hash == pay[h]); over(h)
		:: row == OPEN && !expired && samePay(h) -> claimed(5, tok != h && hash == pay[h]); over(h)
		fi }

	/* one try after the other */
	:: d_step { st[h] == READY && tries[h] < TRIES -> begins(h) }
	:: d_step { st[h] == READY && tries[h] < TRIES -> tries[h]++; surelyNot(h) } /* nothing was written */
	:: d_step { st[h] == READY && doubt[h] -> ends(h, DOUBT) } /* interrupted */
	:: d_step { st[h] == READY && !doubt[h] -> tries[h] = 0; st[h] = RETURNS }
	/* the receiver's answer. It is here when it is given: what could happen
	   meanwhile may as well happen before the sender's next step. */
	:: d_step { st[h] == FLIES && !repeats(h) -> keeps(h); processes(); ends(h, DELIVERED) }
	:: d_step { st[h] == FLIES && !repeats(h) -> keeps(h); processes(); doubtful(h) } /* 502, or the answer is lost */
	:: d_step { st[h] == FLIES && repeats(h) -> ends(h, DELIVERED) }
	:: d_step { st[h] == FLIES -> surelyNot(h) } /* 429 */
	:: d_step { st[h] == FLIES -> rejected(h) }  /* 404 */
	:: d_step { st[h] == FLIES -> doubtful(h) }  /* 502 */
	/* a timeout, before the receiver has done with it */
	:: d_step { st[h] == FLIES && canLeave -> left(); doubtful(h) }

	/* the end */
	:: d_step { st[h] == SETTLES -> settle(h, res[h]);
#ifdef LATE_LETTER
		if
		:: due[h] != 0 -> skip
		:: else -> over(h)
		fi }
	:: d_step { st[h] == SETTLES && due[h] != 0 -> letter = due[h]; over(h) }
#else
		over(h) }
#endif
	:: d_step { st[h] == SETTLES -> settle(h, res[h]) } /* the answer is lost */
#ifdef BATCH_TWICE
	/* It arrives only after it has been made again, and after the next line of the
	   batch, which has the same id and is sent under the same token. */
	:: d_step { st[h] == SETTLES && late[h] == 0 -> late[h] = res[h] }
	:: d_step { late[h] != 0 -> settle(h, late[h]); late[h] = 0 }
	:: d_step { st[h] == SETTLES && res[h] == FAILED -> settle(h, res[h]); res[h] = 0; st[h] = ASKS }
#endif
#ifdef ANYBODYS_RETURN
	:: d_step { st[h] == RETURNS && row >= OPEN && row != DELIVERED -> row = FREE; tok = NONE; expired = 0; over(h) }
#else
	:: d_step { st[h] == RETURNS && owns(h) && row >= OPEN && row != DELIVERED -> row = FREE; tok = NONE; expired = 0; over(h) }
#endif
	:: d_step { st[h] == RETURNS -> over(h) } /* it is not its own any more */

	/* renewed late, but in time */
	:: d_step { st[h] >= READY && row == OPEN && tok == h && expired -> expired = 0 }

	/* killed, or it gives up as the store does not answer */
	:: d_step { st[h] == FLIES && canLeave -> left(); over(h) }
	:: d_step { st[h] != OFF && st[h] != FLIES -> over(h) }
	od
}

proctype strays() {
	do
	:: d_step { stray > 0 -> stray-- }
	:: d_step { stray > 0 -> stray--; processes() }
	od
}

proctype others() {
	do
	:: d_step { row == FREE && !honours -> row = OURS }
	:: d_step { row == FREE && !honours && !effect -> row = THEIRS; effect = 1 }
	:: d_step { effect -> effect = 0; processes() }
	:: d_step { effect -> effect = 0 } /* or not: its own to say */
	od
}

#ifdef NO_SWEEP
inline sweep() { skip }
#else
inline sweep() {
	if
	:: row == OPEN && expired -> row = DOUBT; expired = 0; letter = DOUBT
	:: else
	fi
}
#endif

#ifdef CARELESS /* released without a look: may be processed again */
#define lookedUp true
#else
#define lookedUp (processed == 0 && stray == 0 && st[0] < READY && st[1] < READY && st[2] < READY)
#endif

proctype person() {
	do
	:: d_step { (row == FAILED || row == OURS || (row == DOUBT && lookedUp)) -> row = FREE; tok = NONE }
	/* `failed list`, when all senders are gone and none's claim is still good */
	:: d_step { st[0] == OFF && st[1] == OFF && st[2] == OFF && !(row == OPEN && !expired) ->
		sweep();
		claimed(3, processed == 0 || row == DELIVERED || row == THEIRS || letter == DOUBT);
		claimed(3, stray == 0 || row == DELIVERED || row == THEIRS || letter == DOUBT);
		claimed(3, row != OPEN);
		claimed(3, row != FAILED || letter == FAILED);
		claimed(3, row != DOUBT || letter == DOUBT) }
	od
}

proctype faults() {
	do
	:: d_step { row == OPEN && !expired ->
		expired = 1;
#ifndef NO_RENEWAL
		if
		:: tok < NONE -> lapsed[tok] = 1
		:: else
		fi
#endif
		}
	:: d_step { row == OPEN && expired -> sweep() }
	od
}

init {
	atomic {
		run send(0); run send(1); run send(2);
		run strays(); run others(); run person(); run faults()
	}
}
