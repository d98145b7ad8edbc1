/* SPDX-License-Identifier: BSD-2-Clause */
/* Pools that are watched, see watch.h: what a chunk's memory and track go through. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool/flight.h"
#include "pool/hide.h"
#include "pool/known.h"
#include "sgp_config.h"

#if SGP_HAVE_MEMCHECK
#include <valgrind/memcheck.h>
#else
#define VALGRIND_GET_VBITS(addr, bits, bytes)     ((void)(addr), (void)(bits), 0)
#define VALGRIND_CREATE_MEMPOOL(pool, zone, zero) ((void)(pool))
#define VALGRIND_DESTROY_MEMPOOL(pool)            ((void)(pool))
#define VALGRIND_MEMPOOL_ALLOC(pool, addr, bytes) ((void)(pool), (void)(addr), (void)(bytes))
#define VALGRIND_MEMPOOL_FREE(pool, addr)         ((void)(pool), (void)(addr))
#define VALGRIND_MAKE_MEM_NOACCESS(addr, bytes)   ((void)(addr), (void)(bytes))
#define VALGRIND_MAKE_MEM_DEFINED(addr, bytes)    ((void)(addr), (void)(bytes))
#endif

#define PATTERN     0xdb
#define GRAVE_BYTES ((size_t)16 << 20) /* of descriptors of pools that are gone */

/* ---- the environment ---- */

static struct {
	bool never, always, memcheck;
} env;
static pthread_once_t env_once = PTHREAD_ONCE_INIT;

/* Valgrind has other tools too, which look at nothing and count what programs do in earnest. */
static bool on_memcheck(void)
{
	char byte = 0, valid;

	return VALGRIND_GET_VBITS(&byte, &valid, 1) == 1;
}

static void read_env(void)
{
	const char *check = secure_getenv("SGP_CHECK");

	env.never = check && strcmp(check, "0") == 0;
	env.always = check && *check && !env.never;
	env.memcheck = !env.never && on_memcheck();
	if (env.always && strcmp(check, "abort") == 0)
		sgp_finding_aborts();
}

uint32_t sgp_watch_for(uint32_t pool_flags)
{
	const uint32_t for_peers = SGP_POOL_REMOTE_READ | SGP_POOL_REMOTE_WRITE |
				   SGP_POOL_REMOTE_ATOMIC | SGP_POOL_READ_SINK | SGP_POOL_WINDOWS;
	uint32_t watch = 0;

	pthread_once(&env_once, read_env);
	if (env.always || (pool_flags & SGP_POOL_CHECKED && !env.never))
		watch |= SGP_WATCH_CHECK;
	if (pool_flags & SGP_POOL_SCRUB)
		watch |= SGP_WATCH_SCRUB;
	if (env.memcheck)
		watch |= SGP_WATCH_MEMCHECK;
	if (SGP_ASAN && pool_flags & for_peers)
		watch |= SGP_WATCH_SHOWN;
	if (watch & SGP_WATCH_CHECK)
		__atomic_fetch_or(&sgp_mode, SGP_MODE_CHECKED, __ATOMIC_RELAXED);
	return watch;
}

/* ---- tracks ---- */

struct sgp_track *sgp_track_of(const struct sgp_chunk *chunk)
{
	struct sgp_slab *slab;

	if (!sgp_is_slabs(chunk))
		return NULL;
	slab = sgp_slab_of(chunk);
	return slab->tracks ? &slab->tracks[chunk - slab->chunks] : NULL;
}

static bool is_checked(const struct sgp_slab *slab)
{
	return slab->tracks && slab->owner.pool && slab->owner.pool->watch & SGP_WATCH_CHECK;
}

/* ---- a chunk's memory ---- */

/* Shown while the library itself looks at it or fills it. */
static void show(const struct sgp_chunk *chunk)
{
	const struct sgp_slab *slab = sgp_slab_of(chunk);

	sgp_show_chunk(chunk);
	if (slab->owner.pool->watch & SGP_WATCH_MEMCHECK)
		VALGRIND_MAKE_MEM_DEFINED(chunk->addr, slab->cut.size);
}

static void hide(const struct sgp_chunk *chunk)
{
	const struct sgp_slab *slab = sgp_slab_of(chunk);

	sgp_hide_chunk(chunk);
	if (slab->owner.pool->watch & SGP_WATCH_MEMCHECK && !sgp_is_for_peers(slab))
		VALGRIND_MAKE_MEM_NOACCESS(chunk->addr, slab->cut.size);
}

static int pattern_of(const struct sgp_pool *pool)
{
	return pool->watch & SGP_WATCH_SCRUB ? 0 : PATTERN;
}

/* Fill a free chunk's memory as its pool wants it. It is shown. */
static void fill(const struct sgp_chunk *chunk)
{
	const struct sgp_slab *slab = sgp_slab_of(chunk);

	if (slab->owner.pool->watch & (SGP_WATCH_SCRUB | SGP_WATCH_CHECK))
		memset(chunk->addr, pattern_of(slab->owner.pool), slab->cut.size);
}

