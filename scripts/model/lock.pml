/*
 * The life of oncectl's lock, as a model that spin searches completely.
 * ./check does it, and shows that every safeguard is needed.
 *
 * WHAT IS CLAIMED
 *   1. No two unpaused jobs of one lock exist at any time (goLive).
 *   2. No claim commits for a run whose successor holds the fence (commit).
 *
 * WHO IS WHO
 *   oncectl(h)  `oncectl run` on slot h: takes the lock, records the run, waits
 *               for a predecessor, starts the job, sends heartbeats, pauses the
 *               job when the lock is lost, takes it again or gives up. When a
 *               run is over, its slot is used for the next one.
 *   guard(h)    the small process beside it: pauses the job when oncectl has
 *               not renewed the lease, kills it when oncectl has been killed,
 *               and holds the lock's descriptor until the job is dead.
 *   jobs(h)     the user's command: it claims, and ends when it likes.
 *   server      PostgreSQL: executes what has arrived, at once or much later,
 *               and frees the lock of a silent holder.
 *   faults(h)   the link of h goes silent and comes back; oncectl is stopped
 *               and continued (SIGSTOP, a starved machine); oncectl is killed;
 *               the lock's backend is terminated; the server is restarted (or
 *               its synchronous standby is promoted).
 *   clock       one tick after the other, whenever nothing is overdue.
 *
 * TIME is in ticks; the contract's constants are scaled down in the same order:
 * handover 3 s < heartbeat 5 s < deadline 15 s < freed after 20 s = wait after a
 * restart < freed by 30 s. An overdue pause may be late by LATE, less than the
 * margin between deadline and freed; a closed connection is seen, and the job
 * paused, within NOTICE, less than the handover wait.
 *
 * DIRECT is a session lock: keepalives are answered by the kernel, so that only
 * a silent link frees it, and claims ride on the lock's own connection.
 * POOLER is a lock in an open transaction: it is freed unless heartbeats come,
 * and the record of a run and its claims travel by a second connection, on
 * which they may arrive at any time, also when the lock is long gone.
 *
 * LEFT OUT: the clocks of hosts (all durations are measured where they count,
 * at one speed), lost rows (an asynchronous failover), a host that is suspended
 * with its clock, --lock-id, what becomes of the job's descendants.
 *
 * Of --on-lock-loss only pause: stop lets a job act on until --kill-after, beside
 * the next one if that comes sooner.
 *
 * TWO FAULTS AT ONCE are left out where nothing could help: while a terminated
 * backend's closed connection is on its way to a holder (NOTICE), that holder is
 * not also cut off, stopped or killed; a holder that is cut off or stopped does
 * not also have its backend terminated; the server is not restarted in the
 * instant in which a guard is killing. -DTWO_FAULTS lets all that happen; it
 * fails, which is a limit to be told to users.
 *
 * STEP BY STEP: the rule in "The lock" of what oncectl promises, and its code.
 *   step here                    rule           code
 *   OFF to TAKING                Direct, behind pgstore/lock.go TryLock
 *                                a pooler
 *   BEGINS, record, gone         Handover       pgstore/record.go Begin; watch.go
 *                                               begin, handoverWait
 *   WAITS                        Handover       watch.go handOver
 *   starts                       Handover       watch.go start
 *   request, answered, expired   The lease      pgstore/lease.go beat, answered, lose
 *   unplug, age                  The lease      pgstore/lock.go takeDirect, poolSettings
 *   loses, LOST, hangUp          Loss           loss.go lockLost, retake, takeAgain,
 *                                               replace; lease.go regain
 *   ASKS, fenced, goesOn         Loss           record.go Resume; loss.go resume
 *   finish, ends, over           Handover       watch.go finish, saveEnd, release
 *   guard: pause                 The guard      process/guard/serve.go halt;
 *                                               loss.go halted
 *   guard: ORPHAN                The guard      process/guard/serve.go serve, kill
 *   jobs: commit                 Direct         pgstore/held.go direct; claim.go fenceCTE
 *   secondConnection             Behind a       pgstore/held.go pooled; claim.go fenceCTE
 *                                pooler
 *
 * SAFEGUARDS, each with the switch that removes it, and where it acts:
 *   NO_FENCE, LOOK_AT_LOCKS  a claim holds the fence's row; a lock that was taken
 *                        again goes on only under it. The second puts a look at
 *                        pg_locks in the fence's place
 *   NO_MARGIN            the holder's deadline is shorter than the server's patience
 *   NO_HANDOVER          who follows an unfinished run waits
 *   NO_RESTART_WAIT      and longer if the server was restarted since
 *   NO_GUARD             a killed oncectl's job is killed, and the lock not free before
 *   NO_GUARD_PAUSE       a stopped oncectl's job is paused
 *   FROM_ANSWER          the lease counts from the sending of a heartbeat
 *   NO_INHERIT           a run that is over before its wait was leaves the rest of
 *                        the wait to the next, however it ended
 *   NO_EXPIRY            an order to start or continue the job is void once the lease
 *                        has run out, also when oncectl was stopped on the way
 *   GUARD_COUNTS_SILENCE the guard pauses at the lease's own deadline, not when it has
 *                        heard nothing for as long as that
 *   LATE_BEGIN           behind a pooler a run is recorded only while its own session
 *                        has the lock: fence's row first, then the look
 *   GONE_BEFORE_GUARD    a run is gone from this host only when its guard is, too
 * The last five ask more than the contract's letter; whether the code does it all
 * is for its tests to show.
 */

