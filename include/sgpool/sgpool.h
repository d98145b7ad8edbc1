/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool: registered buffers for RDMA that are owned until their completion is reaped.
 *
 * This header brings in the whole library: the pool (pool.h, import.h), the scatter-gather list (sgl.h), and
 * the queues (post.h) with what stands on them (window.h, flow.h). Functions return 0, or -1 with
 * errno; constructors return NULL with errno; sgp_errmsg() tells what to do about it.
 */
#ifndef SGPOOL_SGPOOL_H
#define SGPOOL_SGPOOL_H

#include <sgpool/export.h>
#include <sgpool/version.h>
#include <sgpool/pool.h>
#include <sgpool/check.h>
#include <sgpool/import.h>
#include <sgpool/sgl.h>
#include <sgpool/post.h>
#include <sgpool/srq.h>
#include <sgpool/window.h>
#include <sgpool/flow.h>

SGP_BEGIN_DECLS

/*
 * The calling thread's last error as a sentence that says what to do about it.
 *
 * Returns a string that stands until the next failing sgpool call of this thread; empty before the
 * first. It belongs to the library. Thread-safe: each thread has its own.
 */
SGP_API const char *sgp_errmsg(void);

/* The version of the library that is running, as SGP_VERSION was when it was built. */
SGP_API const char *sgp_version(void);

SGP_END_DECLS

#endif
