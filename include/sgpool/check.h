/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checked pools: mistakes that would corrupt data in silence are found and named.
 *
 * A pool is checked when it was made with SGP_POOL_CHECKED, or when SGP_CHECK is in the environment:
 *
 *      SGP_CHECK=1      every pool of the process is checked
 *      SGP_CHECK=abort  and the first finding is written to stderr and ends the process by abort(3)
 *      SGP_CHECK=0      no pool is, whatever its flags
 *
 * What is found:
 *
 *      a chunk put twice, or a handle put, posted or referenced that is no chunk, or whose pool is
 *      gone: the call does nothing, is -1 with ESTALE where it returns something, and NULL where
 *      it returns a chunk
 *      memory of a chunk written to after its last put: seen when the chunk is taken again, when its
 *      region is given back, and by sgp_check_verify()
 *      memory that a post sends from, written to before its completion: seen when that is polled
 *      a chunk that a post would have the device write, while another post has it: -1 with EBUSY
 *      chunks that are not given back: sgp_pool_destroy() names who took them
 *
 * Each finding (but for the last two, which are plain errors) is a sentence for sgp_errmsg(), counts
 * in sgp_pool_stats.findings, and goes to the handler, if there is one.
 *
 * What it costs: a checked pool has no magazines, so that every get and put takes a lock; each put
 * fills the chunk with a pattern and each get compares it; each put and get notes its callers;
 * and chunks are taken again as late as possible. Programs pay one branch a call for it while no pool
 * is checked. Memory that peers may write (SGP_POOL_REMOTE_WRITE and _ATOMIC) is not compared while it
 * is posted: their writes are not told from the program's.
 *
 * With a library and a program built with AddressSanitizer, free chunks are poisoned, checked or not:
 * a stray access is reported where it happens. Under valgrind(1) all pools announce their chunks to
 * memcheck, unless SGP_CHECK=0. Memory that peers may reach is left alone by both.
 */
#ifndef SGPOOL_CHECK_H
#define SGPOOL_CHECK_H

#include <stdint.h>

#include <sgpool/pool.h>

SGP_BEGIN_DECLS

enum sgp_finding_kind {
	SGP_FOUND_PUT_TWICE = 1,   /* a reference given back to a chunk that nobody held */
	SGP_FOUND_NOT_HELD,        /* a chunk used, otherwise than by a put, that nobody held */
	SGP_FOUND_STALE,           /* a handle whose pool, or whose region, is gone */
	SGP_FOUND_FOREIGN,         /* a handle that never was a chunk */
	SGP_FOUND_USE_AFTER_PUT,   /* a free chunk's memory was written to */
	SGP_FOUND_WRITE_IN_FLIGHT, /* memory was written to while a post sent from it */
};

/* Return addresses, the innermost first; the library's own are left out where they can be told. */
struct sgp_callers {
	void *const *address; /* [n], for backtrace_symbols(3) and its like */
	int n;                /* 0: not known */
};

struct sgp_finding {
	enum sgp_finding_kind kind;
	const char *sentence;         /* as sgp_errmsg() gives it */
	const void *chunk;            /* the handle */
	struct sgp_pool *pool;        /* that it belongs to; NULL: none that stands */
	struct sgp_callers got, put;  /* who took the chunk last, and who gave it back */
};

/*
 * Have handler called for each finding, by the thread that found it; NULL: nobody. One for the whole
 * process. It may be called while locks of queues are held: it must not call sgpool, but for
 * sgp_errmsg(). The finding stands during the call only. Thread-safe.
 */
SGP_API void sgp_check_set_handler(void (*handler)(const struct sgp_finding *finding, void *arg),
				   void *arg);

/* Findings so far, in all pools of the process and outside of them. Thread-safe. */
SGP_API uint64_t sgp_check_findings(void);

/*
 * Compare all free chunks of a checked pool with the pattern now.
 *
 * Returns 0, also for a pool that is not checked; -1 with ESTALE when a chunk was written to. Chunks
 * must not be got and put meanwhile.
 */
SGP_API int sgp_check_verify(struct sgp_pool *pool);

/* A chunk that somebody holds. */
struct sgp_held {
	struct sgp_chunk *chunk;
	uint32_t references;
	int posted;             /* whether a queue has it */
	struct sgp_callers got; /* who took it */
};

/*
 * Tell each chunk of a checked pool that is held, in the order of the memory, until told() returns
 * something else than 0. told() must not call sgpool. Chunks must not be got and put meanwhile.
 *
 * Returns what told() returned last; 0 when none is held, or the pool is not checked.
 */
SGP_API int sgp_check_held(struct sgp_pool *pool,
			   int (*told)(const struct sgp_held *held, void *arg), void *arg);

/*
 * Say that the caller is about to write to a chunk of which he has a reference.
 *
 * Returns 0; -1 with EBUSY while a queue has the chunk posted (it may be read or written by the device
 * at any moment, whatever room the queue has), ESTALE when the handle is not good, or EINVAL without
 * one. For checked pools; 0 for others. Thread-safe.
 */
SGP_API int sgp_check_claim(struct sgp_chunk *chunk);

SGP_END_DECLS

#endif
