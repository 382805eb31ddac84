/* A child of the benches, without a libc: what such a child costs to tear down (a page table, a few pages) must not hide what
 * the loop costs that waits for it.
 *
 * argv[1] is the role, argv[2] a number. The last act is to read CLOCK_MONOTONIC, write what it said to stdout (eight bytes,
 * nanoseconds), and leave. */

typedef unsigned long word;
struct timespec { long seconds, nanoseconds; };

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, NANOSLEEP = 35, EXIT_GROUP = 231, CLOCK_GETTIME = 228, CLONE = 56 };
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
static long call(long n, long a, long b, long c) {
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, NANOSLEEP = 101, EXIT_GROUP = 94, CLOCK_GETTIME = 113, CLONE = 220 };
__asm__(".globl _start\n_start: mov x0, sp\n bl begin\n");
static long call(long n, long a, long b, long c) {
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
#else
#error "no system calls are written down for this processor"
#endif

enum { SIGCHLD = 17, CLOCK_MONOTONIC = 1, CHUNK = 64 << 10, EINTR = 4 };

static char chunk[CHUNK];

static void leave(int code) {
    for (;;) call(EXIT_GROUP, code, 0, 0);
}

static void nap(long nanoseconds) {
    struct timespec left = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    call(NANOSLEEP, (long)&left, 0, 0);
}

/* Lines of 80 bytes with words in them, as programs write them: without the blanks each might be a line of a private key. */
static void fill(void) {
    for (int i = 0; i < CHUNK; i++) chunk[i] = i % 80 == 79 ? '\n' : i % 8 == 7 ? ' ' : 'a' + i % 26;
}

static word monotonic(void) {
    struct timespec now = {0, 0};
    call(CLOCK_GETTIME, CLOCK_MONOTONIC, (long)&now, 0);
    return (word)now.seconds * 1000000000 + (word)now.nanoseconds;
}

/* Writes so many bytes to stderr, in pieces of this size. */
static void pour(word bytes, word piece) {
    while (bytes > 0) {
        word size = bytes < piece ? bytes : piece;
        long written = call(WRITE, 2, (long)chunk, (long)size);
        if (written > 0) bytes -= (word)written;
        else if (written != -EINTR) leave(3);
    }
}

/* Writes to stderr at full speed for so long; how many bytes went into the pipe. */
static word count_while(word nanoseconds) {
    word end = monotonic() + nanoseconds, bytes = 0;
    while (monotonic() < end) {
        long written = call(WRITE, 2, (long)chunk, CHUNK);
        if (written > 0) bytes += (word)written;
        else if (written != -EINTR) leave(3);
    }
    return bytes;
}

/* A line of a log, of 85 bytes (apart.rs knows), to stdout or to stderr. */
static void say(int where) {
    static const char line[] = "2026-11-05T12:00:00 INFO worker 7 is ready, listening on 127.0.0.1:8080, backlog 128";
    chunk[sizeof line - 1] = '\n';
    for (int i = 0; line[i]; i++) chunk[i] = line[i];
    if (call(WRITE, where, (long)chunk, sizeof line) != sizeof line) leave(3);
}

/* Sleeps until stdin has ended. */
static void wait_for_end(void) {
    char byte;
    long got;
    do got = call(READ, 0, (long)&byte, 1);
    while (got > 0 || got == -EINTR);
}

static void last_act(void) {
    word stamp = monotonic();
    leave(call(WRITE, 1, (long)&stamp, sizeof stamp) == sizeof stamp ? 0 : 1);
}

/* Called by the code above with the place where the kernel has put argc and argv. */
void begin(word *stack) {
    char **argv = (char **)(stack + 1);
    if (stack[0] != 3) leave(2);
    word number = 0;
    for (char *digit = argv[2]; *digit; digit++) number = number * 10 + (word)(*digit - '0');
    switch (argv[1][0]) {
    case 'e': /* end: no last act */
        leave(0);
        break;
    case 'q': /* quiet */
        break;
    case 'b': /* bulk: so many MiB, in pieces of 64 KiB */
        fill();
        pour(number << 20, CHUNK);
        last_act();
        break;
    case 'f': /* fine: the same, in pieces of 4 KiB */
        fill();
        pour(number << 20, 4 << 10);
        last_act();
        break;
    case 'n': /* noisy: for ever, once stdin has ended */
        fill();
        wait_for_end();
        pour(~(word)0, CHUNK);
        break;
    case 'c': /* counted: for so many milliseconds; the number of bytes stands before the time */
        fill();
        number = count_while(number * 1000000);
        if (call(WRITE, 1, (long)&number, sizeof number) != sizeof number) leave(1);
        last_act();
        break;
    case 'l': /* leaver: a copy of it holds the pipes for so many milliseconds */
        if (call(CLONE, SIGCHLD, 0, 0) == 0) {
            nap((long)number * 1000000);
            leave(0);
        }
        break;
    case 'w': /* wrote: a line to each, then idle */
        say(1);
        say(2);
        wait_for_end();
        leave(0);
        break;
    case 'i': /* idle: until stdin has ended */
        wait_for_end();
        leave(0);
        break;
    case 't': /* ticks: so many lines to stdout, one in a millisecond */
        for (; number > 0; number--) {
            nap(1000000);
            say(1);
        }
        leave(0);
        break;
    default:
        leave(2);
    }
    /* Whoever has started this one has gone to sleep when it ends. */
    nap(500000);
    last_act();
}
