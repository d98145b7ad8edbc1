/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgpool doctor: the RDMA devices. Each is opened, and memory is registered and queue pairs are
 * made on it for a moment, since what a device reports and what it does may differ.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "cli/doctor.h"
#include "cli/transfer.h"
#include "sgp_config.h"

/* A network interface that a software device could stand on: up, and not the loopback. */
static void find_interface(char *name, size_t size)
{
	struct ifaddrs *all = NULL;

	snprintf(name, size, "eth0");
	if (getifaddrs(&all))
		return;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_flags & IFF_UP && !(i->ifa_flags & IFF_LOOPBACK)) {
			snprintf(name, size, "%s", i->ifa_name);
			break;
		}
	freeifaddrs(all);
}

#define INSTEAD "; or try programs without one: sgpool softverbs -- COMMAND"

static void no_device(struct doctor *d, int err)
{
	struct problem *p;
	char interface[IF_NAMESIZE];

	if (access("/sys/class/infiniband", F_OK) == 0 &&
	    doctor_module("ib_uverbs") == MODULE_AVAILABLE) {
		p = doctor_problem(
			d, BLOCKS, "no-uverbs",
			"programs can't reach the RDMA devices: ib_uverbs is not loaded");
		doctor_mend(p, "%smodprobe ib_uverbs", d->sudo);
		return;
	}
	find_interface(interface, sizeof interface);
	/* ENOSYS is how libibverbs says that the kernel's RDMA interface is not there. */
	p = doctor_problem(d, BLOCKS, "no-device", "there is no RDMA device%s%s",
			   err && err != ENOSYS ? ": " : "",
			   err && err != ENOSYS ? strerror(err) : "");
	/* The last way needs no rights, and is not for real work. */
	if (doctor_module("rdma_rxe") != MODULE_MISSING)
		doctor_mend(
			p, "%smodprobe rdma_rxe && %srdma link add rxe0 type rxe netdev %s" INSTEAD,
			d->sudo, d->sudo, interface);
	else if (doctor_module("siw") != MODULE_MISSING)
		doctor_mend(p, "%smodprobe siw && %srdma link add siw0 type siw netdev %s" INSTEAD,
			    d->sudo, d->sudo, interface);
	else
		doctor_mend(
			p,
			"%sapt-get install linux-image-amd64 && %sreboot (Ubuntu: "
			"linux-modules-extra-$(uname -r), no reboot), then %srdma link add rxe0 "
			"type rxe netdev %s; for a container: on its host" INSTEAD,
			d->sudo, d->sudo, d->sudo, interface);
}

/* The network interface under a port; empty if there is none. */
static void port_interface(const char *device, unsigned int port, char *name, int size)
{
	char path[256];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/0", device,
		 port);
	doctor_read_line(path, name, size);
}

static const char *link_layer(uint8_t layer)
{
	return layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
	       : layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
						  : NULL;
}

/* Returns true if the port is active. */
static bool write_port(struct doctor *d, struct ibv_context *verbs, unsigned int port)
{
	const char *device = ibv_get_device_name(verbs->device);
	struct ibv_port_attr attr;
	char title[16], interface[IF_NAMESIZE];
	const int err = ibv_query_port(verbs, (uint8_t)port, &attr);

	if (err) {
		doctor_mend(doctor_problem(d, BLOCKS_DEVICE, "port",
					   "%s: port %u can't be queried: %s", device, port,
					   strerror(err < 0 ? -err : err)),
			    "dmesg | grep -i %s", device);
		return false;
	}
	snprintf(title, sizeof title, "port %u", port);
	port_interface(device, port, interface, sizeof interface);
	out_group(d->out, NULL, title);
	out_u64(d->out, "port", NULL, port);
	out_str(d->out, "state", "state", ibv_port_state_str(attr.state));
	out_str(d->out, "link_layer", "link layer", link_layer(attr.link_layer));
	out_str(d->out, "interface", "network interface", interface[0] ? interface : NULL);
	out_bytes(d->out, "active_mtu", "active MTU", UINT64_C(128) << attr.active_mtu);
	out_bytes(d->out, "max_msg_size", "largest message", attr.max_msg_sz);
	out_end(d->out);
	if (attr.state == IBV_PORT_ACTIVE)
		return true;
	struct problem *p = doctor_problem(d, BLOCKS_DEVICE, "port", "%s: port %u is %s", device,
					   port, ibv_port_state_str(attr.state));

	if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
		doctor_mend(p,
			    "see that the cable is in and a subnet manager runs: %ssystemctl start "
			    "opensm; ibstat %s",
			    d->sudo, device);
	else
		doctor_mend(p, "%sip link set %s up", d->sudo,
			    interface[0] ? interface : "INTERFACE");
	return false;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t inline_bytes)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_bytes},
	};

	return ibv_create_qp(pd, &attr);
}

