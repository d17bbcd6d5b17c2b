// What the program launches: streams, events, graphs, kernels beside marks.
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "cuda_calls.h"

namespace {

void streams() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *first = nullptr, *second = nullptr;
  call("cudaStreamCreateWithPriority", &a, 1u, -1);
  call("cudaStreamCreateWithFlags", &b, 1u);
  call("cudaEventCreateWithFlags", &first, 0u);
  call("cudaEventCreate", &second);
  call("cudaEventRecord", first, a);
  for (int i = 0; i < 50000; ++i) launch(a);  // 2 µs each: the card is behind
  call("cudaEventRecord", second, a);
  print(call("cudaEventQuery", second) == 600 && call("cudaStreamQuery", a) == 600);
  print(call("cudaStreamQuery", b));
  call("cudaStreamWaitEvent", b, second, 0u);
  print(call("cudaStreamQuery", b));
  print(call("cudaEventSynchronize", second));
  print(call("cudaEventQuery", second));
  print(call("cudaStreamQuery", b));
  float ms = 0;
  call("cudaEventElapsedTime", &ms, first, second);
  print(ms > 90 && ms < 1000);
  print(call("cudaDeviceSynchronize"));
}

// Two streams, the second of which waits for the first; what is asked of their events as PyTorch's allocator asks.
void order() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *first = nullptr, *second = nullptr, *beside = nullptr;
  call("cudaStreamCreate", &a);
  call("cudaStreamCreate", &b);
  call("cudaEventCreate", &first);
  call("cudaEventCreate", &second);
  call("cudaEventCreate", &beside);
  print(call("cudaEventQuery", first));  // never recorded
  for (int i = 0; i < 50000; ++i) launch(a);
  call("cudaEventRecord", first, a);
  print(call("cudaEventQuery", first));
  call("cudaStreamWaitEvent", b, first, 0u);
  call("cudaEventRecord", second, b);
  call("cudaEventRecord", beside, a);
  usleep(200000);  // by the clock all is done
  print(call("cudaEventQuery", first));
  call("cudaEventSynchronize", second);
  print(call("cudaEventQuery", first));
  print(call("cudaEventQuery", beside));
  call("cudaStreamSynchronize", a);
  print(call("cudaEventQuery", beside));
  call("cudaEventRecord", beside, b);
  print(call("cudaEventQuery", beside) == 0 || call("cudaDeviceSynchronize") == 0);
  print(call("cudaEventQuery", beside));
}

void graphs() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *event = nullptr, *graph = nullptr, *executable = nullptr;
  call("cudaStreamCreate", &a);
  call("cudaStreamCreate", &b);
  call("cudaEventCreate", &event);
  call("cudaStreamBeginCapture", a, 0);
  launch(a);
  call("cudaEventRecord", event, a);
  call("cudaStreamWaitEvent", b, event, 0u);
  int a_captures = -1, b_captures = -1;
  call("cudaStreamIsCapturing", a, &a_captures);
  call("cudaStreamIsCapturing", b, &b_captures);
  print(a_captures);
  print(b_captures);
  launch(b);
  call("cudaStreamEndCapture", a, &graph);
  call("cudaStreamIsCapturing", b, &b_captures);
  print(b_captures);
  call("cudaGraphInstantiate", &executable, graph, 0ull);
  call("cudaGraphDestroy", graph);
  call("cudaGraphLaunch", executable, a);
  print(call("cudaGraphExecDestroy", executable));
}

void marks() {
  call("headroom_dry_mark", "phase", "forward", std::int64_t(3));
  print(call("headroom_dry_scope", std::uint32_t(5)));
  register_kernel();
  launch(nullptr);
  print(call("headroom_dry_scope", std::uint32_t(0)));
  print(call("headroom_dry_version"));
}

void speed() {
  register_kernel();
  constexpr int n = 500000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) launch(nullptr);
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  print((long long)(n / s.count()));
}

}  // namespace

const Words stream_words = {
    {"streams", streams}, {"order", order}, {"graphs", graphs}, {"marks", marks}, {"speed", speed},
};