#ifndef SLOTS
#define SLOTS 2
#endif
/* with ONE_HOST the first two slots share one: each sees whether the other is gone */
#ifdef ONE_HOST
#define host(h) (h / 2)
#else
#define host(h) h
#endif

#define HEARTBEAT   2
#define LATE        1
#define NOTICE      0
#define FREED_AFTER 5
#define FREED_BY    6

#ifdef NO_MARGIN /* the deadline is as long as the server's patience */
#define DEADLINE FREED_AFTER
#else
#define DEADLINE 3
#endif
#ifdef NO_HANDOVER
#define HANDOVER 0
#else
#define HANDOVER 1
#endif
#ifdef NO_RESTART_WAIT
#define RESTART HANDOVER
#else
#define RESTART FREED_AFTER
#endif

/* no slot, and sessions of h whose client went without a word */
#define NONE      SLOTS
#define ZOMBIE(h) (SLOTS + 1 + h)

/* states of a slot */
#define OFF    0 /* no run */
#define TAKING 1 /* the server has given it the lock; the answer is on its way */
#define BEGINS 2 /* has asked for the run to be recorded */
#define WAITS  3 /* for a predecessor's job to be surely paused */
#define RUNS   4 /* the job is started; it may be paused by the guard */
#define LOST   5 /* the job is paused; tries to take the lock again */
#define ASKS   6 /* has it again and has asked whether anybody ran in between */
#define ORPHAN 7 /* oncectl was killed, the guard lives */
byte st[SLOTS];

/* states of a job */
#define NOJOB  0
#define LIVE   1
#define PAUSED 2
byte job[SLOTS];

/* the lock's connection, as the client has it */
#define NOCONN 0
#define OPEN   1
#define CUT    2 /* terminated by the server; noticed within NOTICE */
#define DOWN   3 /* closed by the server; noticed who knows when */
byte conn[SLOTS];

/*
 * A request on the lock's connection is sent and executed in one step: executed
 * later it would only leave the server more patient. Its answer may take as long
 * as it likes.
 */
#define NOANS 0
#define YES   1
#define NO    2
byte ans[SLOTS];   /* the answer on its way */
/*
 * The lease: ticks until the holder's deadline, plus LATE. At LATE it has
 * expired, at 0 the pause can wait no longer. left is the lease that the answer
 * on its way will give: it counts from the sending of the request.
 */
