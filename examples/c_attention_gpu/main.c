/* Attention on a CUDA device from C, in bf16, without a CUDA header: the library brings device memory, the way there and back.
 * With one key, softmax has nothing to choose from: O is V, and all of dO arrives in dV. Returns 77 where there is no CUDA device. */
#include <headroom/headroom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { heads = 2, queries = 5, dim = 64, rows = queries * heads * dim, row = heads * dim };

static headroom_context* context = NULL;

static void demand(headroom_status status) {
  if (status == HEADROOM_OK) return;
  fprintf(stderr, "%s: %s\n", headroom_status_name(status), headroom_last_error());
  exit(1);
}

static uint16_t bf16_of(float x) { /* exact for what is stored here */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static float of_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static headroom_memory on_device(size_t bytes) {
  headroom_memory m;
  demand(headroom_memory_allocate(context, bytes, &m));
  return m;
}

static headroom_tensor given(int64_t len, const uint16_t* values) { /* [1, len, heads, dim] on the device; values: NULL or what it holds */
  const int64_t shape[4] = {1, len, heads, dim};
  const size_t bytes = (size_t)(len * heads * dim) * sizeof(uint16_t);
  const headroom_memory m = on_device(bytes);
  if (values) demand(headroom_memory_write(context, m.data, values, bytes, NULL));
  return headroom_contiguous(m.data, HEADROOM_BF16, 4, shape);
}

int main(void) {
  headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
  settings.device = HEADROOM_DEVICE_CUDA;
  const headroom_status made = headroom_context_create(&settings, &context);
  if (made == HEADROOM_UNSUPPORTED) {
    printf("skipped: %s\n", headroom_last_error());
    return 77;
  }
  demand(made);

  headroom_attention_problem problem = HEADROOM_ATTENTION_PROBLEM_INIT;
  problem.dtype = HEADROOM_BF16;
  problem.heads = heads;
  problem.len_q = queries;
  problem.len_k = 1;
  problem.head_dim = dim;

  static uint16_t q[rows], k[row], v[row], d_o[rows], o[rows], dv[row];
  for (int i = 0; i < rows; ++i) q[i] = bf16_of((float)(i % 7)), d_o[i] = bf16_of(1.0f);
  for (int i = 0; i < row; ++i) k[i] = bf16_of((float)(i % 5)), v[i] = bf16_of((float)i);

  size_t forward_bytes = 0, backward_bytes = 0, saved_bytes = 0;
  demand(headroom_attention_workspace_bytes(context, &problem, HEADROOM_FORWARD, &forward_bytes));
  demand(headroom_attention_workspace_bytes(context, &problem, HEADROOM_BACKWARD, &backward_bytes));
  demand(headroom_attention_saved_bytes(context, &problem, &saved_bytes));

  const int64_t lse_shape[3] = {1, heads, queries};
  headroom_attention_forward_arguments forward = {.struct_size = sizeof forward};
  forward.q = given(queries, q);
  forward.k = given(1, k);
  forward.v = given(1, v);
  forward.o = given(queries, NULL);
  forward.lse = headroom_contiguous(on_device(heads * queries * sizeof(float)).data, HEADROOM_F32, 3, lse_shape);
  forward.saved = on_device(saved_bytes);
  forward.workspace = on_device(forward_bytes > backward_bytes ? forward_bytes : backward_bytes);
  demand(headroom_attention_forward(context, &problem, &forward));

  headroom_attention_backward_arguments backward = {.struct_size = sizeof backward};
  backward.q = forward.q, backward.k = forward.k, backward.v = forward.v, backward.o = forward.o, backward.lse = forward.lse;
  backward.d_o = given(queries, d_o);
  backward.dq = given(queries, NULL);
  backward.dk = given(1, NULL);
  backward.dv = given(1, NULL);
  backward.saved = forward.saved;
  backward.workspace = forward.workspace;
  demand(headroom_attention_backward(context, &problem, &backward));

  demand(headroom_memory_read(context, o, forward.o.data, sizeof o, NULL));
  demand(headroom_memory_read(context, dv, backward.dv.data, sizeof dv, NULL));
  int wrong = 0;
  for (int i = 0; i < rows; ++i) wrong += o[i] != v[i % row];
  for (int i = 0; i < row; ++i) wrong += of_bf16(dv[i]) != (float)queries;

  char why[1024];
  demand(headroom_attention_explain(context, &problem, why, sizeof why, NULL));
  printf("%s%s\n", why, wrong ? "WRONG" : "as expected");

  static float host[rows]; /* what a pointer of the wrong kind meets */
  forward.q.data = host;
  if (headroom_attention_forward(context, &problem, &forward) == HEADROOM_BAD_ARGUMENT) printf("%s\n", headroom_last_error());

  headroom_memory all[] = {{forward.o.data, 1},   {forward.k.data, 1},    {forward.v.data, 1},   {forward.lse.data, 1},
                           {backward.q.data, 1},  {backward.d_o.data, 1}, {backward.dq.data, 1}, {backward.dk.data, 1},
                           {backward.dv.data, 1}, forward.saved,          forward.workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) headroom_memory_free(context, &all[i]);
  headroom_context_destroy(context);
  return wrong != 0;
}
