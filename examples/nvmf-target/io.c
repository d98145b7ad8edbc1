/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands of the NVM command set, between the host's memory and the namespace's file.
 *
 *      Read      memory, file -> chunks, chunks -> host with the response
 *      Write     memory, host -> chunks (or they came in the capsule), chunks -> file, FUA: fdatasync
 *      Compare   as a Write, but the file is read into other chunks and both are looked at
 *      Zeroes    fallocate(2), or writing one chunk of zeroes again and again
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <nvme/types.h>
#include <string.h>

#include "ctrl.h"

enum {
	COMPARE_FAILED = NVME_SCT_MEDIA << NVME_SCT_SHIFT | NVME_SC_COMPARE_FAILED | NVME_SC_DNR,
	WRITE_FAULT = NVME_SCT_MEDIA << NVME_SCT_SHIFT | NVME_SC_WRITE_FAULT,
	READ_ERROR = NVME_SCT_MEDIA << NVME_SCT_SHIFT | NVME_SC_READ_ERROR,
};

static struct ns *ns_of(const struct request *r)
{
	return &r->queue->target->ns[r->cmd.nsid - 1];
}

static int fd_of(const struct request *r)
{
	return ns_of(r)->fd;
}

static struct uring *ring_of(const struct request *r)
{
	return &r->queue->target->uring;
}

/* What to say of a file operation that failed. What may be different the next time may be retried. */
static int status_of(const struct request *r)
{
	switch (r->io_error) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return NVME_SC_CAP_EXCEEDED | NVME_SC_DNR;
	case EROFS:
	case EPERM:
		return NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR;
	case EIO:
	case ENODATA:
	case EILSEQ:
		return r->io_write ? WRITE_FAULT : READ_ERROR;
	default:
		return NVME_SC_INTERNAL;
	}
}

/* Returns true when the operation has failed, and the command with it. */
static bool failed(struct request *r)
{
	if (!r->io_error)
		return false;
	queue_respond(r, status_of(r));
	return true;
}

/* The end of most commands: success, unless the last operation failed. */
static void finish(struct request *r)
{
	queue_respond(r, r->io_error ? status_of(r) : NVME_SC_SUCCESS);
}

static void sync_file(struct request *r)
{
	r->io_write = true;
	r->step = finish;
	uring_sync(ring_of(r), r, fd_of(r));
}

/* The command has changed the file. */
static void written(struct request *r)
{
	if (failed(r))
		return;
	sgp_sgl_clear(&r->data); /* others may wait for the memory */
	if (r->cmd.fua)
		sync_file(r);
	else
		queue_respond(r, NVME_SC_SUCCESS);
}

/* ---- Read and Write ---- */

/* There was no memory, and never will be: only possible if --memory is less than the command. */
static bool starved(struct request *r)
{
	if (r->data.num_chunk)
		return false;
	queue_respond(r, NVME_SC_INTERNAL | NVME_SC_DNR);
	return true;
}

static void read_file(struct request *r)
{
	if (starved(r))
		return;
	r->step = finish;
	uring_read(ring_of(r), r, fd_of(r), &r->data, r->cmd.at);
}

static void write_file(struct request *r)
{
	r->step = written;
	uring_write(ring_of(r), r, fd_of(r), &r->data, r->cmd.at);
}

static void fetch_write(struct request *r)
{
	if (starved(r))
		return;
	r->step = write_file;
	queue_fetch(r);
}

/* ---- Compare ---- */

static bool same(const struct sgp_sgl *a, const struct sgp_sgl *b)
{
	uint32_t i = 0, j = 0, skip_a = 0, skip_b = 0;

	while ((int)i < a->num_sge && (int)j < b->num_sge) {
		const uint32_t left_a = a->sge[i].length - skip_a,
			       left_b = b->sge[j].length - skip_b;
		const uint32_t n = left_a < left_b ? left_a : left_b;

		if (memcmp((char *)(uintptr_t)a->sge[i].addr + skip_a,
			   (char *)(uintptr_t)b->sge[j].addr + skip_b, n) != 0)
			return false;
		skip_a = n == left_a ? 0 : skip_a + n;
		skip_b = n == left_b ? 0 : skip_b + n;
		i += n == left_a;
		j += n == left_b;
	}
	return true;
}

static void compare(struct request *r)
{
	if (!failed(r))
		queue_respond(r, same(&r->data, &r->file) ? NVME_SC_SUCCESS : COMPARE_FAILED);
}

static void compare_file(struct request *r)
{
	r->step = compare;
	uring_read(ring_of(r), r, fd_of(r), &r->file, r->cmd.at);
}

static void fetch_compare(struct request *r)
{
	if (starved(r))
		return;
	r->step = compare_file;
	queue_fetch(r);
}