#define FULL (DEADLINE + LATE)
byte lease[SLOTS];
byte left[SLOTS];
#define expired(h) (lease[h] <= LATE)

byte begin[SLOTS]; /* request to record the run: 0 none, 1 sent, 2 answered */
byte wt[SLOTS];    /* ticks to wait for the predecessor */
#ifdef NO_EXPIRY
bit  go[SLOTS];    /* oncectl has decided that the job starts or continues */
#endif
#ifdef POOLER
byte claimer = NONE; /* whose claim is on its way; one at a time is enough */
#ifdef LOOK_AT_LOCKS
bit  looked;       /* it has found its run's lock held */
inline seen(x) { looked = x }
#else
inline seen(x) { skip }
#endif
#endif
bit  silent[SLOTS];
bit  frozen[SLOTS];
#ifdef GUARD_COUNTS_SILENCE
byte quiet[SLOTS]; /* ticks of silence that the guard still allows, plus LATE */
#endif

/* what the server knows */
byte holder = NONE; /* the slot whose session has the lock */
byte age;           /* ticks since the holder's last packet */
byte fence = NONE;  /* the slot of the latest recorded run */
bit  unfinished;    /* that run has no recorded end */
bit  restarted;     /* the server was restarted since it began */
byte notBefore;     /* beside the fence: ticks until a job may start at all */

byte live; /* number of unpaused jobs: to be 0 or 1 */

/*
 * What must be possible, lest all this hold of a model in which nothing happens.
 * -DREACH=n makes it the error to be found.
 */
#define CLAIMED 1 /* a run waits for its predecessor, starts its job, loses its lock,
                     takes it again, and a claim of it commits */
#define ENDED   2 /* a paused job is ended, as another run has had the lock since */
#define KILLED  3 /* a guard kills the job of a killed oncectl */
#define HALTED  4 /* a guard pauses the job of a stopped oncectl, and it goes on later */
#ifdef REACH
bit waited[SLOTS];
bit retaken[SLOTS];
bit halted[SLOTS];
#define reached(n, what) assert(n != REACH || !(what))
inline hasWaited(h) { waited[h] = 1 }
inline hasRetaken(h) { retaken[h] = 1 }
inline hasHalted(h) { halted[h] = 1 }
inline unnote(h) { waited[h] = 0; retaken[h] = 0; halted[h] = 0 }
#else
#define reached(n, what) skip
inline hasWaited(h) { skip }
inline hasRetaken(h) { skip }
inline hasHalted(h) { skip }
inline unnote(h) { skip }
#endif

#ifdef ONLY_CLAIMS
inline goLive(h) { live++; job[h] = LIVE; heard(h) }
#else
inline goLive(h) { assert(live == 0); live++; job[h] = LIVE; heard(h) }
#endif
inline pause(h)  { if :: job[h] == LIVE -> live--; job[h] = PAUSED :: else fi }
inline kill(h)   { if :: job[h] == LIVE -> live-- :: else fi; job[h] = NOJOB }

inline commit(h) { assert(fence == h); reached(CLAIMED, waited[h] && retaken[h]) }

#ifdef GUARD_COUNTS_SILENCE
inline heard(h) { quiet[h] = FULL }
#else
inline heard(h) { skip }
#endif

#ifdef NO_EXPIRY
inline undecided(h) { go[h] = 0 }
#else
inline undecided(h) { skip }
#endif
inline forget(h) { ans[h] = NOANS; lease[h] = 0; left[h] = 0; wt[h] = 0; undecided(h) }

/* hangUp closes the lock's connection. A silent link keeps that from the server. */
inline hangUp(h) {
	if
	:: holder == h && silent[h] -> holder = ZOMBIE(h); age = 0
	:: holder == h && !silent[h] -> holder = NONE; age = 0
	:: else
	fi;
	conn[h] = NOCONN;
	forget(h)
}

/* over empties the slot. */
inline over(h) {
	hangUp(h); unnote(h);
	st[h] = OFF; silent[h] = 0; frozen[h] = 0
}

