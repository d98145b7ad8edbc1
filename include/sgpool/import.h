/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory from elsewhere: a mapping of the caller's, a file, a buffer of another device, registered
 * with a pool once and then sent from, or received into, through the same lists and queues.
 *
 * Imported memory is a region of the pool beside its own: on all of the pool's protection domains,
 * those that come later included, with the rights that the pool's flags ask for. It is not cut into
 * chunks and nobody gets it from the pool; slices of it go into a list by handle
 * (sgp_sgl_append_region()) or by address (sgp_sgl_append_addr()), and each slice holds it until its
 * completion has been reaped, as any hold. The library never copies it unasked, and never keeps it
 * from a forked child.
 *
 * Importing registers memory: it is not for a data path.
 *
 * Threads: as the pool's.
 */
#ifndef SGPOOL_IMPORT_H
#define SGPOOL_IMPORT_H

#include <stddef.h>
#include <stdint.h>

#include <sgpool/pool.h>

SGP_BEGIN_DECLS

/* Flags of an import. */
enum {
	/*
	 * For sending only: devices may read it, and not write it. Memory that can't be written can be
	 * imported so; receiving or READing into it is EACCES. Of the pool's rights only REMOTE_READ
	 * is given.
	 */
	SGP_IMPORT_READ_ONLY = 1 << 0,
	/*
	 * Map the file fd (a memfd, a hugetlbfs file, a file on a DAX device or in a file system), shared,
	 * and import the mapping. offset: as mmap(2), a multiple of the file's page size. The
	 * descriptor may be closed afterwards.
	 */
	SGP_IMPORT_FILE = 1 << 1,
	/*
	 * fd is a dma-buf, the memory of another device: ibv_reg_dmabuf_mr(3). offset: where in it the
	 * memory begins. addr: what devices call that place, congruent to offset modulo the page size; so
	 * a pointer into the other device's memory stays itself. NULL: addresses are chosen, see
	 * sgp_import_addr(). The library keeps a duplicate of the descriptor until the unimport.
	 */
	SGP_IMPORT_DMABUF = 1 << 2,
	/*
	 * With DMABUF: the processor can read and write it at addr too. Without, the memory is never
	 * looked at: not sent inline, not linearised (EOPNOTSUPP where that is asked for).
	 */
	SGP_IMPORT_MAPPED = 1 << 3,
};

/* What to import. Zero the whole structure first. */
struct sgp_import_attr {
	uint32_t comp_mask; /* 0 */
	uint32_t flags;     /* SGP_IMPORT_*; neither FILE nor DMABUF: addr is a mapping of the caller's */
	void *addr;
	size_t length;   /* bytes; need not be whole pages */
	int fd;          /* with FILE or DMABUF */
	uint64_t offset; /* likewise */
};

/*
 * Import memory. A mapping of the caller's stays his: it must stand, and stay mapped to the same
 * pages, until the unimport.
 *
 * Returns the handle, to be ended by sgp_pool_unimport(); NULL with errno, and nothing is left behind:
 *   EINVAL      the attributes are wrong, or the file is shorter
 *   EEXIST      part of the memory has been imported into this pool before
 *   EMSGSIZE    longer than the max_mr_size of a device: import it in parts
 *   EFAULT      not all of it is mapped; or it can't be written, and was not imported READ_ONLY; or
 *               it is a file mapped MAP_SHARED that can't be written, which the kernel refuses to pin
 *               even for reading. sgp_errmsg() says what to do
 *   EOPNOTSUPP  a dma-buf, and the system or a device doesn't take these
 *   EPERM       in a forked child, or as another
 *   ENOMEM      no memory or no addresses, or over RLIMIT_MEMLOCK
 *   another: of ibv_reg_mr(3), ibv_reg_dmabuf_mr(3), mmap(2), fstat(2), fcntl(2), or of region_add()
 */
SGP_API struct sgp_import *sgp_pool_import(struct sgp_pool *pool,
					   const struct sgp_import_attr *attr);

/*
 * End an import: deregister the memory, and unmap what the library had mapped.
 *
 * No other thread may be using the handle; that others look up addresses, or import, does not matter.
 * Returns 0; -1 with errno, and it stands as before:
 *   EBUSY   a slice of it is held, by a list or a queue
 *   EINVAL  it is not an import of this pool
 *   EPERM   in a forked child
 *   another: of ibv_dereg_mr(3)
 */
SGP_API int sgp_pool_unimport(struct sgp_pool *pool, struct sgp_import *import);

/*
 * The first byte's address, as SGEs have it: that of the mapping; of a dma-buf what was given as addr,
 * or addresses of the process at which nothing can be read or written.
 */
SGP_API void *sgp_import_addr(const struct sgp_import *import);

/* The length in bytes, as it was imported. */
SGP_API size_t sgp_import_size(const struct sgp_import *import);

/*
 * The keys of the memory on one of the pool's protection domains; as sgp_chunk_keys() in everything.
 */
SGP_API int sgp_import_keys(const struct sgp_import *import, const struct ibv_pd *pd,
			    uint32_t *lkey, uint32_t *rkey);

SGP_END_DECLS

#endif
