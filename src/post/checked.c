/* SPDX-License-Identifier: BSD-2-Clause */
/* What posts and completions do for checked pools, see checked.h. */
#include <errno.h>

#include "pool/errmsg.h"
#include "pool/flight.h"
#include "post/checked.h"

int sgp_check_post(const struct sgp_sgl *sgl, bool sink)
{
	for (int i = 0; i < sgl->num_chunk; i++)
		if (sgp_watch_use(sgl->chunk[i]))
			return -1;
	if (!sink)
		return 0;
	for (int i = 0; i < sgl->num_chunk; i++)
		for (int j = 0; j < sgl->num_sge; j++)
			if (sgp_flight_overlaps(sgl->chunk[i], &sgl->sge[j], false))
				return sgp_fail(EBUSY,
						"chunk %p is posted already: its memory is "
						"the device's until that has completed",
						(void *)sgl->chunk[i]);
	return 0;
}

/* An inline payload was copied, and a copy has its SGE in the slot; else the list's are meant. */
static void begin(struct sgp_slot *slot, const struct sgp_sgl *sgl, bool sink)
{
	bool own = slot->num_chunk && slot->parts == 1 && slot->chunk[0] != sgl->chunk[0];
	const struct ibv_sge *sge = own ? slot->sge : sgl->sge;
	int n = own ? slot->num_sge : sgl->num_sge;

	for (int i = 0; i < slot->num_chunk; i++)
		for (int j = 0; j < n; j++)
			sgp_flight_begin(slot->chunk[i], &sge[j], sink, slot);
}

void sgp_check_posted(struct sgp_side *side, uint32_t seq, const struct sgp_sgl *sgl, bool sink)
{
	for (; seq != side->head; seq++)
		begin(sgp_side_slot(side, seq), sgl, sink);
}

void sgp_check_received_into(struct sgp_slot *slot)
{
	for (int i = 0; i < slot->num_chunk; i++)
		for (int j = 0; j < slot->num_sge; j++)
			sgp_flight_begin(slot->chunk[i], &slot->sge[j], true, slot);
}

void sgp_check_ended_slowly(const struct sgp_slot *slot)
{
	for (int i = 0; i < slot->num_chunk; i++)
		sgp_flight_end(slot->chunk[i], slot);
}