/* request sends one that finds the lock still there. */
#define connected(h) (holder == h && conn[h] == OPEN && !silent[h])
inline request(h) { age = 0; ans[h] = YES; left[h] = FULL }

inline answered(h) {
#ifdef FROM_ANSWER
	lease[h] = FULL; /* the lease counts from the answer's arrival */
#else
	lease[h] = left[h];
#endif
	ans[h] = NOANS; left[h] = 0;
	heard(h)
}

/* finish records the end of a run, if it can. Its job is dead by then. */
inline finish(h) {
	if
	:: fence == h && begin[h] != 1 && !silent[h] -> unfinished = 0; restarted = 0
	:: else
	fi
}

/* ends: what was asked of the second connection no longer matters, but for the
 * record of a run, which may still be on its way. */
inline ends(h) {
	finish(h);
#ifdef POOLER
	if
	:: begin[h] > 1 -> begin[h] = 0
	:: else
	fi;
#endif
	over(h)
}

/*
 * record is the transaction that makes h the owner of the fence and says how
 * long it has to wait. What a predecessor still had to wait is inherited: it may
 * have died, or finished, before its wait for its own predecessor was over.
 *
 * gone: on the host of h no process of the run that owns the fence is left, its
 * guard included. Then there is nothing to wait for.
 */
#ifdef GONE_BEFORE_GUARD
#define gone(h) (fence == h || (host(fence) == host(h) && \
	(st[fence] <= TAKING || st[fence] == ORPHAN || begin[fence] == 1)))
#else
#define gone(h) (fence == h || (host(fence) == host(h) && (st[fence] <= TAKING || begin[fence] == 1)))
#endif
inline record(h) {
	if
	:: !unfinished -> wt[h] = 0
	:: unfinished && fence != NONE && gone(h) -> wt[h] = 0
	:: else ->
		if
		:: restarted -> wt[h] = RESTART
		:: else -> wt[h] = HANDOVER
		fi
	fi;
#ifndef NO_INHERIT
	if
	:: wt[h] > notBefore -> notBefore = wt[h]
	:: else -> wt[h] = notBefore
	fi;
#endif
	fence = h; unfinished = 1; restarted = 0
}

#ifdef POOLER
#define underWay(h) (begin[h] != 0 || claimer == h)
#else
#define underWay(h) false
#endif
#define acts(h)     (!frozen[h] && st[h] != ORPHAN && st[h] != OFF)
#define in(h, s)    (acts(h) && st[h] == s)
#define arrived(h)  (ans[h] == YES && !silent[h])
#define lockGone(h) (conn[h] >= CUT || expired(h))
#ifdef POOLER /* the second connection leaves the lock's own free for heartbeats */
#define beats(h)    (in(h, BEGINS) || in(h, WAITS) || in(h, RUNS) || in(h, ASKS))
#else
#define beats(h)    (in(h, WAITS) || in(h, RUNS))
#endif

#ifdef NO_FENCE
#define fenced(h) false
#else
#define fenced(h) (fence != h)
#endif

/* loses: the job is paused. A connection that is merely silent is kept. */
inline loses(h) {
	pause(h);
	if
	:: conn[h] >= CUT -> hangUp(h)
	:: else -> forget(h)
	fi;
#ifdef POOLER
	begin[h] = 0;
#endif
	st[h] = LOST
}

inline starts(h) {
	goLive(h); st[h] = RUNS
}

inline goesOn(h) {
#ifdef POOLER
	begin[h] = 0;
#endif
	hasRetaken(h);
	st[h] = RUNS
}

