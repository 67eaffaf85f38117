/* The first and only process of the guest: devices, one socket pair per flow, applications, and TCP_INFO at every row of the log.
 *
 * Reads /run.txt (ccenv.live.virtual.run writes it). Two datagrams that the link does not carry speak to the emulator: the first
 * one sets time 0, each later one has a flow, a row and its TCP_INFO. Prints one line and powers the guest off if a step fails.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FLOWS = 16, FIRST_PORT = 20000, FIRST_SINK_PORT = 30000, REPORT_PORT = 9, INFO_BYTES = 256, CHUNK = 16384 };
enum { KEPT = 128 << 10, QUEUE = 30000, TIMER = 64, HELLO = 0xffff };
static const char *const ADDRESSES[] = { "10.77.0.1", "10.77.0.2" };

struct flow {
	char control[16];
	long long start, stop; /* nanoseconds */
	double size, offered;  /* bytes; a negative size: always more */
	int sender, listener, sink, open;
};
static struct flow flows[MOST_FLOWS];
static char zeros[CHUNK];

static void end(const char *step)
{
	if (step)
		printf("ccenv: %s: %s\n", step, strerror(errno));
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
}

static int need(int result, const char *step)
{
	if (result < 0)
		end(step);
	return result;
}

static struct {
	struct nlmsghdr head;
	char body[256];
} message;

static void begin(int kind, int flags, const void *body, int size)
{
	memset(&message, 0, sizeof message);
	message.head = (struct nlmsghdr){ NLMSG_LENGTH(size), kind, NLM_F_REQUEST | NLM_F_ACK | flags, 1, 0 };
	memcpy(NLMSG_DATA(&message.head), body, size);
}

static struct rtattr *add(int kind, const void *value, int size)
{
	struct rtattr *at = (void *)((char *)&message + NLMSG_ALIGN(message.head.nlmsg_len));
	at->rta_type = kind;
	at->rta_len = RTA_LENGTH(size);
	memcpy(RTA_DATA(at), value, size);
	message.head.nlmsg_len = NLMSG_ALIGN(message.head.nlmsg_len) + RTA_ALIGN(at->rta_len);
	return at;
}

static void request(const char *step)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[512];
	} answer;
	int fd = need(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), step);
	need(send(fd, &message, message.head.nlmsg_len, 0), step);
	need(recv(fd, &answer, sizeof answer, 0), step);
	errno = -answer.error.error;
	need(answer.error.error, step);
	close(fd);
}

/* Address, queue, segments per packet of a device of this namespace; it shares its hardware address with its peer. */
static void raise_device(int end_number, int mtu, int burst, int quick)
{
	struct ifreq device = { 0 };
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct ethtool_value off = { ETHTOOL_SGRO, 0 };
	int fd = need(socket(AF_INET, SOCK_DGRAM, 0), "socket"), queue = QUEUE;
	snprintf(device.ifr_name, IFNAMSIZ, "vec%d", end_number);
	device.ifr_mtu = mtu;
	need(ioctl(fd, SIOCSIFMTU, &device), "mtu");
	device.ifr_data = (void *)&off;
	need(ioctl(fd, SIOCETHTOOL, &device), "gro");
	inet_pton(AF_INET, ADDRESSES[end_number], &address.sin_addr);
	memcpy(&device.ifr_addr, &address, sizeof address);
	need(ioctl(fd, SIOCSIFADDR, &device), "address");
	inet_pton(AF_INET, "255.255.255.0", &address.sin_addr);
	memcpy(&device.ifr_netmask, &address, sizeof address);
	need(ioctl(fd, SIOCSIFNETMASK, &device), "mask");
	need(ioctl(fd, SIOCGIFFLAGS, &device), "flags");
	device.ifr_flags |= IFF_UP | IFF_NOARP;
	need(ioctl(fd, SIOCSIFFLAGS, &device), "up");
	int index = if_nametoindex(device.ifr_name);
	struct ifinfomsg link = { .ifi_index = index };
	begin(RTM_NEWLINK, 0, &link, sizeof link);
	add(IFLA_TXQLEN, &queue, 4);
	if (burst)
		add(IFLA_GSO_MAX_SEGS, &burst, 4);
	request("link");
	if (quick) {
		struct rtmsg route = { AF_INET, 24, 0, 0, RT_TABLE_MAIN, RTPROT_KERNEL, RT_SCOPE_LINK, RTN_UNICAST, 0 };
		int one = 1;
		struct in_addr network;
		begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route, sizeof route);
		inet_pton(AF_INET, "10.77.0.0", &network);
		add(RTA_DST, &network, 4);
		add(RTA_OIF, &index, 4);
		inet_pton(AF_INET, ADDRESSES[end_number], &network);
		add(RTA_PREFSRC, &network, 4);
		struct rtattr inner = { RTA_LENGTH(4), RTAX_QUICKACK };
		char nested[8];
		memcpy(nested, &inner, 4);
		memcpy(nested + 4, &one, 4);
		add(RTA_METRICS | NLA_F_NESTED, nested, 8);
		request("route");
	}
	close(fd);
}

