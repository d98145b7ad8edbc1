/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager: addresses, events in their order, what a refusal and a goodbye look like.
 */
#include <arpa/inet.h>
#include <unistd.h>

#include "behaviours.h"

static struct rdma_event_channel *ec;

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id = NULL;

	if (!ec)
		ec = rdma_create_event_channel();
	cf_need(ec && !rdma_create_id(ec, &id, NULL, RDMA_PS_TCP), "create_id");
	return id;
}

/* In the peer's process, if there is one. */
static struct rdma_cm_id *new_listener(void)
{
	struct rdma_cm_id *id = NULL;

	if (!ec)
		ec = rdma_create_event_channel();
	cf_need(ec && !rdma_create_id(cf_peer_channel(ec), &id, NULL, RDMA_PS_TCP), "create_id");
	return id;
}

static int bind_to(struct rdma_cm_id *id, const char *ip, uint16_t port)
{
	struct sockaddr_in a = cf.addr;

	if (ip)
		inet_pton(AF_INET, ip, &a.sin_addr);
	a.sin_port = htons(port);
	return rdma_bind_addr(id, (struct sockaddr *)&a);
}

void b_cm_bind(void)
{
	struct rdma_cm_id *id = new_id(), *any = new_id();

	say(" verbs_before=%d", id->verbs != NULL);
	say_ret("own", bind_to(id, NULL, 0));
	say(" verbs=%d pd=%d port_given=%d port_num=%d", id->verbs != NULL, id->pd != NULL,
	    rdma_get_src_port(id) != 0, id->port_num);
	say_ret("again", bind_to(id, NULL, 0));
	say_ret("any", bind_to(any, "0.0.0.0", 0));
	say(" any_verbs=%d any_port=%d", any->verbs != NULL, rdma_get_src_port(any) != 0);
}

void b_cm_bind_foreign(void)
{
	say_ret("not_ours", bind_to(new_id(), "192.0.2.77", 0));
}

void b_cm_bind_family(void)
{
	struct sockaddr a = {.sa_family = AF_UNIX};

	say_ret("unix", rdma_bind_addr(new_id(), &a));
}

void b_cm_port_in_use(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id(), *c = new_id();

	say_ret("first", bind_to(a, NULL, cf.ports));
	say_ret("second", bind_to(b, NULL, cf.ports));
	say_ret("listen", rdma_listen(a, 1));
	say_ret("third", bind_to(c, "0.0.0.0", cf.ports));
}

void b_cm_reuse(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	int on = 1;

	say_ret("set",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
	rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
	say_ret("first", bind_to(a, NULL, cf.ports));
	say_ret("second", bind_to(b, NULL, cf.ports));
	say_ret("listen", rdma_listen(a, 1));
	say_ret("listen_too", rdma_listen(b, 1));
	say_ret("bad_option", rdma_set_option(a, RDMA_OPTION_ID, 99, &on, sizeof on));
}

void b_cm_listen_unbound(void)
{
	struct rdma_cm_id *id = new_id();

	say_ret("listen", rdma_listen(id, 1));
	say(" port=%d", rdma_get_src_port(id) != 0);
	say_ret("again", rdma_listen(id, 1));
}

static struct rdma_cm_id *resolved(uint16_t port)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_in a = cf.addr;

	a.sin_port = htons(port);
	cf_need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000), "resolve_addr");
	say_event("addr", ec, 2000);
	return id;
}

void b_cm_resolve(void)
{
	struct rdma_cm_id *id = resolved(7471);

	say(" verbs=%d port=%d src_port=%d", id->verbs != NULL, ntohs(rdma_get_dst_port(id)),
	    rdma_get_src_port(id) != 0);
	say(" src_is_dst=%d", id->route.addr.src_sin.sin_addr.s_addr == cf.addr.sin_addr.s_addr);
	say_ret("route", rdma_resolve_route(id, 2000));
	say_event("route", ec, 2000);
	say(" paths=%d", id->route.num_paths);
	say_ret("route_again", rdma_resolve_route(id, 2000));
}

void b_cm_too_early(void)
{
	struct rdma_conn_param p = {0};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_cm_id *id = new_id();

	cf_need(!bind_to(id, NULL, 0), "bind");
	say_ret("route", rdma_resolve_route(id, 1000));
	say_ret("qp", rdma_create_qp(id, NULL, &a));
	say_ret("connect", rdma_connect(id, &p));
	say_ret("accept", rdma_accept(id, &p));
	say_ret("reject", rdma_reject(id, NULL, 0));
	say_ret("disconnect", rdma_disconnect(id));
}

