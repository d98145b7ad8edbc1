/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fuzz target: one function that libFuzzer calls, or replay.c. It aborts when it finds something.
 */
#ifndef SGP_TESTS_FUZZ_H
#define SGP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
