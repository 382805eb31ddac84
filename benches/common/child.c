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

/* Lines of 80 bytes, as programs write them. */
static void fill(void) {
    for (int i = 0; i < CHUNK; i++) chunk[i] = i % 80 == 79 ? '\n' : 'a' + i % 26;
}

/* Writes so many bytes to stderr, in pieces of 64 KiB. */
static void pour(word bytes) {
    while (bytes > 0) {
        word size = bytes < CHUNK ? bytes : CHUNK;
        long written = call(WRITE, 2, (long)chunk, (long)size);
        if (written > 0) bytes -= (word)written;
        else if (written != -EINTR) leave(3);
    }
}

static void last_act(void) {
    struct timespec now = {0, 0};
    call(CLOCK_GETTIME, CLOCK_MONOTONIC, (long)&now, 0);
    word stamp = (word)now.seconds * 1000000000 + (word)now.nanoseconds;
    leave(call(WRITE, 1, (long)&stamp, sizeof stamp) == sizeof stamp ? 0 : 1);
}

/* Called by the code above with the place where the kernel has put argc and argv. */
void begin(word *stack) {
    char **argv = (char **)(stack + 1);
    if (stack[0] != 3) leave(2);
    word number = 0;
    for (char *digit = argv[2]; *digit; digit++) number = number * 10 + (word)(*digit - '0');
    char byte;
    switch (argv[1][0]) {
    case 'e': /* end: no last act */
        leave(0);
        break;
    case 'q': /* quiet */
        break;
    case 'b': /* bulk: so many MiB */
        fill();
        pour(number << 20);
        last_act();
        break;
    case 'n': /* noisy: for ever, once stdin has ended */
        fill();
        while (call(READ, 0, (long)&byte, 1) != 0) {}
        pour(~(word)0);
        break;
    case 'l': /* leaver: a copy of it holds the pipes for so many milliseconds */
        if (call(CLONE, SIGCHLD, 0, 0) == 0) {
            nap((long)number * 1000000);
            leave(0);
        }
        break;
    default:
        leave(2);
    }
    /* Whoever has started this one has gone to sleep when it ends. */
    nap(500000);
    last_act();
}
