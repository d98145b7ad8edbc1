/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: an rkey for one slice of one chunk, for the peer of one queue pair.
 *
 * The rkey of a chunk (sgp_chunk_rkey()) opens its whole region to the peer; a window opens a slice of
 * it and can be taken back. From the bind on the window holds a reference to the chunk: the chunk
 * cannot go home, whoever else lets go of it, before the rkey has been invalidated (here, by
 * sgp_post_invalidate(), or there, by a SEND_WITH_INV) or the window is destroyed.
 *
 *      free --sgp_post_bind()--> bound --sgp_post_invalidate(), SEND_WITH_INV--> free
 *
 * Windows are of type 2, and the pool must have SGP_POOL_WINDOWS. The endpoint must be connected with
 * rights for what the window allows, as rdma_connect(3) and rdma_accept(3) give them.
 *
 * Threads: a window has one owner.
 */
#ifndef SGPOOL_WINDOW_H
#define SGPOOL_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include <sgpool/post.h>

SGP_BEGIN_DECLS

struct sgp_window;

/*
 * Make a window for endpoints of ep's protection domain; it may be used on ep only.
 *
 * Returns the window, to be ended by sgp_window_destroy(); NULL with EOPNOTSUPP where the device has
 * no type 2 windows, EINVAL, ENOMEM, or the errno of ibv_alloc_mw(3).
 */
SGP_API struct sgp_window *sgp_window_create(struct sgp_ep *ep);

/*
 * End it: its rkey is invalid from here on, and what it held is dropped.
 *
 * Returns 0; -1 with EBUSY while a bind or an invalidation is posted, or the errno of
 * ibv_dealloc_mw(3); nothing changed. It may be done before and after its endpoint's close, but before
 * its destruction.
 */
SGP_API int sgp_window_destroy(struct sgp_window *window);

/*
 * Post the binding of length bytes of chunk from offset on; one reference of the caller's moves into
 * the window. The rkey (sgp_window_rkey()) may be sent to the peer in a later post on the same
 * endpoint at once: the queue pair keeps the order.
 *
 * access: IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC. flags: IBV_SEND_SIGNALED, IBV_SEND_FENCE.
 * Returns 0: the window is bound. If the completion (opcode IBV_WC_BIND_MW) is an error, it keeps its
 * hold until it's destroyed, as the peer may have the key all the same. -1 with errno, window and
 * reference as they were: as sgp_post(), and
 *   EBUSY   the window is bound, or the completion of its bind has not been polled
 *   EACCES  the pool does not allow windows
 *   EFAULT  the slice leaves the chunk
 *   EINVAL  a length of 0, other rights than these, or the window of another endpoint
 */
SGP_API int sgp_post_bind(struct sgp_ep *ep, void *context, struct sgp_window *window,
			  struct sgp_chunk *chunk, size_t offset, size_t length,
			  unsigned int access, int flags);

/*
 * Post the invalidation of the window's rkey. When it has completed (opcode IBV_WC_LOCAL_INV) the
 * window is free and its hold dropped; if it fails, the window keeps its hold until it's destroyed.
 *
 * Returns and errors as sgp_post(); EINVAL when the window is not bound.
 */
SGP_API int sgp_post_invalidate(struct sgp_ep *ep, void *context, struct sgp_window *window,
				int flags);

/* The key for the peer: of the present binding, or the last one. */
SGP_API uint32_t sgp_window_rkey(const struct sgp_window *window);

/* Whether the window holds a chunk. */
SGP_API int sgp_window_is_bound(const struct sgp_window *window);

SGP_END_DECLS

#endif
