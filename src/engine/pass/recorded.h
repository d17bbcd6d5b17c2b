// Recorded — a part of a step that repeats: on a GPU recorded once as a graph and launched, on a CPU called.
#pragma once
#include <functional>
#include <memory>

#include "gpu/stream.h"
#include "ops/op.h"

namespace headroom::engine {

class Recorded {
 public:
  // On a GPU `work` is walked here and now, launching nothing; what it took from the arena it must have given back.
  Recorded(std::function<void()> work, const Context& ctx)
      : work_(std::move(work)), stream_(ctx.stream), graph_(ctx.on_gpu() ? std::make_unique<Graph>(stream_, work_) : nullptr) {}
  void operator()() const { graph_ ? graph_->launch(stream_) : work_(); }  // does not wait

 private:
  std::function<void()> work_;
  void* stream_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace headroom::engine
