/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring (see uring.h). An operation's tag is its request with, in the low bits, which slice of the
 * list it moves; or a watch, marked as such.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "uring.h"

enum {
	ENTRIES = 1024,
	BATCH = 64, /* completions looked at at once */
	TAG_MASK = 63,
	TAG_WHOLE = 62, /* not a slice: the operation succeeds or fails as one */
	TAG_WATCH = 63,
};
_Static_assert(REQUEST_CHUNKS < TAG_WHOLE, "a slice's number fits the tag");

int uring_open(struct uring *u)
{
	const unsigned int flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE,
		IORING_SETUP_CQSIZE,
	};
	int ret = -EINVAL;

	*u = (struct uring){0};
	for (size_t i = 0; ret == -EINVAL && i < sizeof flags / sizeof flags[0]; i++) {
		struct io_uring_params params = {.flags = flags[i], .cq_entries = 8 * ENTRIES};

		ret = io_uring_queue_init_params(ENTRIES, &u->ring, &params);
	}
	if (ret) {
		fprintf(stderr, "sgpool-nvmf-target: no io_uring: %s%s\n", strerror(-ret),
			ret == -ENOMEM ? "; RLIMIT_MEMLOCK may be too low, see 'sgpool doctor'"
				       : "");
		return -1;
	}
	u->fixed = io_uring_register_buffers_sparse(&u->ring, URING_BUFFERS) == 0;
	return 0;
}

void uring_close(struct uring *u)
{
	io_uring_queue_exit(&u->ring);
}

/* ---- fixed buffers ---- */

static int set_buffer(struct uring *u, int i, void *addr, size_t bytes)
{
	const struct iovec iov = {.iov_base = addr, .iov_len = bytes};
	int ret = io_uring_register_buffers_update_tag(&u->ring, (unsigned int)i, &iov, NULL, 1);

	if (ret < 0)
		return -ret;
	u->buffer[i].addr = (uintptr_t)addr;
	u->buffer[i].bytes = bytes;
	return 0;
}

int uring_region_add(void *arg, const struct sgp_region_info *region, void **cookie)
{
	struct uring *u = arg;
	int i = 0, err;

	*cookie = NULL;
	if (!u->fixed)
		return 0;
	while (i < URING_BUFFERS && u->buffer[i].bytes)
		i++;
	err = i == URING_BUFFERS ? ENOSPC : set_buffer(u, i, region->addr, region->bytes);
	if (err == ENOMEM)
		fprintf(stderr, "sgpool-nvmf-target: the kernel counts memory twice that is both "
				"registered with a "
				"device and a fixed buffer of io_uring: RLIMIT_MEMLOCK (ulimit -l) "
				"must be twice --memory "
				"and a little more\n");
	if (err) {
		errno = err;
		return -1;
	}
	if (i >= u->buffers)
		u->buffers = i + 1;
	*cookie = (void *)(uintptr_t)(i + 1);
	return 0;
}

void uring_region_remove(void *arg, const struct sgp_region_info *region, void *cookie)
{
	struct uring *u = arg;
	int i = (int)(uintptr_t)cookie - 1;

	(void)region;
	if (i >= 0)
		(void)set_buffer(u, i, NULL, 0);
}

/* The fixed buffer that the bytes lie in, or -1. */
static int find_buffer(const struct uring *u, uint64_t addr)
{
	for (int i = 0; i < u->buffers; i++)
		if (addr - u->buffer[i].addr < u->buffer[i].bytes)
			return i;
	return -1;
}

/* ---- operations ---- */

/* The kernel takes all that is there at a submit; without memory it may say EAGAIN or EBUSY. */
static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe && io_uring_submit(&u->ring) > 0)
		sqe = io_uring_get_sqe(&u->ring);
	return sqe;
}

static void set_tag(struct io_uring_sqe *sqe, const void *owner, unsigned int what)
{
	io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)owner | what);
}

/* Nothing could be begun: it ends as a failure, but from the loop as all others do. */
static void refuse(struct request *r)
{
	if (!r->io_error)
		r->io_error = EAGAIN;
}

static void begin_slice(struct uring *u, struct request *r, int i)
{
	const struct ibv_sge *sge = &r->io_list->sge[i];
	const uint32_t done = r->io_done[i];
	const uint64_t addr = sge->addr + done;
	const uint32_t length = sge->length - done;
	const int index = find_buffer(u, addr);
	struct io_uring_sqe *sqe = get_sqe(u);
	uint64_t at = r->io_at + done;

	for (int j = 0; j < i; j++)
		at += r->io_list->sge[j].length;
	if (!sqe) {
		refuse(r);
		return;
	}
	if (index < 0 && r->io_write)
		io_uring_prep_write(sqe, r->io_fd, (void *)(uintptr_t)addr, length, at);
	else if (index < 0)
		io_uring_prep_read(sqe, r->io_fd, (void *)(uintptr_t)addr, length, at);
	else if (r->io_write)
		io_uring_prep_write_fixed(sqe, r->io_fd, (void *)(uintptr_t)addr, length, at,
					  index);
	else
		io_uring_prep_read_fixed(sqe, r->io_fd, (void *)(uintptr_t)addr, length, at, index);
	set_tag(sqe, r, (unsigned int)i);
	r->io_pending++;
}

