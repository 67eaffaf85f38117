/* In the emulator of a computer, by LD_PRELOAD: a byte that the guest writes to its port is a question to the emulator of the network.
 *
 * The guest's instructions are its clock, and it stands still while it writes. So the answer comes at the time of the question.
 * Questions, answers and both devices' packets are those of clock.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>
#include "shared.h"

enum { FULL_MAJOR = 1, FULL_MINOR = 7 }; /* /dev/full, to which the port is connected */
static int ends[4];			 /* senders' and receivers' device, question, answer */
static struct shared *shared;
static int64_t waiting[2];

static void ask(void)
{
	int64_t flow = shared->flow, answer[3];
	int64_t question[3] = { flow ? -flow : shared->now, shared->n_sent[0], shared->n_sent[1] };
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int end = 0; end < 2 && !flow; end++)
		for (int i = 0; i < shared->n_sent[end]; i++)
			if (send(ends[end], shared->sent[end][i].bytes, shared->sent[end][i].size, 0) < 0)
				question[1 + end]--;
	if (write(ends[2], question, sizeof question) != sizeof question || read(ends[3], answer, sizeof answer) != sizeof answer)
		_exit(0); /* the run has ended */
	shared->due = answer[0];
	for (int end = 0; end < 2 && !flow; end++) {
		waiting[end] += answer[1 + end];
		shared->n_due[end] = 0;
		for (; waiting[end] && shared->n_due[end] < SLOTS; waiting[end]--) {
			struct slot *slot = &shared->arrived[end][shared->n_due[end]++];
			slot->size = recv(ends[end], slot->bytes, sizeof slot->bytes, 0);
		}
		if (waiting[end])
			shared->due = shared->now;
	}
	pthread_sigmask(SIG_SETMASK, &old, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);
	static int port = -1;
	struct stat about;
	if (!real)
		real = dlsym(RTLD_NEXT, "writev");
	if (port < 0 && shared && !fstat(fd, &about) && S_ISCHR(about.st_mode) && about.st_rdev == makedev(FULL_MAJOR, FULL_MINOR))
		port = fd;
	if (fd != port || port < 0)
		return real(fd, parts, count);
	ask();
	return parts->iov_len;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("CCENV_VIRTUAL");
	int fd = open("shared", O_RDWR);
	if (!text || fd < 0 || sscanf(text, "%d,%d,%d,%d", ends, ends + 1, ends + 2, ends + 3) != 4)
		return;
	shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		_exit(1);
	close(fd);
}
