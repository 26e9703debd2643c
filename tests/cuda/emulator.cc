/* Fibers, the queues of work, and memory that is closed to the host. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <deque>
#include <map>
#include <vector>

#include "cuda_runtime.h"

struct emulated_stream {
};
struct emulated_event {
    cudaStream_t stream = nullptr;
    uint64_t number = 0; /* of the work that was put on the stream before */
};

/* A test may set this: then the card is lost, and nothing is done any more but to say so. */
extern "C" __attribute__((visibility("default"))) cudaError_t emulated_card_failure;
cudaError_t emulated_card_failure = cudaSuccess;

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{
[[noreturn]] void fail(const char *what)
{
    printf("FAIL emulated card: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
    fflush(stdout);
    abort();
}

/* ---- fibers: what a function call keeps, on a stack of its own ---- */

#if defined(__x86_64__)
extern "C" void emulator_switch(void **save, void *to);
__asm__(".text\n.globl emulator_switch\n.hidden emulator_switch\nemulator_switch:\n"
        "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n");
#else
#error "the emulator's fibers are written for x86-64"
#endif

constexpr size_t stack_size = 96 << 10;
struct fiber {
    void *at = nullptr;
    std::vector<char> stack;
    bool done = false;
};
struct warp {
    unsigned arrived = 0, generation = 0;
    uint64_t values[2][32];
};
std::vector<fiber> fibers;
std::vector<warp> warps;
void *scheduler;
unsigned current, live, at_barrier, barrier_generation, progress;
bool barrier_any[2];
const std::function<void()> *body;

void pass_on()
{
    emulator_switch(&fibers[current].at, scheduler);
    threadIdx = dim3(current);
}

void fiber_main()
{
    (*body)();
    fibers[current].done = true;
    live--;
    progress++;
    if (at_barrier > 0 && at_barrier == live) { /* threads that have ended are not waited for */
        at_barrier = 0;
        barrier_generation++;
    }
    emulator_switch(&fibers[current].at, scheduler);
    fail("a fiber came back");
}

void prepare(fiber &f)
{
    if (f.stack.empty())
        f.stack.resize(stack_size);
    void **top = (void **)(((uintptr_t)f.stack.data() + stack_size) & ~(uintptr_t)63);
    *--top = nullptr; /* so that the stack is aligned as after a call */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f.at = top;
    f.done = false;
}

/* ---- memory ---- */

constexpr size_t room = (size_t)16 << 30, page = 4096;
char *base;
size_t used;
struct allocation {
    size_t bytes, pages;
};
std::map<char *, allocation> live_memory;
std::map<size_t, std::vector<char *>> free_memory;
std::map<char *, size_t> pinned_memory;
bool is_pinned(const char *at)
{
    auto behind = pinned_memory.upper_bound((char *)(uintptr_t)at);
    return behind != pinned_memory.begin() && at < std::prev(behind)->first + std::prev(behind)->second;
}
constexpr char canary = 0x5c;
unsigned inside;
struct work_queue {
    std::deque<std::function<void()>> work;
    uint64_t put = 0, done = 0;
};
std::map<cudaStream_t, work_queue> queues;
std::vector<std::function<void()>> fillings; /* of new memory, before anything else */
typedef std::vector<std::function<void()>> graph;
graph *captured; /* what is put on the stream goes here instead, and nobody may wait or allocate */
pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct locked {
    locked() { pthread_mutex_lock(&lock); }
    ~locked() { pthread_mutex_unlock(&lock); }
};

void protect(int how)
{
    if (used > 0 && mprotect(base, used, how) != 0)
        fail("mprotect");
}
struct opened {
    opened()
    {
        if (inside++ == 0)
            protect(PROT_READ | PROT_WRITE);
    }
    ~opened()
    {
        if (--inside == 0)
            protect(PROT_NONE);
    }
};

void need_no_capture(const char *what)
{
    if (captured)
        fail(what);
}

/* As much of a stream as was put there up to a number; it may wait for others. */
void run_until(cudaStream_t stream, uint64_t number)
{
    work_queue &q = queues[stream];
    while (q.done < number) {
        const auto work = std::move(q.work.front());
        q.work.pop_front();
        q.done++;
        work();
    }
}

/* Now and then other streams do all their work first: what depends on their order shows. */
void wait_until(cudaStream_t stream, uint64_t number)
{
    static uint64_t turn;
    need_no_capture("somebody waits while the stream is captured");
    if (emulated_card_failure != cudaSuccess) {
        for (auto &of : queues) {
            of.second.done = of.second.put;
            of.second.work.clear();
        }
        fillings.clear();
    }
    if (queues[stream].done >= number && fillings.empty())
        return;
    opened memory;
    for (const auto &fill : fillings)
        fill();
    fillings.clear();
    turn = turn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    for (auto of = queues.begin(); of != queues.end() && turn >> 63; ++of)
        run_until(of->first, of->second.put);
    run_until(stream, number);
}

void wait_for_everything()
{
    for (auto &of : queues)
        wait_until(of.first, of.second.put);
    wait_until(nullptr, 0);
}
} // namespace

namespace emulator
{
void enqueue(cudaStream_t stream, std::function<void()> work)
{
    locked l;
    if (captured) {
        captured->push_back(std::move(work));
        return;
    }
    queues[stream].work.push_back(std::move(work));
    queues[stream].put++;
}

unsigned lane() { return current & 31; }

char *dynamic_shared()
{
    alignas(128) static char memory[228 << 10];
    return memory;
}

const uint64_t *gather(unsigned mask, uint64_t mine)
{
    warp &w = warps[current >> 5];
    const unsigned left = blockDim.x - (current & ~31u), there = left < 32 ? (1u << left) - 1 : ~0u;
    const unsigned wanted = (unsigned)__builtin_popcount(mask & there), g = w.generation;
    if (!(mask >> lane() & 1))
        fail("a lane that is not in the mask takes part");
    w.values[g & 1][lane()] = mine;
    progress++;
    if (++w.arrived == wanted) {
        w.arrived = 0;
        w.generation++;
    } else {
        while (w.generation == g)
            pass_on();
    }
    return w.values[g & 1];
}

void barrier()
{
    const unsigned g = barrier_generation;
    progress++;
    if (++at_barrier == live) {
        at_barrier = 0;
        barrier_generation++;
        return;
    }
    while (barrier_generation == g)
        pass_on();
}

bool barrier_or(bool mine)
{
    const unsigned g = barrier_generation & 1;
    barrier_any[g] = barrier_any[g] || mine;
    barrier();
    const bool any = barrier_any[g];
    barrier();
    barrier_any[g] = false;
    barrier();
    return any;
}

/* Every other block runs its threads from the last to the first: what depends on their order shows. */
void run(dim3 grid, dim3 block, const std::function<void()> &kernel)
{
    if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 || block.x > 1024)
        fail("a grid of more than one dimension, or too large a block");
    if (grid.x == 0 || grid.x > 0x7fffffffu || block.x == 0)
        fail("a launch without blocks or threads, or with too many");
    gridDim = grid;
    blockDim = block;
    body = &kernel;
    if (fibers.size() < block.x)
        fibers.resize(block.x);
    for (unsigned b = 0; b < grid.x; b++) {
        blockIdx = dim3(b);
        warps.assign((block.x + 31) / 32, warp());
        memset(dynamic_shared(), 0xa5, 1024);
        barrier_generation = at_barrier = 0;
        live = block.x;
        for (unsigned t = 0; t < block.x; t++)
            prepare(fibers[t]);
        while (live > 0) {
            const unsigned before = progress;
            for (unsigned i = 0; i < block.x; i++) {
                const unsigned t = b & 1 ? block.x - 1 - i : i;
                if (fibers[t].done)
                    continue;
                current = t;
                threadIdx = dim3(t);
                emulator_switch(&scheduler, fibers[t].at);
            }
            if (progress == before)
                fail("its threads wait for each other, or for one that has ended");
        }
    }
}
} // namespace emulator