proctype oncectl(byte h) {
	do
	/* A new run asks for the lock. A busy lock changes nothing, so only the
	   answer "you have it" is here. What the slot's run before had under way
	   must be over, as the model tells runs apart by their slot. */
	:: d_step { st[h] == OFF && !underWay(h) && holder == NONE ->
		st[h] = TAKING; conn[h] = OPEN; holder = h; request(h) }

	/* It has the lock: record the run. */
#ifdef POOLER
	:: d_step { in(h, TAKING) && arrived(h) -> answered(h); st[h] = BEGINS; begin[h] = 1 }
#else
	:: d_step { in(h, TAKING) && arrived(h) && connected(h) ->
		answered(h); st[h] = BEGINS; request(h); record(h) }
#endif

	/* Recorded: the run owns the fence. */
#ifndef POOLER
	:: d_step { in(h, BEGINS) && arrived(h) -> answered(h); st[h] = WAITS }
#else
	:: d_step { in(h, BEGINS) && begin[h] == 2 && !silent[h] -> begin[h] = 0; st[h] = WAITS }
#endif

	/* The wait is over: start the job. The order to the guard says until when
	   it is good, as oncectl may be stopped between decision and deed. */
#ifdef NO_EXPIRY
	:: d_step { in(h, WAITS) && wt[h] == 0 && !expired(h) && !go[h] -> go[h] = 1 }
	:: d_step { in(h, WAITS) && go[h] -> undecided(h); starts(h) }
#else
	:: d_step { in(h, WAITS) && wt[h] == 0 && !expired(h) -> starts(h) }
#endif

	/* heartbeats */
	:: d_step { beats(h) && connected(h) && ans[h] == NOANS && lease[h] <= FULL - HEARTBEAT ->
		request(h) }
	:: d_step { beats(h) && arrived(h) -> answered(h) }

	/* The guard had paused the job of a stopped oncectl, which goes on now; or
	   the lock was had again. A heartbeat was answered since: continue. */
#ifdef NO_EXPIRY
	:: d_step { in(h, RUNS) && job[h] == PAUSED && !expired(h) && !go[h] -> go[h] = 1 }
	:: d_step { in(h, RUNS) && job[h] == PAUSED && go[h] -> undecided(h); goLive(h) }
#else
	:: d_step { in(h, RUNS) && job[h] == PAUSED && !expired(h) -> reached(HALTED, halted[h]); goLive(h) }
#endif

	/* The lock is lost: its connection is closed, or the deadline has passed.
	   Before the job has begun that ends the run. */
	:: d_step { acts(h) && st[h] >= BEGINS && st[h] <= WAITS && lockGone(h) -> ends(h) }
	:: d_step { in(h, RUNS) && job[h] != NOJOB && lockGone(h) -> loses(h) }

	/* Find the old connection alive and the lock still there, or give it up and
	   take the lock anew. */
	:: d_step { in(h, LOST) && connected(h) && ans[h] == NOANS -> request(h) }
	:: d_step { in(h, LOST) && conn[h] != NOCONN && !(connected(h) && ans[h] == YES) -> hangUp(h) }
	:: d_step { in(h, LOST) && conn[h] == NOCONN && !silent[h] && holder == NONE ->
		conn[h] = OPEN; holder = h; request(h) }

	/* It has the lock. Did anybody run in between? */
#ifndef POOLER
	:: d_step { in(h, LOST) && arrived(h) && connected(h) ->
		answered(h); st[h] = ASKS; request(h);
		if
		:: fenced(h) -> ans[h] = NO
		:: else
		fi }
	:: d_step { in(h, ASKS) && arrived(h) -> answered(h); goesOn(h) }
#else
	:: d_step { in(h, LOST) && arrived(h) -> answered(h); st[h] = ASKS }
	:: d_step { in(h, ASKS) && begin[h] == 0 && !silent[h] -> begin[h] = (fenced(h) -> 3 : 2) }
	:: d_step { in(h, ASKS) && begin[h] == 2 && !silent[h] -> goesOn(h) }
#endif
	:: d_step { in(h, ASKS) && lockGone(h) -> loses(h) }
	/* somebody ran, or the grace is over, or a signal */
	:: d_step { (in(h, LOST) || in(h, ASKS)) -> reached(ENDED, fence != h); kill(h); ends(h) }

	/* no answer, or a signal before the job has begun */
	:: d_step { acts(h) && st[h] <= WAITS -> ends(h) }
	/* the job has ended: record it, then release */
	:: d_step { acts(h) && st[h] >= RUNS && job[h] == NOJOB -> ends(h) }
	od
}

