/* Attention from C: ask for the bytes, bring them, run forward and backward, and look at one result that is known.
 * With one key, softmax has nothing to choose from: O is V, and all of dO arrives in dV. */
#include <headroom/headroom.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { heads = 2, queries = 5, dim = 64 };

static void demand(headroom_status status) {
  if (status == HEADROOM_OK) return;
  fprintf(stderr, "%s: %s\n", headroom_status_name(status), headroom_last_error());
  exit(1);
}

static headroom_memory bring(size_t bytes) {
  headroom_memory m = {NULL, bytes};
  if (bytes == 0) return m;
  m.data = aligned_alloc(HEADROOM_ALIGNMENT, (bytes + HEADROOM_ALIGNMENT - 1) / HEADROOM_ALIGNMENT * HEADROOM_ALIGNMENT);
  if (!m.data) exit(1);
  return m;
}

static headroom_tensor view(float* data, int64_t batch, int64_t len, int64_t h, int64_t d) {
  const int64_t shape[4] = {batch, len, h, d};
  return headroom_contiguous(data, HEADROOM_F32, 4, shape);
}

int main(void) {
  static float q[queries * heads * dim], k[heads * dim], v[heads * dim], o[queries * heads * dim], lse[heads * queries];
  static float d_o[queries * heads * dim], dq[queries * heads * dim], dk[heads * dim], dv[heads * dim];
  for (int i = 0; i < queries * heads * dim; ++i) q[i] = sinf((float)i), d_o[i] = 1.0f;
  for (int i = 0; i < heads * dim; ++i) k[i] = cosf((float)i), v[i] = (float)i;

  headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
  headroom_context* context = NULL;
  demand(headroom_context_create(&settings, &context));

  headroom_attention_problem problem = HEADROOM_ATTENTION_PROBLEM_INIT;
  problem.heads = heads;
  problem.len_q = queries;
  problem.len_k = 1;
  problem.head_dim = dim;

  size_t forward_bytes = 0, backward_bytes = 0, saved_bytes = 0;
  demand(headroom_attention_workspace_bytes(context, &problem, HEADROOM_FORWARD, &forward_bytes));
  demand(headroom_attention_workspace_bytes(context, &problem, HEADROOM_BACKWARD, &backward_bytes));
  demand(headroom_attention_saved_bytes(context, &problem, &saved_bytes));
  headroom_memory workspace = bring(forward_bytes > backward_bytes ? forward_bytes : backward_bytes), saved = bring(saved_bytes);

  const int64_t lse_shape[3] = {1, heads, queries};
  const headroom_tensor lse_view = headroom_contiguous(lse, HEADROOM_F32, 3, lse_shape);
  headroom_attention_forward_arguments forward = {.struct_size = sizeof forward};
  forward.q = view(q, 1, queries, heads, dim);
  forward.k = view(k, 1, 1, heads, dim);
  forward.v = view(v, 1, 1, heads, dim);
  forward.o = view(o, 1, queries, heads, dim);
  forward.lse = lse_view;
  forward.saved = saved;
  forward.workspace = workspace;
  demand(headroom_attention_forward(context, &problem, &forward));

  headroom_attention_backward_arguments backward = {.struct_size = sizeof backward};
  backward.q = forward.q, backward.k = forward.k, backward.v = forward.v, backward.o = forward.o, backward.lse = lse_view;
  backward.d_o = view(d_o, 1, queries, heads, dim);
  backward.dq = view(dq, 1, queries, heads, dim);
  backward.dk = view(dk, 1, 1, heads, dim);
  backward.dv = view(dv, 1, 1, heads, dim);
  backward.saved = saved;
  backward.workspace = workspace;
  demand(headroom_attention_backward(context, &problem, &backward));

  int wrong = 0;
  for (int i = 0; i < queries * heads * dim; ++i) wrong += fabsf(o[i] - v[i % (heads * dim)]) > 1e-4f;
  for (int i = 0; i < heads * dim; ++i) wrong += fabsf(dv[i] - (float)queries) > 1e-4f;

  char why[512];
  demand(headroom_attention_explain(context, &problem, why, sizeof why, NULL));
  printf("headroom %s, %d threads, workspace %zu bytes, saved %zu bytes\n%s%s\n", headroom_version(), headroom_context_threads(context),
         workspace.bytes, saved.bytes, why, wrong ? "WRONG" : "as expected");

  problem.head_dim = 0; /* what an error looks like */
  if (headroom_attention_saved_bytes(context, &problem, &saved_bytes) != HEADROOM_BAD_ARGUMENT) wrong = 1;
  printf("%s\n", headroom_last_error());

  headroom_context_destroy(context);
  free(workspace.data);
  free(saved.data);
  return wrong != 0;
}
