/* SPDX-License-Identifier: BSD-2-Clause */
/* A shared library of its own. */
#include "bench_floor_list.h"

__attribute__((visibility("default"))) void *bench_floor_call_take(struct bench_floor_list *list)
{
	return bench_floor_take(list);
}

__attribute__((visibility("default"))) void bench_floor_call_give(struct bench_floor_list *list,
								  void *chunk)
{
	bench_floor_give(list, chunk);
}

__attribute__((visibility("default"))) void *
bench_floor_call_take_nothing(struct bench_floor_list *list)
{
	return list->memory;
}

__attribute__((visibility("default"))) void
bench_floor_call_give_nothing(struct bench_floor_list *list, void *chunk)
{
	(void)list;
	(void)chunk;
}
