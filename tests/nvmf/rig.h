/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target over files of the test's own: namespace 1 can be written, namespace 2 cannot. And a host
 * with an I/O queue in front of it.
 */
#ifndef TESTS_NVMF_RIG_H
#define TESTS_NVMF_RIG_H

#include "host.h"

#define BLOCKS ((uint64_t)16384) /* of namespace 1, of 512 bytes */
#define MIB    ((size_t)1 << 20)

extern int file;              /* what namespace 1 is */
extern struct host admin, io; /* setup() connects them */

/* A thread for each 16 MiB: the first I/O queue is not its admin queue's thread's, if there are two. */
void start(const char *memory);

/* The target's end, which must be a good one; what it has left is looked at, then the files go. */
void finish(void);
void end_files(void);

/* The first number in the statistics' file behind this text. */
uint64_t statistic(const char *name);

/* 32 MiB, and a host that is connected to it: on an ordinary device, and on one where a message
 * without a receive ends the connection. */
void setup(void);
void setup_iwarp(void);
void teardown(void);

/* Bytes that tell one seed from another. */
void fill(uint8_t *data, size_t n, int seed);

/* A command of io's on these blocks and the beginning of its data: its status. */
int ask(uint8_t opcode, uint64_t lba, uint32_t blocks);

/* The file's bytes are io's data, from its beginning on. */
void check_file(uint64_t lba, size_t n);

#endif
