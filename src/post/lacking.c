/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What stands in for files that need more than every system's verbs have (cmake/features.cmake).
 *
 * Where libibverbs knows no extended completion queues there are none that tell the time, and where it
 * knows no memory windows none can be made; so that nothing else here is ever reached. It all says
 * EOPNOTSUPP, or EINVAL for a window that cannot be one.
 */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/mode.h"
#include "post/ep.h"
#include "post/window.h"
#include "sgp_config.h"

#if !SGP_HAVE_CQ_EX
int sgp_cq_make_ex(struct sgp_cq *cq, struct ibv_context *verbs, const struct sgp_cq_attr *attr)
{
	(void)cq, (void)verbs, (void)attr;
	return sgp_fail(EOPNOTSUPP, "this system's libibverbs has no completions with a time");
}

int sgp_cq_poll_ex_locked(struct sgp_cq *cq, int n, struct ibv_wc *raw)
{
	(void)cq, (void)n, (void)raw;
	return -EOPNOTSUPP;
}
#endif

#if !SGP_HAVE_WINDOWS
static int no_window(void)
{
	if (sgp_check_fork())
		return -1;
	return sgp_fail(EINVAL, "this system's libibverbs has no memory windows of type 2");
}

struct sgp_window *sgp_window_create(struct sgp_ep *ep)
{
	(void)ep;
	if (sgp_check_fork())
		return NULL;
	return sgp_fail_null(EOPNOTSUPP,
			     "this system's libibverbs has no memory windows of type 2");
}

int sgp_window_destroy(struct sgp_window *window)
{
	(void)window;
	return no_window();
}

int sgp_post_bind(struct sgp_ep *ep, void *context, struct sgp_window *window,
		  struct sgp_chunk *chunk, size_t offset, size_t length, unsigned int access,
		  int flags)
{
	(void)ep, (void)context, (void)window, (void)chunk, (void)offset, (void)length;
	(void)access, (void)flags;
	return no_window();
}

int sgp_post_invalidate(struct sgp_ep *ep, void *context, struct sgp_window *window, int flags)
{
	(void)ep, (void)context, (void)window, (void)flags;
	return no_window();
}

uint32_t sgp_window_rkey(const struct sgp_window *window)
{
	(void)window;
	return 0;
}

int sgp_window_is_bound(const struct sgp_window *window)
{
	(void)window;
	return 0;
}

void sgp_window_ended_locked(const struct sgp_slot *slot)
{
	(void)slot;
}

void sgp_window_invalidated_locked(struct sgp_ep *ep, uint32_t rkey)
{
	(void)ep, (void)rkey;
}
#endif
