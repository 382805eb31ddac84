/* A round of the bench "drain" with libuv. benches/common/peers/foreign.rs says what it is told and what it says. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <uv.h>

enum { KEEP = 2 << 20, READ = 64 << 10, WARM_UP = 10, RINGS = 1024 };

static char *rings[RINGS];
static int spare;

/* The newest bytes of a stream, in a ring that is read into directly and recycled. */
struct tail {
    uv_pipe_t pipe;
    char *ring;
    size_t at;
    uint64_t total;
    struct child *of;
};

struct child {
    uv_process_t process;
    struct tail tails[2];
    int left; /* two ends of file and the exit */
    uint64_t status, verdict;
};

static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, uv_strerror(result));
        exit(1);
    }
}

static void *some(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) check(UV_ENOMEM, "memory");
    return memory;
}

static uint64_t cpu(void) {
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static void one_less(struct child *child) {
    if (--child->left == 0) child->verdict = uv_hrtime();
}

static void space(uv_handle_t *handle, size_t hint, uv_buf_t *buffer) {
    struct tail *tail = handle->data;
    (void)hint;
    size_t room = KEEP - tail->at;
    *buffer = uv_buf_init(tail->ring + tail->at, room < READ ? (unsigned)room : READ);
}

static void took(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    struct tail *tail = stream->data;
    (void)buffer;
    if (n > 0) {
        tail->at = (tail->at + (size_t)n) % KEEP;
        tail->total += (uint64_t)n;
    } else if (n == UV_EOF) {
        one_less(tail->of);
        uv_close((uv_handle_t *)stream, NULL);
    } else {
        check((int)n, "read");
    }
}

static void ended(uv_process_t *process, int64_t status, int signal) {
    struct child *child = process->data;
    (void)status;
    (void)signal;
    child->status = uv_hrtime();
    one_less(child);
    uv_close((uv_handle_t *)process, NULL);
}

static struct child *start(char *program, char *role, char *number, int inherit) {
    struct child *child = some(sizeof *child);
    char *args[] = {program, role, number, NULL};
    uv_stdio_container_t stdio[3] = {{0}};
    uv_process_options_t options = {0};
    if (inherit) {
        stdio[0].flags = UV_INHERIT_FD;
        stdio[0].data.fd = 0;
    } else {
        stdio[0].flags = UV_IGNORE;
    }
    for (int i = 0; i < 2; i++) {
        struct tail *tail = &child->tails[i];
        check(uv_pipe_init(uv_default_loop(), &tail->pipe, 0), "pipe");
        tail->pipe.data = tail;
        tail->of = child;
        tail->ring = spare > 0 ? rings[--spare] : some(KEEP);
        stdio[i + 1].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
        stdio[i + 1].data.stream = (uv_stream_t *)&tail->pipe;
    }
    options.file = program;
    options.args = args;
    options.stdio = stdio;
    options.stdio_count = 3;
    options.exit_cb = ended;
    child->process.data = child;
    child->left = 3;
    check(uv_spawn(uv_default_loop(), &child->process, &options), "spawn");
    for (int i = 0; i < 2; i++) check(uv_read_start((uv_stream_t *)&child->tails[i].pipe, space, took), "read");
    return child;
}

/* Its bytes; it is freed once its handles are closed. */
static uint64_t finish(struct child *child, uint64_t sample[2]) {
    while (child->left > 0) uv_run(uv_default_loop(), UV_RUN_ONCE);
    uint64_t stamp = 0, bytes = child->tails[0].total + child->tails[1].total;
    if (child->tails[0].total == sizeof stamp) memcpy(&stamp, child->tails[0].ring, sizeof stamp);
    sample[0] = child->status - stamp;
    sample[1] = child->verdict - stamp;
    /* The callbacks of the closes. */
    uv_run(uv_default_loop(), UV_RUN_NOWAIT);
    for (int i = 0; i < 2; i++) {
        if (spare < RINGS) rings[spare++] = child->tails[i].ring;
        else free(child->tails[i].ring);
    }
    free(child);
    return bytes;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: drain_libuv PROGRAM ROLE NUMBER COUNT NOISY\n");
        return 2;
    }
    char *program = argv[1];
    size_t count = strtoul(argv[4], NULL, 10), noisy = strtoul(argv[5], NULL, 10);
    uint64_t bytes = 0, unused[2], (*samples)[2] = some((count + 1) * sizeof *samples);
    struct child **crowd = some((noisy + 1) * sizeof *crowd);
    for (int i = 0; i < WARM_UP; i++) finish(start(program, "quiet", "0", 0), unused);
    uint64_t cpu_before = cpu(), before = uv_hrtime();
    for (size_t i = 0; i < noisy; i++) crowd[i] = start(program, "noisy", "0", 1);
    puts("open");
    fflush(stdout);
    for (size_t i = 0; i < count; i++) bytes += finish(start(program, argv[2], argv[3], 0), samples[i]);
    for (size_t i = 0; i < noisy; i++) check(uv_process_kill(&crowd[i]->process, SIGKILL), "kill");
    for (size_t i = 0; i < noisy; i++) bytes += finish(crowd[i], unused);
    uint64_t cost = cpu() - cpu_before, wall = uv_hrtime() - before;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"samples\": [");
    for (size_t i = 0; i < count; i++)
        printf("%s[%llu, %llu]", i ? ", " : "", (unsigned long long)samples[i][0], (unsigned long long)samples[i][1]);
    printf("], \"bytes\": %llu, \"cpu\": %llu, \"wall\": %llu, \"resident\": %llu}\n", (unsigned long long)bytes,
           (unsigned long long)cost, (unsigned long long)wall, (unsigned long long)usage.ru_maxrss << 10);
    return 0;
}
