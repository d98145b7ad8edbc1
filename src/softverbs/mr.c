/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions, and the check that every byte moved goes through.
 *
 * A key is index << 8 | tag. The index finds the region or window in the device's table; the tag
 * changes each time the index is used again, so that an old key is caught. lkey and rkey differ in
 * one bit of the tag (unless the persona has one number for both): taking one for the other is an
 * error that shows.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softverbs/sw.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SW_NO_KEY UINT32_MAX
#define SW_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define SW_KNOWN                                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | SW_REMOTE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |         \
	 IBV_ACCESS_HUGETLB)

/* ---- keys ---- */

/* A free index, with its tag moved on; 0 if there is no memory. Index 0 is never used. */
uint32_t sw_key_alloc(struct sw_device *dev)
{
	struct sw_key *k;

	for (uint32_t i = 0; i < dev->nkey; i++) {
		uint32_t at = dev->key_next + i;

		at = at >= dev->nkey ? at - dev->nkey : at;
		k = &dev->key[at];
		if (at && !k->mr && !k->mw) {
			dev->key_next = at + 1;
			k->tag = (uint8_t)((k->tag + 1) & 0x7f);
			return at;
		}
	}
	uint32_t n = dev->nkey ? dev->nkey * 2 : 64;

	k = realloc(dev->key, n * sizeof *k);
	if (!k)
		return 0;
	memset(k + dev->nkey, 0, (n - dev->nkey) * sizeof *k);
	for (uint32_t i = dev->nkey; i < n; i++)
		k[i].lkey = k[i].rkey = SW_NO_KEY;
	dev->key = k;
	dev->key_next = dev->nkey ? dev->nkey : 1;
	dev->nkey = n;
	return sw_key_alloc(dev);
}

void sw_key_free(struct sw_device *dev, uint32_t index)
{
	struct sw_key *k = &dev->key[index];

	k->mr = NULL;
	k->mw = NULL;
	k->lkey = k->rkey = SW_NO_KEY;
}

struct sw_mr *sw_mr_by_lkey(struct sw_device *dev, uint32_t lkey)
{
	uint32_t i = lkey >> 8;

	return i < dev->nkey && dev->key[i].lkey == lkey ? dev->key[i].mr : NULL;
}

/* ---- regions ---- */

/* Looks through the process's mappings: are these bytes all there and may they be read, and written
 * if need be? The kernel pins a region for writing unless it is private: a shared mapping that
 * can't be written is refused even for reading (law 5). */
static int look(uintptr_t from, uintptr_t to, bool write)
{
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t at = from;
	unsigned long lo, hi;
	char perms[5], line[512];

	if (!f)
		return 0; /* nothing to be known */
	while (at < to && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, perms) != 3 || hi <= at)
			continue;
		if (lo > at || perms[0] != 'r' || (write && perms[1] != 'w') ||
		    (perms[1] != 'w' && perms[3] == 's'))
			break;
		at = hi;
	}
	fclose(f);
	return at < to ? EFAULT : 0;
}

/* What pinning would find: 0, or EFAULT for memory that isn't there or can't be written. */
static int pin(void *addr, size_t len, unsigned int access)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1);
	uintptr_t to = ((uintptr_t)addr + len + page - 1) & ~(page - 1);

	if (to <= from)
		return EINVAL;
	if (!(access & IBV_ACCESS_LOCAL_WRITE))
		return look(from, to, false);
	if (!madvise((void *)from, to - from, MADV_POPULATE_WRITE))
		return 0;
	return errno == EINVAL ? look(from, to, true) : EFAULT;
}