proctype guard(byte h) {
	do
#ifndef NO_GUARD_PAUSE
#ifdef GUARD_COUNTS_SILENCE
	/* it measures how long oncectl has said nothing */
	:: d_step { st[h] == RUNS && job[h] == LIVE && frozen[h] && quiet[h] <= LATE -> pause(h) }
#else
	/* oncectl tells the guard the lease with every answered heartbeat, so that
	   the guard pauses at the same deadline when oncectl cannot */
	:: d_step { st[h] == RUNS && job[h] == LIVE && expired(h) -> pause(h); hasHalted(h) }
#endif
#endif
#ifdef NO_GUARD
	:: d_step { st[h] == ORPHAN && job[h] == NOJOB -> over(h) }
#else
	/* oncectl is gone: the job is killed first, then the descriptor goes */
	:: d_step { st[h] == ORPHAN -> reached(KILLED, job[h] == LIVE); kill(h); over(h) }
#endif
	od
}

proctype jobs(byte h) {
	do
	:: d_step { job[h] == LIVE -> kill(h) } /* ends by itself */
#ifdef POOLER
	:: d_step { job[h] == LIVE && st[h] == RUNS && !frozen[h] && claimer == NONE -> claimer = h }
#else
	/* on the lock's own connection: executed while the lock is held, or never */
	:: d_step { job[h] == LIVE && st[h] == RUNS && !frozen[h] && connected(h) -> commit(h) }
#endif
	od
}

#ifdef POOLER
/* secondConnection(h) brings what travels beside the lock, however late. */
proctype secondConnection(byte h) {
	do
	/* It takes the fence's row first and then looks whether its own session still
	   has the lock, so that whoever has the lock next is recorded after it. */
#ifdef LATE_BEGIN
	:: d_step { begin[h] == 1 ->
#else
	:: d_step { begin[h] == 1 && (holder == h || holder == ZOMBIE(h)) ->
#endif
		record(h);
		if
		:: st[h] == BEGINS -> begin[h] = 2
		:: else -> begin[h] = 0; wt[h] = 0 /* nobody waits for the answer any more */
		fi }
	:: d_step { begin[h] == 1 && st[h] != BEGINS -> begin[h] = 0 } /* refused, or lost */
#ifdef LOOK_AT_LOCKS
	:: d_step { claimer == h && holder == h && !looked -> seen(1) }
	:: d_step { claimer == h && looked -> seen(0); claimer = NONE; commit(h) }
#else
#ifdef NO_FENCE
	:: d_step { claimer == h -> claimer = NONE; commit(h) }
#else
	/* the claim holds the fence's row share-locked until it has committed, so
	   that look and commit are one step */
	:: d_step { claimer == h && fence == h -> claimer = NONE; commit(h) }
#endif
#endif
	:: d_step { claimer == h -> claimer = NONE; seen(0) } /* refused, or lost */
	od
}
#endif

/* A second fault in the same instant: see TWO FAULTS above. */
#ifdef TWO_FAULTS
#define mayFail(h) true
#define mayCut(h)  true
#define mayRestart true
#else
#define mayFail(h) (conn[h] != CUT)
#define mayCut(h)  (!silent[h] && !frozen[h] && st[h] != ORPHAN)
#if SLOTS == 2
#define mayRestart (st[0] != ORPHAN && st[1] != ORPHAN)
#else
#define mayRestart (st[0] != ORPHAN && st[1] != ORPHAN && st[2] != ORPHAN)
#endif
#endif

proctype faults(byte h) {
	do
	:: d_step { st[h] != OFF && !silent[h] && mayFail(h) -> silent[h] = 1 }
	:: d_step { silent[h] -> silent[h] = 0 }
	:: d_step { st[h] != OFF && st[h] != ORPHAN && !frozen[h] && mayFail(h) -> frozen[h] = 1 }
	:: d_step { frozen[h] -> frozen[h] = 0 }
	/* killed, perhaps while it is stopped, or its job paused */
	:: d_step { st[h] != OFF && st[h] != ORPHAN && mayFail(h) ->
		frozen[h] = 0;
		if
		:: job[h] == NOJOB -> over(h)
		:: else ->
#ifdef NO_GUARD
			hangUp(h); /* the kernel closes what oncectl had open */
#else
			forget(h);
#endif
			st[h] = ORPHAN
		fi }
	/* pg_terminate_backend of the lock's session */
	:: d_step { holder == h && conn[h] == OPEN && mayCut(h) ->
		holder = NONE; age = 0; conn[h] = CUT }
	od
}

/* unplug closes the server's side of whatever connection has the lock. */
inline unplug() {
	if
	:: holder < NONE && conn[holder] == OPEN -> conn[holder] = DOWN
	:: else
	fi;
	holder = NONE; age = 0
}

proctype server() {
	do
	/* the lock of a silent holder is freed */
	:: d_step { holder != NONE && (holder > NONE || age >= FREED_AFTER) -> unplug() }
	/* a restart */
	:: d_step { holder != NONE && mayRestart -> unplug(); restarted = unfinished }
	od
}

/* overdue: what must be done before time may pass */
#ifdef NO_GUARD_PAUSE
#define latePause(h) (st[h] == RUNS && job[h] == LIVE && lease[h] == 0 && !frozen[h])
#else
#ifdef GUARD_COUNTS_SILENCE
#define latePause(h) (st[h] == RUNS && job[h] == LIVE && \
	((!frozen[h] && lease[h] == 0) || (frozen[h] && quiet[h] == 0)))
