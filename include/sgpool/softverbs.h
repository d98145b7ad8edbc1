/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softverbs: an RDMA device in software, for one process or several: softverbs(7).
 *
 * libsgpool-softverbs exports the ibv_* and rdma_* symbols and is linked instead of libibverbs and
 * librdmacm (or preloaded). A program needs nothing of this header to run on it: there is one
 * device, "soft0", which owns the loopback addresses and those of the host. This header is for
 * tests: it makes devices, picks whose behaviour they show, makes calls fail, and counts what is
 * alive.
 *
 * Device number n (from 0, the lowest that is free) answers on port p at 127.0.n.p; device 0
 * takes every other address of the host as well. All functions may be called from any thread. Those
 * that return int give 0, or -1 with errno.
 */
#ifndef SGPOOL_SOFTVERBS_H
#define SGPOOL_SOFTVERBS_H

#include <stdint.h>

#include "sgpool/export.h"

SGP_BEGIN_DECLS

/* What sv_live and sv_total count. */
enum sv_counter {
	SV_CONTEXTS,
	SV_PDS,
	SV_MRS,
	SV_MWS,
	SV_CHANNELS,
	SV_CQS,
	SV_QPS,
	SV_SRQS,
	SV_AHS,
	SV_CM_CHANNELS,
	SV_CM_IDS,
	SV_CM_EVENTS, /* fetched and not acknowledged */
	SV_NCOUNTERS
};

/* How many exist now; what the connection manager opened for itself is not counted. */
SGP_API int sv_live(enum sv_counter what);
/* How many were ever made: sv_total(SV_MRS) counts registrations. */
SGP_API uint64_t sv_total(enum sv_counter what);

/* Adds a device that behaves like `persona` ("soft", "rxe", "siw", ...) with 1 to 4 ports. The
 * first call that needs devices makes "soft0" if there never was one. EEXIST, EINVAL, ENOMEM, ENOSPC. */
SGP_API int sv_device_add(const char *name, const char *persona, int ports);
/* Adds the devices that a text describes: NAME=PERSONA or NAME=PERSONA:PORTS, divided by commas or
 * spaces. The environment variable SGP_SOFTVERBS_DEVICES is one; it is read when a device is first
 * needed. On an error *wrong, if given, is where it went wrong; those before it were added. */
SGP_API int sv_devices(const char *text, const char **wrong);

/* Takes a device away, as when its card is pulled: DEVICE_FATAL on its contexts, DEVICE_REMOVAL on
 * its ids, its queue pairs in error, and nothing new can be made. Destroying works. EINVAL: no
 * such. */
SGP_API int sv_device_remove(const char *name);
/* Takes a port's link down or up: PORT_ERR or PORT_ACTIVE, and requests wait for the link till
 * their retries are over. EINVAL: no such device or port. */
SGP_API int sv_port_set(const char *name, int port, int up);

/* Sets a limit or a habit of a device by its name, for what is made from now on: "max_mr",
 * "max_sge", "max_inline", "extended" ... EINVAL: no such device or name. */
SGP_API int sv_set(const char *device, const char *what, uint64_t value);

/* Makes one call fail: of the calls from now on, number `nth` (from 0) of `call`, the name without
 * its prefix ("reg_mr", "post_send", "create_id"; "any" counts all of them), with `err`. One fault
 * per name is pending at a time, a new one replaces it; err 0 takes it back. Returns 0, or
 * -1/EINVAL for an unknown name. */
SGP_API int sv_fail_nth(const char *call, uint64_t nth, int err);
/* Whether the fault set for `call` has struck since it was set: for sweeps "fail at call N, N = 0,
 * 1, 2 ... until nothing fails any more". */
SGP_API int sv_failed(const char *call);
/* How often `call` was made. */
SGP_API uint64_t sv_calls(const char *call);
/*
 * Adds faults, written in a small language; statements are divided by ';' or a newline, and '#'
 * begins a comment. softverbs(7) has all of it.
 *
 *	reg_mr fail ENOMEM at 3            the fourth registration from now on
 *	reg_mr fail ENOMEM above 65536     each one of more bytes
 *	post_send fail ENOMEM chance 0.01  one in a hundred, by the seed
 *	post_send midway at 0              the chain stops after its first request: 0 is returned
 *	post_send doorbell EIO at 0        all is queued, yet it fails and leaves bad_wr alone
 *	completion drop at 5               it never comes
 *	completion delay 3 every 10        it comes three polls later
 *	completion duplicate at 0          or echo N, swap, status N, opcode N
 *	message kill at 100                a link that breaks: retries exceeded
 *	message late 20 every 3            a WRITE's bytes come 20 ms after its completion
 *	any down soft0 at 50               the link, at the fifty-first call of all
 *	message remove soft0 at 7          the whole device
 *	seed 42
 *	set soft0 keep_cqes 1              as sv_set
 *
 * Conditions are at N (from 0), every N, above BYTES, chance P, times N; all given must hold. The
 * same text and the same calls give the same run. Also read from the environment variable
 * SGP_SOFTVERBS_FAULTS when softverbs starts. -1/EINVAL with *wrong, if given, the first word that
 * was not understood.
 */
SGP_API int sv_faults(const char *text, const char **wrong);
/* Takes back all faults. */
SGP_API void sv_faults_clear(void);

/*
 * Strict mode tells what no device can know, in sentences: a buffer changed between post and poll,
 * a region deregistered or memory unmapped while posted, sinks that overlap, objects destroyed in
 * the wrong order, events not acknowledged. sv_strict switches it on or off and forgets the
 * sentences; with SGP_SOFTVERBS_STRICT=1 in the environment it is on from the start, the first
 * sentence aborts the program, and what is left at exit makes it fail with status 66.
 */
SGP_API void sv_strict(int on);
SGP_API unsigned int sv_strict_count(void);
/* Number i, from 0, of the first 32; NULL: none. */
SGP_API const char *sv_strict_sentence(unsigned int i);

/* Time for RNR and retry timers. It is the system's monotonic clock until the first
 * sv_clock_advance; from then on it stands still and moves only by these calls. */
SGP_API void sv_clock_advance(uint64_t ns);

SGP_END_DECLS

#endif
