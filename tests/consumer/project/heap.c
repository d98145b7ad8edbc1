/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap's library is there, and the program's malloc is not it. */
#include <errno.h>
#include <stdlib.h>
#include <sgpool/heap.h>

int main(void)
{
	void *mine = malloc(100);
	int ok = !sgp_heap_create(NULL, NULL) && errno == EINVAL && sgp_usable_size(mine) == 0;

	free(mine);
	return !ok;
}
