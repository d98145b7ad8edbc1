/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The short way of get and put, inline. Not for direct use: pool.h brings it in, and nearly everything
 * here may change with the layout number; a program that was compiled with another number than the
 * library's takes the calls instead, and works.
 *
 * Each thread has a magazine of free chunks for each size class that it uses:
 *
 *      sgp_thread.mags[slot] --> | whose it is | top | floor | ceil | sizes |
 *                                                |     |       |
 *                                                v     v       v
 *                                               one   items   items + capacity
 *                                               past
 *                                               the newest
 *
 * Whose it is, of which pool and class, is asked first. The layout number is a part of that, so that it
 * need not be asked for by itself. Therefore these never move, whatever the number: sgp_thread.last_get,
 * last_put and layout, a chunk's state, and the first two words of a magazine.
 *
 * Only its thread gets from and puts into a magazine. Another thread may empty it all the same, when
 * chunks are short and this one is idle. For that the owner tells when it is inside, by the lowest
 * bit of top, and asks then whether it may be:
 *
 *      owner                           who takes the chunks away
 *      top |= INSIDE                   floor = CLOSED, ceil = CLOSED
 *      (compiler barrier)              membarrier(2): a full barrier on every running thread
 *      top > floor? take one           top & INSIDE? then not now. Else the owner is outside and
 *      top = the new one (release)     will find the magazine closed: its chunks may be taken
 *
 * Nobody but the owner writes top, which it has read before it tells: of a magazine that was emptied the
 * owner learns under the lock. Telling by a word apart would cost two more stores, a third of the time.
 *
 * So the owner executes neither a lock nor an atomic read-modify-write nor a fence. A magazine that
 * has been closed sends its owner into the call, which opens it again. ThreadSanitizer does not know
 * membarrier(2): programs built with it use sequentially consistent accesses here.
 */
#ifndef SGPOOL_INLINE_H
#define SGPOOL_INLINE_H

#include <stddef.h>
#include <stdint.h>

#include <sgpool/export.h>

SGP_BEGIN_DECLS

/*
 * With AddressSanitizer a free chunk is poisoned, so that a stray access to it is reported where it
 * happens. Program and library must be of one mind in this: that is part of the layout.
 */
#if defined(__SANITIZE_ADDRESS__)
#define SGP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SGP_ASAN 1
#endif
#endif
#ifdef SGP_ASAN
#include <sanitizer/asan_interface.h>
#define SGP_HIDE(addr, bytes) ASAN_POISON_MEMORY_REGION(addr, bytes)
#define SGP_SHOW(addr, bytes) ASAN_UNPOISON_MEMORY_REGION(addr, bytes)
#else
#define SGP_ASAN              0
#define SGP_HIDE(addr, bytes) ((void)0)
#define SGP_SHOW(addr, bytes) ((void)0)
#endif

#define SGP_LAYOUT (4 | SGP_ASAN << 8)

/* Indices of magazines in a process: 0 is nobody's. */
#define SGP_SLOTS 2048

struct sgp_pool; /* begins with uint16_t slot[64]: the smallest class for each power of two */
struct sgp_owner;
struct sgp_sgl;

/*
 * A chunk's descriptor. refs counts the references beyond the first, so that a free chunk and one
 * with a sole owner look the same: neither get nor put writes it. state is read as a whole: with no
 * other reference it is the slot.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SGP_CHUNK_STATE                                                                            \
	uint16_t slot;                                                                             \
	uint16_t mark;                                                                             \
	uint32_t refs;
#else
#define SGP_CHUNK_STATE                                                                            \
	uint32_t refs;                                                                             \
	uint16_t mark;                                                                             \
	uint16_t slot;
#endif
struct sgp_chunk {
	void *addr; /* these three are as in struct ibv_sge, where addresses have 64 bits */
	uint32_t size;
	uint32_t lkey;
	struct sgp_owner *owner; /* what it is a piece of */
	__extension__ union {
		__extension__ struct {
			SGP_CHUNK_STATE
		};
		uint64_t state;
	};
};

/* What a list asks of each chunk's memory: a struct sgp_owner begins with this. See struct sgp_sgl. */
struct sgp_rights {
	uint64_t pds, home;
	uint32_t access;
};