void b_cm_nobody_listens(void)
{
	struct rdma_conn_param p = {0};
	struct rdma_cm_id *id = resolved(7999);
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};

	rdma_resolve_route(id, 2000);
	say_event("route", ec, 2000);
	cf_need(!rdma_create_qp(id, NULL, &a), "create_qp");
	say_ret("connect", rdma_connect(id, &p));
	say_event("event", ec, 3000);
	say_state("qp", id->qp);
}

void b_cm_private_data(void)
{
	struct pair p = {.hello = "hi", .answer = "there"};
	struct rdma_cm_event *heard[2] = {NULL, NULL};
	struct rdma_conn_param param = {.private_data = "there", .private_data_len = 6};

	pair_make(&p);
	cf_need(!rdma_accept(p.b.id, &param), "accept");
	/* Which end hears first is not said. */
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *e = next_event(p.ec, 2000);

		cf_need(e && (e->id == p.a.id || e->id == p.b.id), "event");
		heard[e->id == p.b.id] = e;
	}
	cf_need(heard[0] && heard[1], "an event of each end");
	for (int i = 0; i < 2; i++) {
		const struct rdma_conn_param *c = &heard[i]->param.conn;

		say(" %s: %s len=%d text=%s", i ? "passive" : "active",
		    rdma_event_str(heard[i]->event), c->private_data_len,
		    c->private_data ? (const char *)c->private_data : "");
		rdma_ack_cm_event(heard[i]);
	}
}

/* A listener and an id that asks it; the request's event is returned unacknowledged. */
static struct rdma_cm_event *ask(struct rdma_cm_id **a, struct rdma_cm_id **l,
				 struct rdma_conn_param *p)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_cm_event *e;

	*l = new_listener();
	cf_need(!bind_to(*l, NULL, cf.ports) && !rdma_listen(*l, 4), "listen");
	*a = resolved(cf.ports);
	rdma_resolve_route(*a, 2000);
	say_event("route", ec, 2000);
	cf_need(!rdma_create_qp(*a, NULL, &attr), "create_qp");
	if (rdma_connect(*a, p)) {
		say(" connect=%s", cf_err(errno));
		exit(0);
	}
	e = next_event(ec, 3000);
	cf_need(e && e->event == RDMA_CM_EVENT_CONNECT_REQUEST, "request");
	return e;
}

void b_cm_request(void)
{
	struct rdma_conn_param p = {.private_data = "hi",
				    .private_data_len = 3,
				    .responder_resources = 2,
				    .initiator_depth = 3,
				    .retry_count = 5,
				    .rnr_retry_count = 6};
	struct rdma_cm_id *a, *l;
	struct rdma_cm_event *e = ask(&a, &l, &p);
	struct rdma_conn_param *c = &e->param.conn;

	say(" listen_id=%d status=%d len=%d text=%s resp=%d init=%d retry=%d rnr=%d qpn=%d",
	    e->listen_id == l, e->status, c->private_data_len, (const char *)c->private_data,
	    c->responder_resources, c->initiator_depth, c->retry_count, c->rnr_retry_count,
	    c->qp_num == a->qp->qp_num);
	say(" verbs=%d channel=%d port=%d", e->id->verbs != NULL, e->id->channel == ec,
	    rdma_get_dst_port(e->id) == rdma_get_src_port(a));
}

void b_cm_request_long(void)
{
	static char text[255];
	struct rdma_conn_param p = {.private_data = text, .private_data_len = 57};
	struct rdma_cm_id *a, *l;

	ask(&a, &l, &p);
	say(" 57=ok");
}

void b_cm_request_depths(void)
{
	struct rdma_conn_param p = {.responder_resources = 200, .initiator_depth = 200};
	struct rdma_cm_id *a, *l;

	ask(&a, &l, &p);
	say(" 200=ok");
}