static void set(const char *key, const char *value)
{
	int fd = open(key, O_WRONLY);
	if (fd >= 0) {
		need(write(fd, value, strlen(value)), key);
		close(fd);
	}
}

static void set_space(void)
{
	set("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
	set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
}

static struct sockaddr_in place(int end_number, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, ADDRESSES[end_number], &at.sin_addr);
	return at;
}

static int64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void load(const char *control)
{
	char name[64];
	int fd;
	if (!strcmp(control, "yeah"))
		load("vegas"); /* yeah uses its functions */
	snprintf(name, sizeof name, "/tcp_%s.ko", control);
	if ((fd = open(name, O_RDONLY)) >= 0) {
		if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
			end(name);
		close(fd);
	}
}

int main(void)
{
	long long duration, every, lead;
	int n, buffer, quick, burst, mtu, one = 1, low = KEPT;
	FILE *file = fopen("/run.txt", "r");
	if (!file || fscanf(file, "%lld %lld %lld %d %d %d %d %d", &duration, &every, &lead, &n, &buffer, &quick, &burst, &mtu) != 8)
		end("run.txt");
	for (int i = 0; i < n; i++)
		if (fscanf(file, "%15s %lld %lld %lf", flows[i].control, &flows[i].start, &flows[i].stop, &flows[i].size) != 4)
			end("run.txt");
	fclose(file);
	mkdir("/proc", 0755);
	need(mount("proc", "/proc", "proc", 0, 0), "proc");
	set("/proc/sys/net/ipv4/tcp_mem", "1000000 1000000 1000000");
	for (int i = 0; i < n; i++)
		load(flows[i].control);

	int here = need(open("/proc/self/ns/net", O_RDONLY), "namespace");
	set_space();
	raise_device(0, mtu, burst, 0);
	int report = need(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	struct sockaddr_in there = place(1, REPORT_PORT);
	need(connect(report, (void *)&there, sizeof there), "report");
	for (int i = 0; i < n; i++) {
		struct linger none = { 1, 0 };
		struct sockaddr_in at = place(0, FIRST_PORT + i);
		int fd = flows[i].sender = need(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
		setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, 4);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, 4);
		setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, 4);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
		need(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, flows[i].control, strlen(flows[i].control)), flows[i].control);
		need(bind(fd, (void *)&at, sizeof at), "bind");
	}
	need(unshare(CLONE_NEWNET), "namespace");
	int far = need(open("/proc/self/ns/net", O_RDONLY), "namespace");
	need(setns(here, CLONE_NEWNET), "namespace");
	struct ifinfomsg link = { .ifi_index = if_nametoindex("vec1") };
	begin(RTM_NEWLINK, 0, &link, sizeof link);
	add(IFLA_NET_NS_FD, &far, 4);
	request("vec1");
	need(setns(far, CLONE_NEWNET), "namespace");
	set_space();
	raise_device(1, mtu, burst, quick);
	for (int i = 0; i < n; i++) {
		struct sockaddr_in at = place(1, FIRST_SINK_PORT + i);
		int fd = flows[i].listener = need(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, 4);
		need(bind(fd, (void *)&at, sizeof at), "bind");
		need(listen(fd, 1), "listen");
	}

	struct {
		uint32_t flow, row;
		int64_t lead;
		char info[INFO_BYTES];
	} datagram = { .flow = HELLO, .lead = lead };
	int64_t zero = clock_ns() + lead;
	need(send(report, &datagram, sizeof datagram, 0), "report");
	for (int i = 0; i < n; i++) {
		struct sockaddr_in at = place(1, FIRST_SINK_PORT + i);
		if (connect(flows[i].sender, (void *)&at, sizeof at) < 0 && errno != EINPROGRESS)
			end("connect");
	}
	struct timespec before = { .tv_sec = (zero - 60000000) / 1000000000, .tv_nsec = (zero - 60000000) % 1000000000 };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &before, 0);
	int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	for (int i = 0; i < n; i++) {
		struct flow *flow = flows + i;
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = MOST_FLOWS + i };
		flow->sink = need(accept4(flow->listener, 0, 0, SOCK_NONBLOCK), "the flows could not connect through the emulator");
		setsockopt(flow->sink, SOL_SOCKET, SO_RCVLOWAT, &low, 4);
		epoll_ctl(poll, EPOLL_CTL_ADD, flow->sink, &event);
		event = (struct epoll_event){ .events = EPOLLOUT | EPOLLET, .data.u32 = i };
		epoll_ctl(poll, EPOLL_CTL_ADD, flow->sender, &event);
		flow->open = 1;
	}
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = TIMER };
	epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);

	for (long long row = 0;;) {
		long long t = clock_ns() - zero, next = row * every;
		for (int i = 0; i < n; i++) {
			struct flow *flow = flows + i;
			if (flow->open && t >= flow->stop) {
				close(flow->sender);
				flow->open = 0;
			}
			if (flow->open && t >= flow->start) {
				ssize_t sent = 1;
				while (sent > 0 && (flow->size < 0 || flow->offered < flow->size)) {
					double left = flow->size < 0 ? CHUNK : flow->size - flow->offered;
					sent = send(flow->sender, zeros, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
					flow->offered += sent > 0 ? sent : 0;
				}
			}
			if (t < flow->start && flow->start < next)
				next = flow->start;
			if (flow->open && flow->stop < next)
				next = flow->stop;
		}
		if (t >= row * every) {
			for (int i = 0; i < n; i++) {
				socklen_t size = INFO_BYTES;
				datagram.flow = i;
				datagram.row = row;
				memset(datagram.info, 0, INFO_BYTES);
				if (flows[i].open && !getsockopt(flows[i].sender, IPPROTO_TCP, TCP_INFO, datagram.info, &size))
					need(send(report, &datagram, sizeof datagram, 0), "report");
			}
			row++;
			continue;
		}
		if (t > duration + 100000000)
			end(0);
		struct itimerspec wait = { .it_value = { (zero + next) / 1000000000, (zero + next) % 1000000000 } };
		timerfd_settime(timer, TFD_TIMER_ABSTIME, &wait, 0);
		struct epoll_event events[2 * MOST_FLOWS + 1];
		int count = epoll_wait(poll, events, 2 * MOST_FLOWS + 1, -1);
		for (int i = 0; i < count; i++)
			if (events[i].data.u32 >= MOST_FLOWS && events[i].data.u32 < TIMER)
				recv(flows[events[i].data.u32 - MOST_FLOWS].sink, 0, 1 << 24, MSG_TRUNC);
	}
}