/* Look whether a free chunk's memory is as it was filled. It is shown. Returns 0; -1, and a finding. */
static int verify(const struct sgp_chunk *chunk)
{
	const struct sgp_slab *slab = sgp_slab_of(chunk);
	const struct sgp_track *track = &slab->tracks[chunk - slab->chunks];
	const unsigned char *mem = chunk->addr;
	unsigned char pattern = (unsigned char)pattern_of(slab->owner.pool);
	size_t size = slab->cut.size, first = 0, n = 0;

	if (mem[0] == pattern && memcmp(mem, mem + 1, size - 1) == 0)
		return 0;
	while (mem[first] == pattern)
		first++;
	for (size_t i = first; i < size; i++)
		n += mem[i] != pattern;
	return sgp_found(SGP_FOUND_USE_AFTER_PUT, slab->owner.pool, chunk, &track->got, &track->put,
			 "%zu bytes of its memory, from byte %zu of %zu on, were written after "
			 "its put",
			 n, first, size);
}

int sgp_watch_verify(const struct sgp_chunk *chunk)
{
	int ret;

	show(chunk);
	ret = verify(chunk);
	fill(chunk); /* told once is enough */
	hide(chunk);
	return ret;
}

/* ---- a pool's and a slab's life ---- */

void sgp_watch_pool_begin(struct sgp_pool *pool)
{
	if (pool->watch & SGP_WATCH_MEMCHECK)
		VALGRIND_CREATE_MEMPOOL(pool, 0, 0);
}

void sgp_watch_pool_end(struct sgp_pool *pool)
{
	if (pool->watch & SGP_WATCH_MEMCHECK)
		VALGRIND_DESTROY_MEMPOOL(pool);
}

void sgp_watch_begin(struct sgp_slab *slab)
{
	const struct sgp_piece *piece = &slab->owner.region.piece;
	bool checked = is_checked(slab);

	for (size_t i = 0; i < slab->room; i++) {
		if (slab->owner.pool->watch)
			fill(&slab->chunks[i]);
		if (checked) {
			slab->chunks[i].size = 0;
			slab->tracks[i] = (struct sgp_track){.state = SGP_TRACK_FREE};
		}
	}
	if (SGP_ASAN && !sgp_is_for_peers(slab))
		SGP_HIDE(piece->addr, piece->bytes);
	if (slab->owner.pool->watch & SGP_WATCH_MEMCHECK && !sgp_is_for_peers(slab))
		VALGRIND_MAKE_MEM_NOACCESS(piece->addr, piece->bytes);
}

void sgp_watch_leaving(struct sgp_slab *slab)
{
	const struct sgp_piece *piece = &slab->owner.region.piece;

	if (SGP_ASAN)
		SGP_SHOW(piece->addr, piece->bytes);
	if (slab->owner.pool->watch & SGP_WATCH_MEMCHECK)
		VALGRIND_MAKE_MEM_DEFINED(piece->addr, piece->bytes);
	for (size_t i = 0; is_checked(slab) && i < slab->room; i++)
		verify(&slab->chunks[i]);
}

void sgp_watch_staying(struct sgp_slab *slab)
{
	for (size_t i = 0; i < slab->room; i++)
		hide(&slab->chunks[i]);
}

void sgp_watch_gone(struct sgp_slab *slab)
{
	for (size_t i = 0; slab->tracks && i < slab->room; i++) {
		slab->tracks[i].state = SGP_TRACK_NONE;
		slab->chunks[i].size = 0;
	}
}

/* ---- graves ---- */

static pthread_mutex_t grave_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sgp_slab *graves, **graves_end = &graves;
static size_t graves_bytes;

static size_t grave_bytes(const struct sgp_slab *slab)
{
	return slab->room * (sizeof slab->chunks[0] + sizeof slab->tracks[0]);
}

static void free_slab(struct sgp_slab *slab)
{
	sgp_known_remove(&slab->owner);
	free(slab->tracks);
	free(slab->chunks);
	free(slab);
}

void sgp_watch_bury(struct sgp_slab *slab)
{
	struct sgp_slab *oldest;

	if (!slab->tracks) {
		free_slab(slab);
		return;
	}
	slab->owner.pool = NULL;
	slab->cls = NULL;
	slab->next = NULL;
	pthread_mutex_lock(&grave_lock);
	*graves_end = slab;
	graves_end = &slab->next;
	graves_bytes += grave_bytes(slab);
	while (graves_bytes > GRAVE_BYTES && graves != slab) {
		oldest = graves;
		graves = oldest->next;
		graves_bytes -= grave_bytes(oldest);
		free_slab(oldest);
	}
	pthread_mutex_unlock(&grave_lock);
}

/* ---- changing hands ---- */