#else
#define latePause(h) (st[h] == RUNS && job[h] == LIVE && lease[h] == 0)
#endif
#endif
#define lateNotice(h) (conn[h] == CUT && !frozen[h] && !silent[h] && st[h] != ORPHAN)
#ifdef NO_GUARD
#define lateKill(h) false
#else
#define lateKill(h) (st[h] == ORPHAN)
#endif
#define overdue(h) (latePause(h) || lateNotice(h) || lateKill(h))
#if SLOTS == 2
#define anyOverdue (overdue(0) || overdue(1))
#else
#define anyOverdue (overdue(0) || overdue(1) || overdue(2))
#endif

#define down(x) x = (x > 0 -> x - 1 : 0)

inline passes(h) {
	if
	:: wt[h] > 0 -> hasWaited(h)
	:: else
	fi;
	down(lease[h]); down(left[h]); down(wt[h]);
	if
	:: expired(h) && job[h] != LIVE -> lease[h] = 0 /* one state fewer */
	:: else
	fi;
#ifdef GUARD_COUNTS_SILENCE
	if
	:: frozen[h] -> down(quiet[h])
	:: !frozen[h] && st[h] == RUNS -> quiet[h] = FULL /* a word every tick */
	:: else -> quiet[h] = 0
	fi
#endif
}

proctype clock() {
	do
	:: d_step { !anyOverdue && age < FREED_BY ->
		passes(0); passes(1);
#if SLOTS > 2
		passes(2);
#endif
		down(notBefore);
		if
		:: holder >= NONE -> age = 0
#ifndef POOLER
		:: holder < NONE && !silent[holder] -> age = 0 /* the kernel answers keepalives */
#endif
		:: else -> age++
		fi }
	od
}

init {
	byte h;
	atomic {
		for (h : 0 .. SLOTS - 1) {
			run oncectl(h); run guard(h); run jobs(h); run faults(h);
#ifdef POOLER
			run secondConnection(h)
#endif
		}
		h = 0;
		run server(); run clock()
	}
}
