/* SPDX-License-Identifier: BSD-2-Clause */
/* A bare list: what the floor takes from and gives to, inline and (bench_floor_list.c) by calls. */
#ifndef BENCH_FLOOR_LIST_H
#define BENCH_FLOOR_LIST_H

#include <stddef.h>

struct bench_floor_list {
	void *first;
	char *memory;
	size_t bytes;
};

static inline void *bench_floor_take(struct bench_floor_list *list)
{
	void *chunk = list->first;

	list->first = *(void **)chunk;
	return chunk;
}

static inline void bench_floor_give(struct bench_floor_list *list, void *chunk)
{
	*(void **)chunk = list->first;
	list->first = chunk;
}

void *bench_floor_call_take(struct bench_floor_list *list);
void bench_floor_call_give(struct bench_floor_list *list, void *chunk);

/* The calls without what they do: always the same chunk. */
void *bench_floor_call_take_nothing(struct bench_floor_list *list);
void bench_floor_call_give_nothing(struct bench_floor_list *list, void *chunk);

#endif
