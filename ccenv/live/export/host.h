/* Stand-ins for the kernel's helpers, and a driver: the exported C as a shared library of the host, for tests. */
#ifndef HOST_RUN

#define SEC(name)
#define inline_always inline
#define KERNEL_TYPE
#define bpf_sk_storage_get(map, sk, value, flags) (&host_flow)
#define bpf_loop host_loop
#define bpf_map_lookup_elem(map, key) ((void)(key), &host_choice)
#define bpf_map_update_elem(map, key, value, flags) 0
#define bpf_ringbuf_output(map, data, size, flags) ((void)(data))

static inline void host_loop(u32 count, long (*callback)(u32, void *), void *data, u64 flags)
{
	(void)flags;
	for (u32 i = 0; i < count; i++)
		if (callback(i, data))
			return;
}

#else

/* The records of ccenv.live.export.twin: ACK_DTYPE and STATE_DTYPE. */
struct host_ack {
	u64 now_us;
	s32 rtt_us;
	u32 delivered, lost, data_segs_out, in_flight, app_limited, reord_seen, mss;
	u64 answer;
};

struct host_state {
	u64 step, C_L, C_U, C_L_lambda, q_U, qdel_L_steps, qdel_U, rate, pacing_rate_Bps, lo, hi;
	u32 utilised, cwnd, position, asked;
};

/* Begin a flow at the first record, whose rtt_us is that of the handshake, then take one ACK per record. */
void host_run(const struct host_ack *acks, u64 count, struct host_state *states)
{
	struct tcp_sock tp = {0};
	struct ack_sample sample = {0};
	unsigned long long ctx[2] = {(unsigned long long)&tp, (unsigned long long)&sample};

	tp.snd_cwnd_clamp = ~0U;
	tp.inet_conn.icsk_inet.sk.sk_max_pacing_rate = ~0UL;
	host_flow = (struct flow){0};
	for (u64 i = 0; i < count; i++) {
		tp.tcp_mstamp = acks[i].now_us;
		tp.mss_cache = acks[i].mss;
		tp.data_segs_out = acks[i].data_segs_out;
		tp.delivered = acks[i].delivered;
		tp.lost = acks[i].lost;
		tp.packets_out = acks[i].in_flight;
		tp.app_limited = acks[i].app_limited;
		tp.reord_seen = acks[i].reord_seen;
#ifdef ASKED
		host_choice.answer = acks[i].answer;
#endif
		if (i == 0) {
			tp.srtt_us = acks[i].rtt_us > 0 ? (u32)acks[i].rtt_us << 3 : 0;
			program_init(ctx);
		} else {
			sample.rtt_us = acks[i].rtt_us;
			program_pkts_acked(ctx);
			program_cong_control(ctx);
		}
		states[i] = (struct host_state){
			host_flow.step, host_flow.C_L, host_flow.C_U, host_flow.C_L_lambda, host_flow.q_U,
			host_flow.qdel_L_steps, host_flow.qdel_U, host_flow.rate, tp.inet_conn.icsk_inet.sk.sk_pacing_rate,
#ifdef CONTRACT
			host_flow.lo, host_flow.hi, host_flow.utilised, tp.snd_cwnd, host_flow.position, host_flow.asked,
#else
			0, 0, host_flow.utilised, tp.snd_cwnd, 0, 0,
#endif
		};
	}
}

#endif