struct sgp_mag {
	uintptr_t pool_key; /* SGP_POOL_KEY; 0 where there is no magazine */
	uint64_t state_key; /* SGP_STATE_KEY of its chunks; where there is none, of no chunk */
	uintptr_t top;      /* | SGP_MAG_INSIDE */
	struct sgp_chunk **floor; /* or SGP_MAG_FLOOR_CLOSED */
	struct sgp_chunk **ceil;  /* or SGP_MAG_CEIL_CLOSED */
	size_t size, least;       /* the class serves sizes of least .. size */
};

/*
 * A pool and a layout, a chunk's state and a layout. Two pools are further apart than two numbers; and
 * a state has nothing in the bits from 23 to 30, which are the mark's and not used for it, so that no
 * chunk's of one layout is taken for another one's of another:
 *
 *	63          32 31         23 22       16 15     0
 *	[    refs     | 0 | layout  |   mark    |  slot  ]
 */
#define SGP_POOL_KEY(pool) ((uintptr_t)(pool) + SGP_LAYOUT)
#define SGP_STATE_KEY(state)                                                                       \
	((uint64_t)(state) + (SGP_LAYOUT << 24 & 0x7f000000u) + (SGP_ASAN << 23))

#define SGP_MAG_INSIDE       ((uintptr_t)1)
#define SGP_MAG_FLOOR_CLOSED ((struct sgp_chunk **)INTPTR_MAX)
#define SGP_MAG_CEIL_CLOSED  ((struct sgp_chunk **)0)

struct sgp_thread {
	struct sgp_mag **mags;    /* [SGP_SLOTS], of the library's layout */
	struct sgp_mag *last_get; /* the magazine that the last chunk came from */
	struct sgp_mag *last_put; /* the one that the last chunk went to */
	uint32_t layout;          /* SGP_LAYOUT while the thread has magazines */
	uint32_t state;           /* the library's */
};

/* Initial-exec: no call to find it; the library takes these few bytes of static TLS also by dlopen. */
SGP_API extern __thread struct sgp_thread sgp_thread __attribute__((tls_model("initial-exec")));

#if defined(__SANITIZE_THREAD__)
#define SGP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SGP_TSAN 1
#endif
#endif
/*
 * SGP_PEEK: a word that another thread may change, read only to be compared. Either value will do, and a
 * plain load of an aligned word can be part of the comparison; compilers keep an atomic one apart.
 */
#ifdef SGP_TSAN
#define SGP_MAG_ORDER __ATOMIC_SEQ_CST
#define SGP_PEEK(x)   __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#else
#define SGP_MAG_ORDER __ATOMIC_RELAXED
#define SGP_PEEK(x)   (x)
#endif

#define SGP_LIKELY(x) __builtin_expect(!!(x), 1)

/* Tell that the owner is inside. Returns the top, which every leave has to be given. */
static inline struct sgp_chunk **sgp_mag_enter(struct sgp_mag *mag)
{
	uintptr_t top = __atomic_load_n(&mag->top, __ATOMIC_RELAXED);

	__atomic_store_n(&mag->top, top + SGP_MAG_INSIDE, SGP_MAG_ORDER);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return (struct sgp_chunk **)top;
}

static inline void sgp_mag_leave(struct sgp_mag *mag, struct sgp_chunk **top)
{
	__atomic_store_n(&mag->top, (uintptr_t)top, __ATOMIC_RELEASE);
}

/* The index of size's power of two in a pool's table: the class there, if any, may serve it. */
static inline size_t sgp_octave(size_t size)
{
#if defined(__x86_64__)
	/* The builtin's result is an int, which costs a sign extension. */
	if (!__builtin_constant_p(size)) {
		size_t octave;

		__asm__("bsrq %1, %0" : "=r"(octave) : "r"(2 * size - 1) : "cc");
		return octave;
	}
#endif
	return 63 ^ (size_t)__builtin_clzll(2ull * size - 1);
}

/* Whole chunks are asked for most of the time, and that is one comparison instead of two. */
static inline int sgp_mag_serves(const struct sgp_mag *mag, const struct sgp_pool *pool,
				 size_t size)
{
	return SGP_LIKELY(SGP_PEEK(mag->pool_key) == SGP_POOL_KEY(pool)) &&
	       (SGP_LIKELY(size == mag->size) || (size < mag->size && size >= mag->least));
}

