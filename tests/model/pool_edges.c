/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "pool_edges.h"
#include "rnd.h"
#include "sgpool/softverbs.h"

enum {
	DOMAINS = 4,
	PIECES = 6,
	SLICES = 12,
	PIECE = 3000
};

static struct ibv_pd *pd[DOMAINS]; /* [0] is the pool's first */
static bool on[DOMAINS];
static unsigned int non;

static _Alignas(4096) char memory[PIECES][PIECE];
static struct {
	struct sgp_import *import; /* NULL: it isn't */
	unsigned int slices;
} piece[PIECES];

static struct slice {
	struct sgp_sgl sgl;
	struct ibv_sge sge[1];
	struct sgp_chunk *chunk[1];
	unsigned int piece;
	bool used;
} slice[SLICES];

void edges_begin(struct ibv_context *verbs, struct ibv_pd *first)
{
	pd[0] = first;
	on[0] = true;
	non = 1;
	for (unsigned int i = 1; i < DOMAINS; i++) {
		pd[i] = ibv_alloc_pd(verbs);
		CHECK(pd[i] != NULL);
		on[i] = false;
	}
	for (unsigned int i = 0; i < SLICES; i++)
		sgp_sgl_init(&slice[i].sgl, slice[i].sge, 1, slice[i].chunk, 1);
}

/* A fault in one of the next registrations, sometimes. */
static void arm(uint64_t *state)
{
	sv_fail_nth("reg_mr", rnd(state) % 6, rnd(state) % 3 ? 0 : ENOMEM);
}

/* The call failed if the fault struck, and only then. */
static bool failed(int ret)
{
	bool struck = sv_failed("reg_mr");

	CHECK(ret == (struck ? -1 : 0));
	if (struck)
		CHECK(errno == ENOMEM);
	sv_fail_nth("reg_mr", 0, 0);
	return struck;
}

static void op_domain(struct sgp_pool *pool, uint64_t *state)
{
	unsigned int i = rnd(state) % DOMAINS;

	if (rnd(state) % 2) {
		if (on[i]) {
			CHECK(sgp_pool_add_pd(pool, pd[i]) == -1 && errno == EEXIST);
			return;
		}
		arm(state);
		if (!failed(sgp_pool_add_pd(pool, pd[i]))) {
			on[i] = true;
			non++;
		}
	} else if (on[i]) {
		CHECK(sgp_pool_remove_pd(pool, pd[i]) == 0);
		on[i] = false;
		non--;
	} else {
		CHECK(sgp_pool_remove_pd(pool, pd[i]) == -1 && errno == EINVAL);
	}
}

static void op_import(struct sgp_pool *pool, uint64_t *state)
{
	unsigned int i = rnd(state) % PIECES;
	struct sgp_import_attr attr = {.addr = memory[i], .length = PIECE};

	if (piece[i].import) {
		attr.addr = memory[i] + rnd(state) % PIECE;
		attr.length = 1;
		CHECK(sgp_pool_import(pool, &attr) == NULL && errno == EEXIST);
		return;
	}
	attr.flags = rnd(state) % 2 ? SGP_IMPORT_READ_ONLY : 0;
	arm(state);
	piece[i].import = sgp_pool_import(pool, &attr);
	failed(piece[i].import ? 0 : -1);
}

static void op_unimport(struct sgp_pool *pool, uint64_t *state)
{
	unsigned int i = rnd(state) % PIECES;

	if (!piece[i].import)
		return;
	if (piece[i].slices) {
		CHECK(sgp_pool_unimport(pool, piece[i].import) == -1 && errno == EBUSY);
		return;
	}
	CHECK(sgp_pool_unimport(pool, piece[i].import) == 0);
	piece[i].import = NULL;
}

static void op_slice(struct sgp_pool *pool, uint64_t *state)
{
	struct slice *s = &slice[rnd(state) % SLICES];
	unsigned int i = rnd(state) % PIECES;
	size_t offset = rnd(state) % PIECE, length = 1 + rnd(state) % (PIECE - offset);
	bool by_handle = piece[i].import && rnd(state) % 2;
	int ret;

	if (s->used) {
		sgp_sgl_clear(&s->sgl);
		s->used = false;
		piece[s->piece].slices--;
		return;
	}
	if (by_handle)
		ret = sgp_sgl_append_region(&s->sgl, piece[i].import, offset, length);
	else
		ret = sgp_sgl_append_addr(&s->sgl, pool, memory[i] + offset, length);
	/* Whatever domains the pool is on, none too. */
	CHECK(ret == (piece[i].import ? 0 : -1));
	if (ret) {
		CHECK(errno == EFAULT);
		return;
	}
	CHECK(s->sgl.num_sge == 1 && s->sgl.sge[0].addr == (uintptr_t)memory[i] + offset);
	s->used = true;
	s->piece = i;
	piece[i].slices++;
}