static int check_reg(struct sw_device *dev, uint64_t len, unsigned int access)
{
	if (dev->removed)
		return EIO;
	if (!len || len > dev->p.attr.max_mr_size)
		return EINVAL;
	/* No on-demand paging; a flag of the optional range may be ignored, any other is unknown.
	 */
	if (access & ~(unsigned int)(SW_KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
		return EINVAL;
	/* Remote write and atomics imply that the memory may be written: law 5. */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (dev->count[SV_MRS] >= dev->p.attr.max_mr)
		return ENOMEM;
	return 0;
}

/* Takes over the memory at `base`; NULL with *err, and then `map` is the caller's. */
static struct ibv_mr *insert(struct sw_pd *pd, void *base, size_t len, uint64_t iova,
			     unsigned int access, void *map, size_t map_len, int *err)
{
	struct sw_device *dev = sw_dev(pd->ibv.context);
	struct sw_mr *mr = calloc(1, sizeof *mr);
	struct sw_key *k;
	uint32_t i;

	if (!mr) {
		*err = ENOMEM;
		return NULL;
	}
	sw_lock();
	*err = check_reg(dev, len, access);
	i = *err ? 0 : sw_key_alloc(dev);
	if (!i) {
		*err = *err ? *err : ENOMEM;
		sw_unlock();
		free(mr);
		return NULL;
	}
	mr->pd = pd;
	mr->base = base;
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	mr->map = map;
	mr->map_len = map_len;
	mr->ibv = (struct ibv_mr){
		.context = pd->ibv.context,
		.pd = &pd->ibv,
		.addr = base,
		.length = len,
		.handle = i,
	};
	k = &dev->key[i];
	k->mr = mr;
	k->lkey = i << 8 | k->tag;
	k->rkey = dev->p.one_key ? k->lkey : k->lkey | 0x80;
	mr->ibv.lkey = k->lkey;
	mr->ibv.rkey = k->rkey;
	if (dev->p.no_rkey && !(access & SW_REMOTE)) {
		k->rkey = SW_NO_KEY;
		mr->ibv.rkey = 0;
	}
	pd->refs++;
	dev->count[SV_MRS]++;
	sw_ctx(pd->ibv.context)->objects++;
	sw_count(SV_MRS, 1);
	sw_unlock();
	return &mr->ibv;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
			  unsigned int access)
{
	struct sw_strike s = sw_strike(SW_CALL_reg_mr, len);
	struct ibv_mr *mr;
	int err;

	if (s.action == SW_FAIL)
		return sw_null(s.err);
	sw_lock();
	err = check_reg(sw_dev(pd->context), len, access);
	sw_unlock();
	if (!err)
		err = pin(addr, len, access);
	if (err)
		return sw_null(err);
	mr = insert(sw_outer(pd, struct sw_pd, ibv), addr, len, iova, access, NULL, 0, &err);
	return mr ? mr : sw_null(err);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return reg(pd, addr, len, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	return reg(pd, addr, len, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				unsigned int access)
{
	return reg(pd, addr, len, iova, access);
}

/* Memory behind a file descriptor: here, one that can be mapped, such as a memfd's. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				 int fd, int access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset & (page - 1);
	struct sw_device *dev = sw_dev(pd->context);
	struct ibv_mr *mr = NULL;
	uint8_t *map;
	struct stat st;
	int err = SW_FAULT(reg_dmabuf_mr);

	if (!err && dev->p.no_dmabuf)
		err = EOPNOTSUPP;
	/* The place in the page is the same for the file and for the peers: ib_umem_dmabuf. */
	if (!err && (!len || ((offset ^ iova) & (page - 1))))
		err = EINVAL;
	if (!err && fstat(fd, &st))
		err = errno;
	if (!err && (offset > (uint64_t)st.st_size || len > (uint64_t)st.st_size - offset))
		err = EINVAL;
	if (err)
		return sw_null(err);
	map = mmap(NULL, len + skip,
		   access & IBV_ACCESS_LOCAL_WRITE ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		   fd, (off_t)(offset - skip));
	if (map == MAP_FAILED)
		return sw_null(errno);
	mr = insert(sw_outer(pd, struct sw_pd, ibv), map + skip, len, iova, (unsigned int)access,
		    map, len + skip, &err);
	if (!mr) {
		munmap(map, len + skip);
		return sw_null(err);
	}
	mr->addr = NULL; /* it has no address of the caller's */
	return mr;
}

static int rereg(struct sw_mr *mr, int flags, struct sw_pd *pd, void *addr, size_t len,
		 unsigned int access)
{
	unsigned int to = flags & IBV_REREG_MR_CHANGE_ACCESS ? access : mr->access;

	if (mr->windows)
		return EBUSY;
	if (to & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(to & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd->refs--;
		mr->pd = pd;
		mr->ibv.pd = &pd->ibv;
		pd->refs++;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->base = addr;
		mr->iova = (uintptr_t)addr;
		mr->ibv.addr = addr;
		mr->ibv.length = len;
	}
	mr->access = to;
	return 0;
}

int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t len,
		 int access)
{
	struct sw_mr *mr = sw_outer(ibv, struct sw_mr, ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	int err = SW_FAULT(rereg_mr);

	if (!err && dev->p.no_rereg)
		err = EOPNOTSUPP;
	if (!err && (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || mr->map ||
		     (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !len)) ||
		     (flags & IBV_REREG_MR_CHANGE_PD && !pd)))
		err = EINVAL;
	if (!err && flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		err = pin(addr, len,
			  flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : mr->access);
	if (!err) {
		sw_lock();
		err = rereg(mr, flags, pd ? sw_outer(pd, struct sw_pd, ibv) : NULL, addr, len,
			    (unsigned int)access);
		sw_unlock();
	}
	if (!err)
		return 0;
	errno = err;
	return err == EINVAL ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct sw_mr *mr = sw_outer(ibv, struct sw_mr, ibv);
	struct sw_device *dev = sw_dev(ibv->context);
	int err = SW_FAULT(dereg_mr);

	if (err)
		return err;
	sw_lock();
	if (sw_strict_on)
		sw_strict_dereg(mr);
	if (mr->windows) {
		sw_strict("ibv_dereg_mr: %u windows are bound to it", mr->windows);
		sw_unlock();
		return dev->p.err_mw_bound;
	}
	/* Law 2.13: nothing stops one from doing so while a request uses it. */
	sw_key_free(dev, ibv->handle);
	mr->pd->refs--;
	dev->count[SV_MRS]--;
	sw_ctx(ibv->context)->objects--;
	sw_count(SV_MRS, -1);
	sw_unlock();
	if (mr->map)
		munmap(mr->map, mr->map_len);
	free(mr);
	return 0;
}

/* ---- the check ---- */

enum ibv_wc_status sw_sges(struct sw_device *dev, struct sw_pd *pd, const struct ibv_sge *sge,
			   uint32_t n, unsigned int access, uint64_t want, struct sw_piece *out,
			   uint32_t *nout, uint64_t *len)
{
	uint64_t sum = 0;
	uint32_t k = 0;

	for (uint32_t i = 0; i < n && sum < want; i++) {
		uint32_t length = sge[i].length;
		struct sw_mr *mr;
		uint64_t at;

		if (!length)
			continue;
		mr = sw_mr_by_lkey(dev, sge[i].lkey);
		if (!mr || mr->pd->root != pd->root || (mr->access & access) != access)
			return IBV_WC_LOC_ACCESS_ERR;
		at = sge[i].addr - mr->iova;
		if (sge[i].addr < mr->iova || at > mr->ibv.length || length > mr->ibv.length - at)
			return IBV_WC_LOC_PROT_ERR;
		if (length > want - sum)
			length = (uint32_t)(want - sum);
		if (sw_strict_on && !sw_strict_mapped(mr->base + at, length))
			return IBV_WC_LOC_PROT_ERR;
		out[k].p = mr->base + at;
		out[k++].n = length;
		sum += length;
	}
	*nout = k;
	*len = sum;
	return IBV_WC_SUCCESS;
}