void b_cm_reject(void)
{
	struct rdma_conn_param p = {0};
	struct rdma_cm_id *a, *l;
	struct rdma_cm_event *e = ask(&a, &l, &p);

	say_ret("reject", rdma_reject(e->id, "no", 3));
	rdma_ack_cm_event(e);
	e = next_event(ec, 2000);
	cf_need(e != NULL, "event");
	say(" %s status=%d len=%d text=%s", rdma_event_str(e->event), e->status,
	    e->param.conn.private_data_len,
	    e->param.conn.private_data ? (const char *)e->param.conn.private_data : "");
	rdma_ack_cm_event(e);
	say_state("qp", a->qp);
	say_ret("connect_again", rdma_connect(a, &p));
}

void b_cm_passive_gone(void)
{
	struct rdma_conn_param p = {0};
	struct rdma_cm_id *a, *l, *b;
	struct rdma_cm_event *e = ask(&a, &l, &p);

	b = e->id;
	rdma_ack_cm_event(e);
	say_ret("destroy", rdma_destroy_id(b));
	say_event("active", ec, 3000);
}

void b_cm_active_gone(void)
{
	struct rdma_conn_param p = {0};
	struct rdma_cm_id *a, *l, *b;
	struct rdma_cm_event *e = ask(&a, &l, &p);

	b = e->id;
	rdma_ack_cm_event(e);
	rdma_destroy_qp(a);
	say_ret("destroy", rdma_destroy_id(a));
	say_event("passive", ec, 3000);
	say(" b=%d", b->verbs != NULL);
}

void b_cm_accept_too_late(void)
{
	struct rdma_conn_param p = {0};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_cm_id *a, *l, *b;
	struct rdma_cm_event *e = ask(&a, &l, &p);

	b = e->id;
	rdma_ack_cm_event(e);
	cf_need(!rdma_create_qp(b, NULL, &attr), "create_qp");
	rdma_destroy_qp(a);
	rdma_destroy_id(a);
	cf_sleep(200);
	say_ret("accept", rdma_accept(b, &p));
	say_event("passive", ec, 2000);
}

void b_cm_accept_twice(void)
{
	struct pair p = {0};
	struct rdma_conn_param param = {0};

	pair_connect(&p);
	say_ret("accept", rdma_accept(p.b.id, &param));
	say_ret("connect", rdma_connect(p.a.id, &param));
	say_ret("establish", rdma_establish(p.a.id));
}

void b_cm_states(void)
{
	struct pair p = {0};
	struct rdma_conn_param param = {.rnr_retry_count = 7};

	pair_make(&p);
	say_state("a_made", p.a.qp);
	say_state("b_made", p.b.qp);
	cf_need(!rdma_accept(p.b.id, &param), "accept");
	say_state("b_accepted", p.b.qp);
	say_event("first", p.ec, 2000);
	say_state("a_established", p.a.qp);
	say_event("second", p.ec, 2000);
	say_state("b_established", p.b.qp);
}

void b_cm_qp_attr(void)
{
	struct pair p = {0};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr q;

	pair_connect(&p);
	cf_need(!ibv_query_qp(p.a.qp, &q, 0xffff, &init), "query_qp");
	say(" retry=%d rnr=%d rd=%d dest_rd=%d dest_qp=%d access=%#x", q.retry_cnt, q.rnr_retry,
	    q.max_rd_atomic, q.max_dest_rd_atomic, q.dest_qp_num == p.b.qp->qp_num,
	    q.qp_access_flags);
}

void b_cm_disconnect(void)
{
	struct pair p = {0};

	pair_connect(&p);
	post_recv(&p.a, 1, 0, 64);
	post_recv(&p.b, 2, 0, 64);
	say_ret("disconnect", rdma_disconnect(p.a.id));
	say_event("first", p.ec, 2000);
	say_event("second", p.ec, 500);
	say_state("a", p.a.qp);
	say_state("b", p.b.qp);
	say_all("a_recv", p.a.rcq, 200);
	say_all("b_recv", p.b.rcq, 200);
	say_ret("answer", rdma_disconnect(p.b.id));
	say_event("third", p.ec, 1000);
	say_all("b_recv", p.b.rcq, 200);
	say_ret("once_more", rdma_disconnect(p.a.id));
}

void b_cm_disconnect_who(void)
{
	struct pair p = {0};
	struct rdma_cm_event *e;

	pair_connect(&p);
	rdma_disconnect(p.b.id);
	e = next_event(p.ec, 2000);
	say(" first=%s", !e ? "nobody" : e->id == p.a.id ? "peer" : "self");
	if (e)
		rdma_ack_cm_event(e);
	rdma_disconnect(p.a.id);
	e = next_event(p.ec, 2000);
	say(" then=%s", !e ? "nobody" : e->id == p.a.id ? "peer" : "self");
}