void edges_op(struct sgp_pool *pool, uint64_t *state)
{
	uint32_t what = rnd(state) % 10;

	if (what < 3)
		op_domain(pool, state);
	else if (what < 5)
		op_import(pool, state);
	else if (what < 7)
		op_unimport(pool, state);
	else
		op_slice(pool, state);
}

void edges_compare(struct sgp_pool *pool, const struct sgp_chunk *chunk)
{
	struct sgp_pool_stats stats;
	uint64_t imports = 0;

	for (unsigned int i = 0; i < PIECES; i++)
		imports += piece[i].import != NULL;
	CHECK(sgp_pool_stats(pool, &stats) == 0);
	CHECK(stats.imports == imports && stats.bytes_imported == imports * PIECE);
	CHECK((uint64_t)sv_live(SV_MRS) == stats.regions * non);
	CHECK(stats.registrations - stats.deregistrations == stats.regions * non);
	for (unsigned int i = 0; i < DOMAINS; i++) {
		if (chunk)
			CHECK(sgp_chunk_keys(chunk, pd[i], NULL, NULL) == (on[i] ? 0 : -1));
		for (unsigned int k = 0; k < PIECES; k++)
			if (piece[k].import)
				CHECK(sgp_import_keys(piece[k].import, pd[i], NULL, NULL) ==
				      (on[i] ? 0 : -1));
	}
}

void edges_end(struct sgp_pool *pool)
{
	for (unsigned int i = 0; i < SLICES; i++) {
		if (slice[i].used)
			piece[slice[i].piece].slices--;
		slice[i].used = false;
		sgp_sgl_clear(&slice[i].sgl);
	}
	for (unsigned int i = 0; i < PIECES; i++) {
		if (piece[i].import)
			CHECK(sgp_pool_unimport(pool, piece[i].import) == 0);
		piece[i].import = NULL;
	}
	if (!on[0])
		CHECK(sgp_pool_add_pd(pool, pd[0]) == 0);
	for (unsigned int i = 1; i < DOMAINS; i++) {
		if (on[i])
			CHECK(sgp_pool_remove_pd(pool, pd[i]) == 0);
		CHECK(ibv_dealloc_pd(pd[i]) == 0);
	}
}

/* ---- several threads ---- */

void edges_thread_begin(struct edges_thread *t, struct ibv_context *verbs)
{
	*t = (struct edges_thread){.pd = ibv_alloc_pd(verbs), .memory = malloc(PIECE)};
	CHECK(t->pd && t->memory);
}

void edges_thread_op(struct edges_thread *t, struct sgp_pool *pool, uint32_t random)
{
	struct sgp_import_attr attr = {.addr = t->memory, .length = PIECE};
	SGP_SGL(sgl, 1);

	switch (random % 4) {
	case 0:
		CHECK((t->on ? sgp_pool_remove_pd : sgp_pool_add_pd)(pool, t->pd) == 0);
		t->on = !t->on;
		break;
	case 1:
		if (t->import) {
			CHECK(sgp_pool_unimport(pool, t->import) == 0);
			t->import = NULL;
		} else {
			t->import = sgp_pool_import(pool, &attr);
			CHECK(t->import != NULL);
		}
		break;
	default:
		CHECK(sgp_sgl_append_addr(&sgl, pool, t->memory + random % PIECE, 1) ==
		      (t->import ? 0 : -1));
		sgp_sgl_clear(&sgl);
		break;
	}
}

void edges_thread_end(struct edges_thread *t, struct sgp_pool *pool)
{
	if (t->import)
		CHECK(sgp_pool_unimport(pool, t->import) == 0);
	if (t->on)
		CHECK(sgp_pool_remove_pd(pool, t->pd) == 0);
	CHECK(ibv_dealloc_pd(t->pd) == 0);
	free(t->memory);
}