/* ---- graphs, for tests ---- */

extern "C" {
__attribute__((visibility("default"))) void emulated_begin_capture() { captured = new graph; }
__attribute__((visibility("default"))) void *emulated_end_capture()
{
    graph *made = captured;
    captured = nullptr;
    return made;
}
__attribute__((visibility("default"))) void emulated_launch(const void *of)
{
    for (const auto &work : *(const graph *)of)
        emulator::enqueue(nullptr, work);
}
__attribute__((visibility("default"))) void emulated_forget(void *of) { delete (graph *)of; }
}

/* ---- the host's side ---- */

cudaError_t cudaGetLastError() { return emulated_card_failure; }
cudaError_t cudaPeekAtLastError() { return emulated_card_failure; }

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    locked l;
    need_no_capture("memory is asked for while the stream is captured");
    if (emulated_card_failure != cudaSuccess)
        return emulated_card_failure;
    size_t size = page; /* powers of two, so that what was freed serves again: closing memory takes time */
    while (size < bytes + 256)
        size *= 2;
    if (!base) {
        base = (char *)mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            fail("mmap");
    }
    char *at;
    std::vector<char *> &spare = free_memory[size];
    if (!spare.empty()) {
        at = spare.back();
        spare.pop_back();
    } else {
        if (size > room - used)
            return cudaErrorMemoryAllocation;
        at = base + used;
        used += size;
        if (inside > 0)
            protect(PROT_READ | PROT_WRITE);
    }
    live_memory[at] = {bytes, size};
    fillings.push_back([=] {
        memset(at, 0xa5, bytes < 1 << 20 ? bytes : 1 << 20);
        memset(at + bytes, canary, size - bytes < 256 ? size - bytes : 256);
    });
    *memory = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    locked l;
    need_no_capture("memory is given back while the stream is captured");
    if (!memory || emulated_card_failure != cudaSuccess)
        return emulated_card_failure;
    wait_for_everything();
    char *at = (char *)memory;
    const auto found = live_memory.find(at);
    if (found == live_memory.end())
        fail("this memory is not the card's");
    {
        opened o;
        for (size_t i = found->second.bytes; i < found->second.pages && i < found->second.bytes + 256; i++)
            if (at[i] != canary)
                fail("something wrote behind the end of its memory");
    }
    free_memory[found->second.pages].push_back(at);
    live_memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    locked l;
    need_no_capture("memory is asked for while the stream is captured");
    *memory = malloc(bytes ? bytes : 1);
    if (!*memory)
        return cudaErrorMemoryAllocation;
    pinned_memory[(char *)*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    locked l;
    pinned_memory.erase((char *)memory);
    free(memory);
    return cudaSuccess;
}