/*
 * The most inline bytes that a queue pair with one SGE can have: no query tells, one has to ask for
 * a queue pair (ibv_create_qp(3)). Returns -1 if none can be made.
 */
static int probe_inline(struct ibv_pd *pd, struct ibv_cq *cq)
{
	uint32_t good = 0, bad = 8192;
	struct ibv_qp *qp = make_qp(pd, cq, 0);

	if (!qp)
		return -1;
	ibv_destroy_qp(qp);
	while (bad - good > 1) {
		const uint32_t middle = good + (bad - good) / 2;

		qp = make_qp(pd, cq, middle);
		if (qp) {
			ibv_destroy_qp(qp);
			good = middle;
		} else {
			bad = middle;
		}
	}
	return (int)good;
}

/* Register what a transfer needs. Returns 0, or a positive errno. */
static int probe_register(struct ibv_pd *pd)
{
	void *memory = mmap(NULL, TRANSFER_LOCKED, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	int err = 0;

	if (memory == MAP_FAILED)
		return errno;
	mr = ibv_reg_mr(pd, memory, TRANSFER_LOCKED, IBV_ACCESS_LOCAL_WRITE);
	if (mr)
		ibv_dereg_mr(mr);
	else
		err = errno ? errno : EIO;
	munmap(memory, TRANSFER_LOCKED);
	return err;
}

static bool register_problem(struct doctor *d, struct ibv_context *verbs, int err)
{
	const struct sgp_unregistered failed = {
		.verbs = verbs, .bytes = TRANSFER_LOCKED, .err = err};
	struct sgp_advice advice;
	const bool memlock = sgp_advise_registration(&advice, &failed);

	doctor_mend(doctor_problem(d, memlock ? BLOCKS : BLOCKS_DEVICE,
				   memlock ? "memlock" : "register", "%s: %s",
				   ibv_get_device_name(verbs->device), advice.what),
		    "%s", advice.mend);
	return false;
}

/* Returns true if memory can be registered and queue pairs made. */
static bool write_probes(struct doctor *d, struct ibv_context *verbs)
{
	const char *device = ibv_get_device_name(verbs->device);
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_cq *cq = ibv_create_cq(verbs, 4, NULL, NULL, 0);
	int inlined = -1, err = 0;

	if (pd && cq) {
		inlined = probe_inline(pd, cq);
		if (inlined < 0)
			err = errno;
	} else {
		err = errno;
	}
	if (inlined >= 0)
		out_u64(d->out, "max_inline", "max inline bytes (one SGE)", (uint64_t)inlined);
	else
		doctor_mend(doctor_problem(d, BLOCKS_DEVICE, "queues",
					   "%s: no queue pair can be made: %s", device,
					   strerror(err)),
			    "rdma resource show %s", device);
	if (pd)
		err = probe_register(pd);
	out_bool(d->out, "registers", "registers memory", pd && err == 0);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	if (err && pd)
		return register_problem(d, verbs, err);
	return inlined >= 0;
}

static const char *transport(enum ibv_transport_type type)
{
	return type == IBV_TRANSPORT_IB      ? "InfiniBand or RoCE"
	       : type == IBV_TRANSPORT_IWARP ? "iWARP"
					     : NULL;
}

/* Returns true if the device can be used. */
static bool write_opened(struct doctor *d, struct ibv_context *verbs)
{
	struct ibv_device_attr attr;
	bool active = false;
	const int err = ibv_query_device(verbs, &attr);

	if (err) {
		doctor_mend(doctor_problem(d, BLOCKS_DEVICE, "query", "%s can't be queried: %s",
					   ibv_get_device_name(verbs->device),
					   strerror(err < 0 ? -err : err)),
			    "dmesg | tail");
		return false;
	}
	out_str(d->out, "firmware", "firmware", attr.fw_ver[0] ? attr.fw_ver : NULL);
	out_u64(d->out, "max_sge", "max SGEs a request", (uint64_t)attr.max_sge);
	out_u64(d->out, "max_sge_rd", "max SGEs a READ", (uint64_t)attr.max_sge_rd);
	out_u64(d->out, "max_qp_wr", "max requests a queue", (uint64_t)attr.max_qp_wr);
	out_u64(d->out, "max_cqe", "max entries a completion queue", (uint64_t)attr.max_cqe);
	out_bytes(d->out, "max_mr_size", "largest registration", attr.max_mr_size);
	out_u64(d->out, "max_mr", "max registrations", (uint64_t)attr.max_mr);
	const bool works = write_probes(d, verbs);

	out_list(d->out, "ports", "ports");
	for (unsigned int port = 1; port <= attr.phys_port_cnt; port++)
		active |= write_port(d, verbs, port);
	out_end(d->out);
	return works && active;
}

static void write_device(struct doctor *d, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	char path[256], node[16];
	struct ibv_context *verbs;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/numa_node", name);
	doctor_read_line(path, node, sizeof node);
	out_group(d->out, NULL, name);
	out_str(d->out, "name", NULL, name);
	out_str(d->out, "file", "file", device->dev_name);
	out_str(d->out, "transport", "transport", transport(device->transport_type));
	out_str(d->out, "numa_node", "NUMA node", node[0] && node[0] != '-' ? node : NULL);
	errno = 0;
	verbs = ibv_open_device(device);
	if (verbs) {
		d->usable += write_opened(d, verbs);
		ibv_close_device(verbs);
	} else if (errno != EACCES && errno != EPERM) { /* those: seen at the file itself */
		doctor_mend(doctor_problem(d, BLOCKS_DEVICE, "open", "%s can't be opened: %s", name,
					   errno ? strerror(errno) : "no provider for it"),
			    "%sapt-get install ibverbs-providers; ls -l /dev/infiniband", d->sudo);
	}
	out_end(d->out);
}

static void write_fork(struct doctor *d)
{
#if SGP_HAVE_FORK_STATUS
	const enum ibv_fork_status status = ibv_is_fork_initialized();
	struct sgp_advice advice;

	out_str(d->out, "fork", "fork support",
		status == IBV_FORK_UNNEEDED  ? "given by the kernel"
		: status == IBV_FORK_ENABLED ? "on"
					     : "off");
	if (status == IBV_FORK_DISABLED && d->devices) {
		sgp_advise_fork(&advice);
		doctor_mend(doctor_problem(d, HINT, "fork", "%s", advice.what), "%s", advice.mend);
	}
#else
	out_str(d->out, "fork", "fork support", "not told by these verbs");
#endif
}

static void write_cm(struct doctor *d)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	const int err = errno;

	out_bool(d->out, "rdma_cm", "connection manager", channel != NULL);
	if (channel) {
		rdma_destroy_event_channel(channel);
		return;
	}
	/* Without a device it can't work; no permission is seen at the file itself. */
	if (d->devices == 0 || err == EACCES || err == EPERM)
		return;
	doctor_mend(doctor_problem(d, BLOCKS, "no-rdma-cm",
				   "the connection manager can't be reached: %s", strerror(err)),
		    "%smodprobe rdma_ucm", d->sudo);
}

void doctor_devices(struct doctor *d)
{
	struct ibv_device **list;
	int n = 0;

	errno = 0;
	list = ibv_get_device_list(&n);
	if (!list)
		n = 0;
	d->devices = n;
	if (n == 0)
		no_device(d, list ? 0 : errno);
	out_list(d->out, "devices", "devices");
	for (int i = 0; i < n; i++)
		write_device(d, list[i]);
	out_none(d->out, n);
	out_end(d->out);
	if (list)
		ibv_free_device_list(list);
	write_cm(d);
	write_fork(d);
}