void b_cm_destroy_connected(void)
{
	struct pair p = {0};

	pair_connect(&p);
	rdma_destroy_qp(p.a.id);
	say_ret("destroy", rdma_destroy_id(p.a.id));
	say_event("peer", p.ec, 3000);
	say_state("b", p.b.qp);
}

/* The peer's QP is gone, but not its id: what a sender sees. */
void b_cm_peer_qp_gone(void)
{
	struct pair p = {0};

	pair_connect(&p);
	rdma_destroy_qp(p.b.id);
	cf_sleep(200);
	say_post("post", post_send(&p.a, 1, 0, 8, IBV_SEND_SIGNALED));
	say_all("send", p.a.scq, 8000);
	say_event("event", p.ec, 300);
}

void b_cm_qp_twice(void)
{
	struct pair p = {0};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};

	pair_connect(&p);
	say_ret("second_qp", rdma_create_qp(p.a.id, p.a.pd, &a));
}

void b_cm_own_cqs(void)
{
	struct rdma_cm_id *id = new_id();
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {5, 3, 1, 1, 0}};

	cf_need(!bind_to(id, NULL, 0), "bind");
	say_ret("create", rdma_create_qp(id, NULL, &a));
	say(" cqs=%d%d channels=%d%d", id->send_cq != NULL, id->recv_cq != NULL,
	    id->send_cq_channel != NULL, id->recv_cq_channel != NULL);
	say(" context=%d", id->send_cq && id->send_cq->cq_context == id);
	rdma_destroy_qp(id);
	say(" after=%d%d", id->qp != NULL, id->send_cq != NULL);
}

void b_cm_getaddrinfo(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;

	say_ret("active", rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res));
	say(" dst=%d src=%d qp=%d ps=%#x", res->ai_dst_len > 0, res->ai_src_len > 0,
	    res->ai_qp_type, res->ai_port_space);
	hints.ai_flags = RAI_PASSIVE;
	say_ret("passive", rdma_getaddrinfo(NULL, "7471", &hints, &res));
	say(" src=%d flags=%d", res->ai_src_len > 0, res->ai_flags);
	say(" nonsense=%d", rdma_getaddrinfo("no.such.host.invalid", "7471", &hints, &res) != 0);
}

void b_cm_migrate(void)
{
	struct pair p = {0};
	struct rdma_event_channel *other = rdma_create_event_channel();

	pair_connect(&p);
	say_ret("migrate", rdma_migrate_id(p.a.id, other));
	rdma_disconnect(p.b.id);
	say_event("new", other, 2000);
	say_event("old", p.ec, 300);
}

void b_cm_event_strings(void)
{
	say(" %s %s %s", rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED),
	    rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), rdma_event_str(77));
	say(" [%s] [%s] [%s]", ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR),
	    ibv_wc_status_str(IBV_WC_SUCCESS), ibv_event_type_str(IBV_EVENT_CQ_ERR));
}

void b_cm_backlog(void)
{
	struct rdma_conn_param p = {0};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_event_channel *mine = rdma_create_event_channel();
	struct rdma_cm_id *l = new_listener(), *id[3];

	cf_need(!bind_to(l, NULL, cf.ports) && !rdma_listen(l, 1), "listen");
	for (int i = 0; i < 3; i++) {
		struct sockaddr_in a = cf.addr;

		a.sin_port = htons(cf.ports);
		cf_need(!rdma_create_id(mine, &id[i], NULL, RDMA_PS_TCP) &&
				!rdma_resolve_addr(id[i], NULL, (struct sockaddr *)&a, 2000),
			"resolve");
		rdma_ack_cm_event(next_event(mine, 2000));
		rdma_resolve_route(id[i], 2000);
		rdma_ack_cm_event(next_event(mine, 2000));
		cf_need(!rdma_create_qp(id[i], NULL, &attr), "create_qp");
	}
	for (int i = 0; i < 3; i++) {
		say_ret("connect", rdma_connect(id[i], &p));
		cf_sleep(100);
	}
	say_event("listener", ec, 1000);
	say_event("listener", ec, 300);
	say_event("actives", mine, 300);
	say_event("actives", mine, 300);
}
