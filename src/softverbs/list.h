/* SPDX-License-Identifier: BSD-2-Clause */
/* A circular list whose links live in what they link. */
#ifndef SOFTVERBS_LIST_H
#define SOFTVERBS_LIST_H

#include <stdbool.h>

struct sw_list {
	struct sw_list *next, *prev;
};

static inline void sw_list_init(struct sw_list *l)
{
	l->next = l->prev = l;
}

static inline bool sw_list_empty(const struct sw_list *l)
{
	return l->next == l;
}

static inline void sw_list_append(struct sw_list *head, struct sw_list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* Leaves l a list of its own, so that a second removal does no harm. */
static inline void sw_list_del(struct sw_list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	sw_list_init(l);
}

#define sw_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define sw_each_safe(pos, nxt, head)                                                               \
	for ((pos) = (head)->next, (nxt) = (pos)->next; (pos) != (head);                           \
	     (pos) = (nxt), (nxt) = (pos)->next)

#endif
