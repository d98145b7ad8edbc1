/* SPDX-License-Identifier: BSD-2-Clause */
/* What the pool's tests share, see pool_rig.h. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pool_rig.h"

struct ibv_pd *rig_pd;
enum rig_huge rig_huge;
_Atomic int64_t rig_mapped;
_Atomic size_t rig_allocated;

static struct ibv_context *verbs;
static struct {
	atomic_bool armed;
	bool struck;
	enum rig_call call;
	int left, err;
} fault;

void rig_setup(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ck_assert_ptr_nonnull(list);
	ck_assert_ptr_nonnull(list[0]);
	verbs = ibv_open_device(list[0]);
	ck_assert_ptr_nonnull(verbs);
	ibv_free_device_list(list);
	rig_pd = ibv_alloc_pd(verbs);
	ck_assert_ptr_nonnull(rig_pd);
	fault.armed = false;
	rig_huge = RIG_HUGE_NONE;
	rig_mapped = 0;
}

void rig_teardown(void)
{
	fault.armed = false;
	sv_faults_clear();
	ck_assert_int_eq(sv_live(SV_MRS), 0);
	ck_assert_int_eq(rig_mapped, 0);
	ck_assert_int_eq(ibv_dealloc_pd(rig_pd), 0);
	ck_assert_int_eq(ibv_close_device(verbs), 0);
}

struct sgp_pool *rig_classes(const struct sgp_class_attr *cls, uint32_t n)
{
	struct sgp_pool_attr attr = {.classes = cls, .nclasses = n, .pages = SGP_PAGES_BASE};
	struct sgp_pool *pool = sgp_pool_create(rig_pd, &attr);

	ck_assert_msg(pool != NULL, "%s", sgp_errmsg());
	return pool;
}

struct sgp_pool *rig_pool(size_t size, size_t chunks, size_t max_chunks)
{
	struct sgp_class_attr cls = {.size = size, .chunks = chunks, .max_chunks = max_chunks};

	return rig_classes(&cls, 1);
}

struct sgp_pool *rig_try_pool(size_t size, size_t chunks, size_t max_chunks, enum sgp_pages pages)
{
	struct sgp_class_attr cls = {.size = size, .chunks = chunks, .max_chunks = max_chunks};
	struct sgp_pool_attr attr = {.classes = &cls, .nclasses = 1, .pages = pages};

	return sgp_pool_create(rig_pd, &attr);
}

void rig_check(struct sgp_pool *pool, uint64_t live)
{
	const char *wrong = sgp_pool_check(pool);
	struct sgp_pool_stats stats;

	ck_assert_msg(wrong == NULL, "%s", wrong);
	ck_assert_int_eq(sgp_pool_stats(pool, &stats), 0);
	ck_assert_uint_eq(stats.live, live);
	ck_assert_uint_eq(stats.free, stats.chunks - live);
}

void rig_fail(enum rig_call call, int nth, int err)
{
	fault.call = call;
	fault.left = nth;
	fault.err = err;
	fault.struck = false;
	fault.armed = true;
}

bool rig_failed(void)
{
	fault.armed = false;
	return fault.struck;
}

static bool strike(enum rig_call call)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool struck;

	if (!fault.armed)
		return false;
	pthread_mutex_lock(&lock);
	struck = fault.armed && fault.call == call && fault.left-- <= 0;
	if (struck) {
		fault.armed = false;
		fault.struck = true;
		errno = fault.err;
	}
	pthread_mutex_unlock(&lock);
	return struck;
}

/* The linker sends the library's calls here. Visible, as some linkers look at shared objects too.
 */
#pragma GCC visibility push(default)
void *__real_mmap(void *, size_t, int, int, int, off_t);
/* Visible, as a sanitized softverbs refers to them as well. */
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
int __wrap_munmap(void *, size_t);
void *__real_mremap(void *, size_t, size_t, int, ...);
void *__wrap_mremap(void *, size_t, size_t, int, ...);
int __real_mprotect(void *, size_t, int);
int __wrap_mprotect(void *, size_t, int);
int __real_madvise(void *, size_t, int);
int __wrap_madvise(void *, size_t, int);
void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#pragma GCC visibility pop

void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	void *map;

	if (strike(RIG_MMAP))
		return MAP_FAILED;
	if (flags & MAP_HUGETLB) {
		if (rig_huge == RIG_HUGE_NONE) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
		flags = flags & ((1 << 26) - 1) & ~MAP_HUGETLB;
	}
	map = __real_mmap(addr, length, prot, flags, fd, offset);
	if (map != MAP_FAILED)
		rig_mapped += (int64_t)length;
	return map;
}

int __wrap_munmap(void *addr, size_t length)
{
	rig_mapped -= (int64_t)length;
	return __real_munmap(addr, length);
}

/* As Linux does it: the target is unmapped before anything can fail. */
void *__wrap_mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *target, *map;
	va_list ap;

	va_start(ap, flags);
	target = va_arg(ap, void *);
	va_end(ap);
	ck_assert(flags & MREMAP_FIXED);
	rig_mapped -= (int64_t)new_size;
	if (strike(RIG_MREMAP)) {
		__real_munmap(target, new_size);
		errno = fault.err;
		return MAP_FAILED;
	}
	map = __real_mremap(old, old_size, new_size, flags, target);
	ck_assert_ptr_eq(map, target);
	return map;
}

int __wrap_mprotect(void *addr, size_t length, int prot)
{
	return strike(RIG_MPROTECT) ? -1 : __real_mprotect(addr, length, prot);
}

int __wrap_madvise(void *addr, size_t length, int advice)
{
	return strike(RIG_MADVISE) ? -1 : __real_madvise(addr, length, advice);
}

void *__wrap_calloc(size_t n, size_t size)
{
	rig_allocated += n * size;
	return strike(RIG_ALLOC) ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	rig_allocated += size;
	return strike(RIG_ALLOC) ? NULL : __real_aligned_alloc(align, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	if (strike(RIG_THREAD))
		return fault.err;
	return __real_pthread_create(thread, attr, run, arg);
}
