/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the NVMe target makes of any bytes that a host may send as a command: capsule_check() takes
 * them or refuses them, and what it takes must fit the limits, whatever they are. An input:
 *
 *      0      1        2      3      4         8               16
 *      | kind | flags  | nns  | shift| max data | blocks         | capsule: command, data ...
 *
 * The data also serves as the ranges of a Dataset Management.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capsule.h"
#include "fuzz.h"
#include "wire.h"

enum {
	HEAD = 16,
	MAX_NS = 4,
	ENABLED = 1,
	READ_ONLY = 2, /* the even namespaces */
	STATUS_BITS = 0x7fff,
};

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct input {
	struct capsule_ns ns[MAX_NS];
	struct capsule_limits limits;
};

/* As the target has them: blocks of 512 bytes to 4 KiB, namespaces of less than 2^63 bytes. */
static void read_limits(const uint8_t *head, struct input *in)
{
	uint32_t max_data;
	uint64_t blocks;

	memcpy(&max_data, head + 4, sizeof max_data);
	memcpy(&blocks, head + 8, sizeof blocks);
	for (uint32_t i = 0; i < MAX_NS; i++) {
		const uint32_t shift = 9 + (head[3] + i) % 4;

		in->ns[i] = (struct capsule_ns){
			.blocks = le64toh(blocks) >> i & (UINT64_MAX >> (shift + 1)),
			.block_shift = shift,
			.read_only = head[1] & READ_ONLY && i % 2 == 0,
		};
	}
	in->limits = (struct capsule_limits){
		.queue = (enum capsule_queue)(head[0] % (CAPSULE_IO + 1)),
		.enabled = head[1] & ENABLED,
		.max_data = le32toh(max_data),
		.ns = in->ns,
		.nns = head[2] % (MAX_NS + 1),
	};
}

static bool allowed(const struct capsule_limits *limits, enum capsule_kind kind)
{
	switch (limits->queue) {
	case CAPSULE_NEW:
		return kind == CAPSULE_CONNECT;
	case CAPSULE_IO:
		return kind <= CAPSULE_DSM;
	default:
		if (kind == CAPSULE_PROPERTY_GET || kind == CAPSULE_PROPERTY_SET)
			return true;
		return limits->enabled && kind > CAPSULE_PROPERTY_GET && kind < CAPSULE_KINDS;
	}
}

static void check_data(const struct capsule_limits *limits, const struct capsule *cmd, size_t size)
{
	switch (cmd->data) {
	case CAPSULE_NO_DATA:
		CHECK(cmd->length == 0);
		break;
	case CAPSULE_INSIDE:
		CHECK(sizeof(struct wire_command) + (uint64_t)cmd->offset + cmd->length <= size);
		break;
	default:
		CHECK(cmd->addr <= UINT64_MAX - cmd->length);
	}
	if (cmd->data != CAPSULE_NO_DATA && cmd->kind <= CAPSULE_DSM)
		CHECK(cmd->length > 0 && cmd->length <= limits->max_data);
	if (cmd->kind == CAPSULE_READ || cmd->kind == CAPSULE_IDENTIFY ||
	    cmd->kind == CAPSULE_GET_LOG)
		CHECK(cmd->data == CAPSULE_STORE);
	if (cmd->kind == CAPSULE_WRITE || cmd->kind == CAPSULE_COMPARE ||
	    cmd->kind == CAPSULE_CONNECT || cmd->kind == CAPSULE_DSM)
		CHECK(cmd->data == CAPSULE_FETCH || cmd->data == CAPSULE_INSIDE);
	if (cmd->kind == CAPSULE_IDENTIFY)
		CHECK(cmd->length == WIRE_IDENTIFY);
	if (cmd->kind == CAPSULE_CONNECT)
		CHECK(cmd->length == WIRE_CONNECT_DATA);
}

static void check_inside(const struct capsule_ns *ns, uint64_t at, uint64_t bytes)
{
	const uint64_t size = ns->blocks << ns->block_shift;

	CHECK(at <= size && bytes <= size - at);
	CHECK(at % (1u << ns->block_shift) == 0 && bytes % (1u << ns->block_shift) == 0);
}

/* The ranges lie in memory of their own: so that a read behind them is found. */
static void check_ranges(const struct capsule_ns *ns, const struct capsule *cmd,
			 const uint8_t *data, size_t size)
{
	const uint32_t there = (uint32_t)(size / WIRE_DSM_RANGE);
	const uint32_t ranges = cmd->ranges < there ? cmd->ranges : there;
	uint64_t at, bytes;
	uint8_t *copy;

	CHECK(cmd->ranges > 0 && cmd->length == cmd->ranges * WIRE_DSM_RANGE);
	if (!ranges)
		return;
	copy = malloc((size_t)ranges * WIRE_DSM_RANGE);
	CHECK(copy);
	memcpy(copy, data, (size_t)ranges * WIRE_DSM_RANGE);
	if (capsule_check_ranges(ns, copy, ranges) == 0) {
		for (uint32_t i = 0; i < ranges; i++) {
			capsule_range(ns, copy, i, &at, &bytes);
			if (bytes)
				check_inside(ns, at, bytes);
		}
	}
	free(copy);
}

/* What was taken may be carried out as it stands. */
static void check_taken(const struct capsule_limits *limits, const struct capsule *cmd,
			const uint8_t *capsule, size_t size)
{
	const struct capsule_ns *ns;

	CHECK(allowed(limits, cmd->kind));
	CHECK(capsule_name(cmd->kind) != NULL);
	check_data(limits, cmd, size);
	if (cmd->kind > CAPSULE_DSM)
		return;
	CHECK(cmd->nsid > 0 && cmd->nsid <= limits->nns);
	ns = &limits->ns[cmd->nsid - 1];
	if (ns->read_only)
		CHECK(cmd->kind != CAPSULE_WRITE && cmd->kind != CAPSULE_ZEROES &&
		      !(cmd->kind == CAPSULE_DSM && cmd->deallocate));
	if (cmd->kind == CAPSULE_DSM) {
		check_ranges(ns, cmd, capsule + sizeof(struct wire_command),
			     size - sizeof(struct wire_command));
	} else if (cmd->kind != CAPSULE_FLUSH) {
		CHECK(cmd->bytes > 0);
		check_inside(ns, cmd->at, cmd->bytes);
		if (cmd->kind != CAPSULE_ZEROES)
			CHECK(cmd->length == cmd->bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in;
	struct capsule cmd;
	uint8_t *command;
	size_t have;
	int ret;

	if (size < HEAD)
		return 0;
	read_limits(data, &in);
	data += HEAD;
	size -= HEAD;
	/* No more than the command is its to look at. */
	have = size < sizeof(struct wire_command) ? size : sizeof(struct wire_command);
	command = malloc(have ? have : 1);
	CHECK(command);
	memcpy(command, data, have);
	memset(&cmd, 0x5a, sizeof cmd);
	ret = capsule_check(&in.limits, command, size, &cmd);
	CHECK((ret == -1) == (size < sizeof(struct wire_command)));
	CHECK(ret <= STATUS_BITS);
	if (ret >= 0)
		CHECK(cmd.opcode == command[0] && cmd.cid == (command[2] | command[3] << 8));
	if (ret == 0)
		check_taken(&in.limits, &cmd, data, size);
	free(command);
	return 0;
}