/* A copy from ordinary host memory takes its bytes at once, as the driver does. One from pinned memory, and one to the
 * host, is late. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    locked l;
    if (emulated_card_failure != cudaSuccess)
        return emulated_card_failure;
    if (kind == cudaMemcpyHostToDevice && !captured && !is_pinned((const char *)from)) {
        std::vector<char> kept((const char *)from, (const char *)from + bytes);
        emulator::enqueue(stream, [=] { memcpy(to, kept.data(), bytes); });
    } else {
        emulator::enqueue(stream, [=] { memmove(to, from, bytes); });
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    emulator::enqueue(stream, [=] { memset(memory, value, bytes); });
    return emulated_card_failure;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory)
{
    locked l;
    const char *at = (const char *)memory;
    *attributes = {base && at >= base && at < base + used ? cudaMemoryTypeDevice
                   : is_pinned(at)                        ? cudaMemoryTypeHost
                                                          : cudaMemoryTypeUnregistered,
                   0};
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new emulated_stream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    locked l;
    wait_until(stream, queues[stream].put);
    queues.erase(stream);
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    locked l;
    wait_until(stream, queues[stream].put);
    return emulated_card_failure;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); } /* never unfinished */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new emulated_event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    locked l;
    *event = {stream, queues[stream].put};
    return cudaSuccess;
}
/* A graph does its work in the order in which it was captured. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const emulated_event now = *event;
    if (!captured)
        emulator::enqueue(stream, [=] { run_until(now.stream, now.number); });
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    locked l;
    wait_until(event->stream, event->number);
    return emulated_card_failure;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}