static void begin_list(struct uring *u, struct request *r, int fd, const struct sgp_sgl *list,
		       uint64_t at, bool write)
{
	r->io_fd = fd;
	r->io_list = list;
	r->io_at = at;
	r->io_write = write;
	r->io_error = 0;
	memset(r->io_done, 0, sizeof r->io_done);
	for (int i = 0; i < list->num_sge; i++)
		begin_slice(u, r, i);
	if (!r->io_pending)
		r->step(r);
}

void uring_read(struct uring *u, struct request *r, int fd, const struct sgp_sgl *list, uint64_t at)
{
	begin_list(u, r, fd, list, at, false);
}

void uring_write(struct uring *u, struct request *r, int fd, const struct sgp_sgl *list,
		 uint64_t at)
{
	begin_list(u, r, fd, list, at, true);
}

/* An operation that is not on a list. Returns NULL when it can't begin: r->step() has been called. */
static struct io_uring_sqe *begin_whole(struct uring *u, struct request *r)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	r->io_error = 0;
	if (!sqe) {
		refuse(r);
		r->step(r);
		return NULL;
	}
	r->io_pending++;
	return sqe;
}

void uring_sync(struct uring *u, struct request *r, int fd)
{
	struct io_uring_sqe *sqe = begin_whole(u, r);

	if (sqe) {
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		set_tag(sqe, r, TAG_WHOLE);
	}
}

void uring_fallocate(struct uring *u, struct request *r, int fd, int mode, uint64_t at,
		     uint64_t length)
{
	struct io_uring_sqe *sqe = begin_whole(u, r);

	if (sqe) {
		io_uring_prep_fallocate(sqe, fd, mode, (off_t)at, (off_t)length);
		set_tag(sqe, r, TAG_WHOLE);
	}
}

void uring_writev(struct uring *u, struct request *r, int fd, const struct iovec *iov,
		  unsigned int n, uint64_t at)
{
	struct io_uring_sqe *sqe = begin_whole(u, r);

	if (sqe) {
		io_uring_prep_writev(sqe, fd, iov, n, at);
		set_tag(sqe, r, TAG_WHOLE);
	}
}

void uring_watch(struct uring *u, struct uring_watch *watch)
{
	struct io_uring_sqe *sqe;

	if (watch->armed)
		return;
	sqe = get_sqe(u);
	if (!sqe)
		return; /* the next sleep asks again */
	io_uring_prep_poll_add(sqe, watch->fd, POLLIN);
	set_tag(sqe, watch, TAG_WATCH);
	watch->armed = true;
}

/* ---- completions ---- */

/* A slice may be moved in parts; what is left of it then begins again. */
static void end_slice(struct uring *u, struct request *r, int i, int res)
{
	if (res == -EAGAIN || res == -EINTR)
		res = 0;
	else if (res == 0)
		res = -ENODATA; /* the file has become shorter */
	if (res < 0) {
		if (!r->io_error)
			r->io_error = -res;
		return;
	}
	r->io_done[i] += (uint32_t)res;
	if (r->io_done[i] < r->io_list->sge[i].length && !r->io_error)
		begin_slice(u, r, i);
}

static void complete(struct uring *u, uint64_t tag, int res)
{
	const unsigned int what = tag & TAG_MASK;
	void *owner = (void *)(uintptr_t)(tag & ~(uint64_t)TAG_MASK);
	struct uring_watch *watch = owner;
	struct request *r = owner;

	if (what == TAG_WATCH) {
		watch->armed = false;
		watch->ready(watch);
		return;
	}
	if (what != TAG_WHOLE)
		end_slice(u, r, (int)what, res);
	else if (res < 0)
		r->io_error = -res;
	else
		r->io_done[0] = (uint32_t)res; /* of a writev */
	if (--r->io_pending)
		return;
	if (r->queue->ending)
		queue_drop(r);
	else
		r->step(r);
}

int uring_handle(struct uring *u)
{
	struct io_uring_cqe *cqe[BATCH];
	struct {
		uint64_t tag;
		int res;
	} done[BATCH];
	unsigned int n;
	int total = 0;

	while ((n = io_uring_peek_batch_cqe(&u->ring, cqe, BATCH)) > 0) {
		/* The ring's room is given back first: handling one may begin others. */
		for (unsigned int i = 0; i < n; i++) {
			done[i].tag = io_uring_cqe_get_data64(cqe[i]);
			done[i].res = cqe[i]->res;
		}
		io_uring_cq_advance(&u->ring, n);
		for (unsigned int i = 0; i < n; i++)
			complete(u, done[i].tag, done[i].res);
		total += (int)n;
		if (n < BATCH)
			break;
	}
	return total;
}

void uring_submit(struct uring *u)
{
	if (io_uring_sq_ready(&u->ring) ||
	    IO_URING_READ_ONCE(*u->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
		(void)io_uring_submit_and_get_events(&u->ring);
}

void uring_sleep(struct uring *u, int64_t ns)
{
	struct __kernel_timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	struct io_uring_cqe *cqe;

	(void)io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
}