static void got_one(struct sgp_pool *pool, struct sgp_chunk *chunk, const struct sgp_who *who)
{
	struct sgp_slab *slab = sgp_slab_of(chunk);

	show(chunk);
	if (pool->watch & SGP_WATCH_MEMCHECK && !sgp_is_for_peers(slab)) {
		VALGRIND_MEMPOOL_ALLOC(pool, chunk->addr, slab->cut.size);
		/* A device's writes are not seen by memcheck. */
		VALGRIND_MAKE_MEM_DEFINED(chunk->addr, slab->cut.size);
	}
	if (pool->watch & SGP_WATCH_CHECK) {
		struct sgp_track *track = sgp_track_of(chunk);

		verify(chunk);
		sgp_who_keep(&track->got, who);
		sgp_who_keep(&track->put, &(struct sgp_who){.n = 0});
		chunk->size = slab->cut.size;
		atomic_store_explicit(&track->state, SGP_TRACK_HELD, memory_order_release);
	}
}

void sgp_watch_got_slowly(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n)
{
	struct sgp_who who = {.n = 0};
	int err = errno;

	if (!pool->watch) {
		sgp_show_chunks(chunks, n);
		return;
	}
	if (pool->watch & SGP_WATCH_CHECK)
		sgp_who_calls(&who);
	for (size_t i = 0; i < n; i++)
		got_one(pool, chunks[i], &who);
	errno = err;
}

void sgp_watch_put_slowly(struct sgp_pool *pool, struct sgp_chunk *const chunks[], size_t n)
{
	if (!pool->watch) {
		sgp_hide_chunks(chunks, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		fill(chunks[i]);
		if (pool->watch & SGP_WATCH_MEMCHECK && !sgp_is_for_peers(sgp_slab_of(chunks[i])))
			VALGRIND_MEMPOOL_FREE(pool, chunks[i]->addr);
		hide(chunks[i]);
	}
}

/* ---- handles ---- */

/* Is it a chunk at all? Its owner must be one, and it one of its. */
static bool is_chunk(const struct sgp_chunk *chunk)
{
	const struct sgp_slab *slab;
	size_t offset;

	if ((uintptr_t)chunk % _Alignof(struct sgp_chunk) || !sgp_known(chunk->owner))
		return false;
	if (!sgp_is_slabs(chunk))
		return true;
	slab = sgp_slab_of(chunk);
	offset = (size_t)((const char *)chunk - (const char *)slab->chunks);
	return chunk >= slab->chunks && offset < slab->room * sizeof slab->chunks[0] &&
	       offset % sizeof slab->chunks[0] == 0;
}

/* The handle is not held: say which. */
static int not_held(const struct sgp_chunk *chunk, const struct sgp_track *track, bool put)
{
	struct sgp_pool *pool = chunk->owner->pool;
	struct sgp_who now;
	char by[112];

	if (!pool)
		return sgp_found(SGP_FOUND_STALE, NULL, chunk, &track->got, &track->put,
				 "a handle of a pool that was destroyed");
	if (track->state == SGP_TRACK_NONE)
		return sgp_found(SGP_FOUND_STALE, pool, chunk, &track->got, &track->put,
				 "a handle of a region that was given back");
	if (!put)
		return sgp_found(SGP_FOUND_NOT_HELD, pool, chunk, &track->got, &track->put,
				 "used, but nobody holds it");
	sgp_who_calls(&now);
	return sgp_found(SGP_FOUND_PUT_TWICE, pool, chunk, &track->got, &track->put,
			 "put, but nobody holds it: once too often, by %s",
			 sgp_who_print(&now, by, sizeof by));
}

static int look_at(const struct sgp_chunk *chunk, bool put)
{
	struct sgp_track *track;

	if (!(sgp_mode_now() & SGP_MODE_CHECKED))
		return 0;
	if (!is_chunk(chunk))
		return sgp_found(SGP_FOUND_FOREIGN, NULL, chunk, NULL, NULL,
				 "not a chunk of any pool");
	track = sgp_track_of(chunk);
	if (!track || (chunk->owner->pool && !is_checked(sgp_slab_of(chunk))))
		return 0;
	if (atomic_load_explicit(&track->state, memory_order_acquire) != SGP_TRACK_HELD)
		return not_held(chunk, track, put);
	if (put && __atomic_load_n(&chunk->refs, __ATOMIC_RELAXED) == 0 && sgp_flight_any(track))
		return sgp_found(SGP_FOUND_PUT_TWICE, chunk->owner->pool, chunk, &track->got, NULL,
				 "put while it is posted: its only reference is the queue's");
	return 0;
}

int sgp_watch_use(const struct sgp_chunk *chunk)
{
	return look_at(chunk, false);
}

int sgp_watch_can_put(const struct sgp_chunk *chunk)
{
	return look_at(chunk, true);
}

bool sgp_watch_last(const struct sgp_chunk *chunk)
{
	struct sgp_track *track;
	struct sgp_who now;

	if (!(sgp_mode_now() & SGP_MODE_CHECKED) || !sgp_is_slabs(chunk) ||
	    !is_checked(sgp_slab_of(chunk)))
		return true;
	track = sgp_track_of(chunk);
	if (atomic_exchange(&track->state, SGP_TRACK_FREE) != SGP_TRACK_HELD) {
		not_held(chunk, track, true);
		return false;
	}
	sgp_who_calls(&now);
	sgp_who_keep(&track->put, &now);
	((struct sgp_chunk *)chunk)->size = 0;
	return true;
}