/* A chunk out of this magazine. Returns 1; 0 when there is none, or it is closed. */
static inline int sgp_mag_take(struct sgp_mag *mag, struct sgp_chunk **chunk)
{
	struct sgp_chunk **top = sgp_mag_enter(mag);

	if (!SGP_LIKELY(top > SGP_PEEK(mag->floor))) {
		sgp_mag_leave(mag, top);
		return 0;
	}
	*chunk = top[-1];
	if (!*chunk)
		__builtin_unreachable(); /* who puts it need not ask again */
	sgp_mag_leave(mag, top - 1);
	SGP_SHOW((*chunk)->addr, (*chunk)->size);
	return 1;
}

/*
 * n chunks at once: where they stand, for as long as the thread puts none. NULL when there are not so
 * many, or it is closed.
 */
static inline struct sgp_chunk **sgp_mag_take_some(struct sgp_mag *mag, size_t n)
{
	struct sgp_chunk **top = sgp_mag_enter(mag);

	/* Signed: the floor of a closed magazine is above everything. */
	if (!SGP_LIKELY((intptr_t)top - (intptr_t)SGP_PEEK(mag->floor) >=
			(intptr_t)(n * sizeof *top))) {
		sgp_mag_leave(mag, top);
		return NULL;
	}
	sgp_mag_leave(mag, top - n);
	return top - n;
}

/*
 * The calling thread's magazine for such a get when it's not that of the last one; NULL: there is none.
 * Apart, so that the rest is small enough for compilers to want it inline.
 */
static __attribute__((noinline, unused)) struct sgp_mag *
sgp_mag_find(struct sgp_thread *self, struct sgp_pool *pool, size_t size)
{
	struct sgp_mag *mag;

	if (!pool || self->layout != SGP_LAYOUT)
		return NULL;
	mag = self->mags[((const uint16_t *)pool)[sgp_octave(size)]];
	if (!sgp_mag_serves(mag, pool, size))
		return NULL;
	self->last_get = mag;
	return mag;
}

/*
 * A chunk out of the calling thread's own magazine. Returns 1; 0 when that has none, and when anything
 * else is out of the ordinary.
 *
 * The magazine is guessed to be that of the last get: looking it up takes a chain of loads.
 */
static inline int sgp_mag_get(struct sgp_thread *self, struct sgp_pool *pool, size_t size,
			      struct sgp_chunk **chunk)
{
	struct sgp_mag *mag = self->last_get;

	if (!SGP_LIKELY(sgp_mag_serves(mag, pool, size))) {
		mag = sgp_mag_find(self, pool, size);
		if (!mag)
			return 0;
	}
	return sgp_mag_take(mag, chunk);
}

/*
 * Put a sole reference into the calling thread's own magazine. Returns 1; 0 when that was not
 * possible.
 *
 * The magazine is guessed here too, so that its address need not wait for the descriptor, nor the next
 * get for that.
 */
static inline int sgp_mag_put(struct sgp_thread *self, struct sgp_chunk *chunk)
{
	uint64_t state = __atomic_load_n(&chunk->state, __ATOMIC_ACQUIRE);
	struct sgp_mag *mag = self->last_put;
	struct sgp_chunk **top;

	if (!SGP_LIKELY(SGP_PEEK(mag->state_key) == SGP_STATE_KEY(state))) {
		if (state >= SGP_SLOTS || self->layout != SGP_LAYOUT)
			return 0;
		self->last_put = mag = self->mags[state];
	}
	top = sgp_mag_enter(mag);
	if (!SGP_LIKELY(top < SGP_PEEK(mag->ceil))) {
		sgp_mag_leave(mag, top);
		return 0;
	}
	SGP_HIDE(chunk->addr, chunk->size);
	*top = chunk;
	sgp_mag_leave(mag, top + 1);
	return 1;
}

/*
 * For the inline form of sgp_sgl_get(): the list's sge[] and the rest are made for size bytes of each of
 * chunk[0 .. n - 1], of one pool. These are there, and room for n SGEs.
 */
SGP_API void sgp_sgl_fill(struct sgp_sgl *sgl, size_t size, int n);

SGP_END_DECLS

#endif