/* What the host sends is here already: memory for the file's side only. */
static void inside_compare(struct request *r)
{
	if (r->file.num_chunk)
		compare_file(r);
	else
		queue_respond(r, NVME_SC_INTERNAL | NVME_SC_DNR);
}

/* ---- Write Zeroes ---- */

static void zero_piece(struct request *r);

/* A piece is written: the next one, or the end. */
static void zero_written(struct request *r)
{
	const uint64_t done = r->io_done[0];

	if (failed(r))
		return;
	r->at += done;
	r->left -= done < r->left ? done : r->left;
	if (r->left && done)
		zero_piece(r);
	else if (r->left)
		queue_respond(r, WRITE_FAULT);
	else
		written(r);
}

static void zero_piece(struct request *r)
{
	struct target *t = r->queue->target;
	uint64_t whole = r->left / REQUEST_CHUNK;

	r->step = zero_written;
	r->io_write = true;
	if (whole > BUDGET_ZEROES)
		whole = BUDGET_ZEROES;
	if (whole) {
		uring_writev(ring_of(r), r, fd_of(r), t->budget.zero_list, (unsigned int)whole,
			     r->at);
	} else {
		r->tail = (struct iovec){sgp_chunk_addr(t->budget.zeroes), (size_t)r->left};
		uring_writev(ring_of(r), r, fd_of(r), &r->tail, 1, r->at);
	}
}

static void zero_range(struct request *r);

/* What the file cannot do is not asked of it again. */
static void zeroed(struct request *r)
{
	struct ns *ns = ns_of(r);

	if (r->io_error == EOPNOTSUPP && ns->zero != NS_ZERO_WRITE) {
		ns->zero++;
		if (ns->zero == NS_ZERO_PUNCH && ns->block_device)
			ns->zero++;
		zero_range(r);
	} else {
		written(r);
	}
}

static void zero_range(struct request *r)
{
	const struct ns *ns = ns_of(r);
	const bool punch = ns->zero == NS_ZERO_PUNCH || (r->cmd.deallocate && !ns->block_device);

	r->at = r->cmd.at;
	r->left = r->cmd.bytes;
	r->step = zeroed;
	r->io_write = true;
	if (ns->zero == NS_ZERO_WRITE)
		zero_piece(r);
	else
		uring_fallocate(ring_of(r), r, ns->fd,
				FALLOC_FL_KEEP_SIZE |
					(punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE),
				r->at, r->left);
}

/* ---- Dataset Management ---- */

static void next_range(struct request *r)
{
	const struct capsule_ns *ns = &r->queue->target->limits[r->cmd.nsid - 1];
	const void *ranges = (const void *)(uintptr_t)r->data.sge[0].addr;
	uint64_t at, length;

	/* It's advice: what the file can't give back stays. */
	if (r->io_error && r->io_error != EOPNOTSUPP && failed(r))
		return;
	r->io_error = 0;
	while (r->range < r->cmd.ranges) {
		capsule_range(ns, ranges, r->range++, &at, &length);
		if (length) {
			r->step = next_range;
			uring_fallocate(ring_of(r), r, fd_of(r),
					FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, at, length);
			return;
		}
	}
	queue_respond(r, NVME_SC_SUCCESS);
}

static void start_ranges(struct request *r)
{
	const struct capsule_ns *ns = &r->queue->target->limits[r->cmd.nsid - 1];
	int status = capsule_check_ranges(ns, (const void *)(uintptr_t)r->data.sge[0].addr,
					  r->cmd.ranges);

	if (status || !r->cmd.deallocate) {
		queue_respond(r, status);
		return;
	}
	r->range = 0;
	r->io_error = 0;
	next_range(r);
}

static void fetch_ranges(struct request *r)
{
	if (starved(r))
		return;
	r->step = start_ranges;
	queue_fetch(r);
}

void io_start(struct request *r)
{
	struct budget *b = &r->queue->target->budget;
	const bool inside = r->cmd.data == CAPSULE_INSIDE;

	switch (r->cmd.kind) {
	case CAPSULE_READ:
		r->step = read_file;
		budget_take(b, r, r->cmd.length, BUDGET_DATA);
		return;
	case CAPSULE_WRITE:
		r->step = fetch_write;
		if (inside)
			write_file(r);
		else
			budget_take(b, r, r->cmd.length, BUDGET_DATA);
		return;
	case CAPSULE_COMPARE:
		r->step = inside ? inside_compare : fetch_compare;
		budget_take(b, r, r->cmd.length, inside ? BUDGET_FILE : BUDGET_BOTH);
		return;
	case CAPSULE_ZEROES:
		zero_range(r);
		return;
	case CAPSULE_DSM:
		r->step = fetch_ranges;
		if (inside)
			start_ranges(r);
		else
			budget_take(b, r, r->cmd.length, BUDGET_DATA);
		return;
	default: /* CAPSULE_FLUSH */
		sync_file(r);
	}
}
