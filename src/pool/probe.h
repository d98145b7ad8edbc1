/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * USDT probes, for systemtap, bpftrace and perf: provider sgpool. They cost a no-op instruction each.
 * Without systemtap's header they are not there.
 *
 *      grow(pool, size, chunks)       chunks made; 0: it failed
 *      trim(pool, size, chunks)       chunks given back
 *      wait(pool, size, chunks)       somebody starts to wait
 *      exhausted(pool, size, chunks)  a get found too few
 *      doorbell(ep, requests, posted) requests go to the device, of so many that it then has
 *      refill(queue, taken, offered)  receives went to the device, of an endpoint or shared
 *      dry(queue, size, chunks)       a pool had too little for a receive
 *      refused(ep, errno, posted)     a post was refused
 *      failed(ep, status, vendor_err) a completion that is not a success is handed out
 */
#ifndef SGP_PROBE_H
#define SGP_PROBE_H

#include "sgp_config.h"

#if SGP_HAVE_SDT
#include <sys/sdt.h>
#define SGP_PROBE3(name, a, b, c) DTRACE_PROBE3(sgpool, name, a, b, c)
#else
#define SGP_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
