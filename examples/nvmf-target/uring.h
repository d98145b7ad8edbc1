/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring: what the namespaces' files are read and written with, and what the program sleeps on. The
 * pools' regions are its fixed buffers, so that the kernel looks up no page per operation: they come
 * and go with the regions, by the pools' callbacks.
 *
 * Threads: one.
 */
#ifndef NVMF_URING_H
#define NVMF_URING_H

#include <liburing.h>
#include <sgpool/sgpool.h>

#include "request.h"

#define URING_BUFFERS 256

/* A descriptor that somebody wants to be told of. Aligned, since the ring's tags use the low bits. */
struct uring_watch {
	_Alignas(64) int fd;
	bool armed;
	void (*ready)(struct uring_watch *watch);
	void *owner;
};

struct uring {
	struct io_uring ring;
	bool fixed; /* the kernel has sparse tables of buffers */
	struct {
		uintptr_t addr;
		size_t bytes; /* 0: free */
	} buffer[URING_BUFFERS];
	int buffers; /* none is used from this one on */
};

/* Returns 0; -1 after a line on stderr. */
int uring_open(struct uring *u);
void uring_close(struct uring *u);

/* sgp_pool_attr.region_add and .region_remove; region_arg is the struct uring. */
int uring_region_add(void *arg, const struct sgp_region_info *region, void **cookie);
void uring_region_remove(void *arg, const struct sgp_region_info *region, void *cookie);

/*
 * Begin to read the file's bytes from at on into list, or to write list there. r->step() is called when
 * all is done; r->io_error says how it went.
 */
void uring_read(struct uring *u, struct request *r, int fd, const struct sgp_sgl *list,
		uint64_t at);
void uring_write(struct uring *u, struct request *r, int fd, const struct sgp_sgl *list,
		 uint64_t at);

/* Likewise fdatasync(2), fallocate(2), and writev(2) of iov, whose bytes need not be a pool's. */
void uring_sync(struct uring *u, struct request *r, int fd);
void uring_fallocate(struct uring *u, struct request *r, int fd, int mode, uint64_t at,
		     uint64_t length);
void uring_writev(struct uring *u, struct request *r, int fd, const struct iovec *iov,
		  unsigned int n, uint64_t at);

/* Ask once for watch->ready() when watch->fd is readable. Does nothing if it was asked for before. */
void uring_watch(struct uring *u, struct uring_watch *watch);

/* Give the kernel what has been begun. */
void uring_submit(struct uring *u);

/* The same, and sleep until something is through, at most so long. */
void uring_sleep(struct uring *u, int64_t ns);

/* Handle what is through. Returns how much that was. */
int uring_handle(struct uring *u);

#endif
