/* SPDX-License-Identifier: BSD-2-Clause */
#include "behaviours.h"

#define BEHAVIOUR_ROW(name) {#name, b_##name},
const struct behaviour behaviours[] = {BEHAVIOURS(BEHAVIOUR_ROW)};
const int num_behaviours = (int)(sizeof behaviours / sizeof *behaviours);
