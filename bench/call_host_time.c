/* The host's time of one C call of attention, in microseconds: what a decode step pays for each layer beside its kernels. The calls are only
 * queued: the device is waited for between batches of them, outside the clock. Each line is the median of the batches, and the least.
 *
 * cc -O2 -Iinclude bench/call_host_time.c -o call_host_time -Lbuild/release -lheadroom
 *
 * It runs on cuda:0 and returns 77 where there is none. LD_LIBRARY_PATH chooses the libheadroom.so whose calls are timed. */
#define _POSIX_C_SOURCE 199309L
#include <headroom/headroom.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { batches = 101, calls = 50 };

static headroom_context* context = NULL;

static void demand(headroom_status status) {
  if (status == HEADROOM_OK) return;
  fprintf(stderr, "%s: %s\n", headroom_status_name(status), headroom_last_error());
  exit(1);
}

static void* room(size_t bytes) {
  headroom_memory m;
  demand(headroom_memory_allocate(context, bytes, &m));
  return m.data;
}

static headroom_tensor made(headroom_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d};
  const headroom_tensor t = headroom_contiguous(NULL, dtype, rank, shape);
  return headroom_contiguous(room((size_t)t.bytes), dtype, rank, shape);
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

typedef struct {
  const char* name;
  int64_t batch, heads, kv_heads, len_q, len_k, dim;
  const char* variant;
} Case;

typedef enum { WHOLE, CHECKED_ONCE, TRUSTED, WAYS } Way;
static const char* const way_names[WAYS] = {"checked", "made once", "made once, trusted"};

static void time_pass(const Case* c, const headroom_attention_problem* p, headroom_attention_forward_arguments f,
                      headroom_attention_backward_arguments b, headroom_pass pass) {
  for (int way = 0; way < WAYS; ++way) {
    headroom_attention_call* call = NULL;
    f.flags = b.flags = way == TRUSTED ? HEADROOM_TRUST_POINTERS : 0;
    void* forward_at[16] = {f.q.data, f.k.data, f.v.data, f.o.data, f.lse.data, f.saved.data, f.workspace.data};
    void* backward_at[24] = {b.q.data,    b.k.data,  b.v.data,  b.o.data,  b.lse.data,   b.d_o.data,
                             b.dlse.data, b.dq.data, b.dk.data, b.dv.data, b.saved.data, b.workspace.data};
    if (way != WHOLE)
      demand(pass == HEADROOM_FORWARD ? headroom_attention_forward_call_create(context, p, &f, &call)
                                      : headroom_attention_backward_call_create(context, p, &b, &call));
    double took[batches];
    for (int n = -1; n < batches; ++n) { /* the first loads kernels */
      const double start = now_us();
      for (int i = 0; i < calls; ++i) {
        if (way != WHOLE)
          demand(headroom_attention_call_run(call, pass == HEADROOM_FORWARD ? forward_at : backward_at, pass == HEADROOM_FORWARD ? 7 : 12,
                                             NULL));
        else
          demand(pass == HEADROOM_FORWARD ? headroom_attention_forward(context, p, &f) : headroom_attention_backward(context, p, &b));
      }
      if (n >= 0) took[n] = (now_us() - start) / calls;
      float one;
      demand(headroom_memory_read(context, &one, f.lse.data, sizeof one, NULL)); /* waits */
    }
    qsort(took, batches, sizeof *took, by_size);
    printf("%-22s  %-8s  %-18s  %8.2f  %8.2f\n", c->name, pass == HEADROOM_FORWARD ? "forward" : "backward", way_names[way],
           took[batches / 2], took[0]);
    headroom_attention_call_destroy(call);
  }
}

static void time_case(const Case* c, int backward_too) {
  headroom_attention_problem p = HEADROOM_ATTENTION_PROBLEM_INIT;
  p.dtype = HEADROOM_BF16;
  p.batch = c->batch, p.heads = c->heads, p.kv_heads = c->kv_heads, p.len_q = c->len_q, p.len_k = c->len_k, p.head_dim = c->dim;
  p.mask = HEADROOM_MASK_CAUSAL;
  p.variant = c->variant;
  size_t forward_bytes = 0, backward_bytes = 0, saved_bytes = 0;
  demand(headroom_attention_workspace_bytes(context, &p, HEADROOM_FORWARD, &forward_bytes));
  if (backward_too) demand(headroom_attention_workspace_bytes(context, &p, HEADROOM_BACKWARD, &backward_bytes));
  demand(headroom_attention_saved_bytes(context, &p, &saved_bytes));
  headroom_attention_forward_arguments f = {.struct_size = sizeof f};
  f.q = made(HEADROOM_BF16, 4, p.batch, p.len_q, p.heads, p.head_dim);
  f.k = made(HEADROOM_BF16, 4, p.batch, p.len_k, p.kv_heads, p.head_dim);
  f.v = made(HEADROOM_BF16, 4, p.batch, p.len_k, p.kv_heads, p.head_dim);
  f.o = made(HEADROOM_BF16, 4, p.batch, p.len_q, p.heads, p.head_dim);
  f.lse = made(HEADROOM_F32, 3, p.batch, p.heads, p.len_q, 0);
  f.saved.bytes = saved_bytes, f.saved.data = room(saved_bytes);
  const size_t most = forward_bytes > backward_bytes ? forward_bytes : backward_bytes;
  f.workspace.bytes = most, f.workspace.data = room(most);
  headroom_attention_backward_arguments b = {.struct_size = sizeof b};
  b.q = f.q, b.k = f.k, b.v = f.v, b.o = f.o, b.lse = f.lse, b.saved = f.saved, b.workspace = f.workspace;
  time_pass(c, &p, f, b, HEADROOM_FORWARD);
  if (!backward_too) return;
  b.d_o = made(HEADROOM_BF16, 4, p.batch, p.len_q, p.heads, p.head_dim);
  b.dq = made(HEADROOM_BF16, 4, p.batch, p.len_q, p.heads, p.head_dim);
  b.dk = made(HEADROOM_BF16, 4, p.batch, p.len_k, p.kv_heads, p.head_dim);
  b.dv = made(HEADROOM_BF16, 4, p.batch, p.len_k, p.kv_heads, p.head_dim);
  time_pass(c, &p, f, b, HEADROOM_BACKWARD);
}

int main(void) {
  headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
  settings.device = HEADROOM_DEVICE_CUDA;
  const headroom_status status = headroom_context_create(&settings, &context);
  if (status == HEADROOM_UNSUPPORTED) {
    printf("skipped: %s\n", headroom_last_error());
    return 77;
  }
  demand(status);
  printf("%-22s  %-8s  %-18s  %8s  %8s\n", "case", "pass", "call", "us", "least");
  const Case decode = {"decode, 2048 keys", 4, 32, 8, 1, 2048, 128, NULL}, short_one = {"len 128", 1, 8, 8, 128, 128, 64, NULL},
             sm80 = {"len 128, flash_sm80", 1, 8, 8, 128, 128, 64, "flash_sm80"};
  time_case(&decode, 0);
  time_case(&short_one, 1);
  time_case(&sm80, 1);
  headroom_context_destroy(context);
  return 0;
}
