// SharedStore — one rank's part of a store that several ranks hold together, for dry runs: it takes the memory that the rank would
// take and notes what it would send, and holds no values. A lease borrows the whole of a group until the brace; nothing is fetched
// ahead, so one group is on loan at a time. Collectives send what a ring sends: (N − 1)/N of the bytes, an all-reduce twice that.
#pragma once
#include <optional>

#include "engine/ranks.h"
#include "engine/store.h"

namespace headroom::engine {

class SharedStore final : public ParamStore {
 public:
  SharedStore(const ModelConfig&, DType compute, Purpose, Ranks, Context&);

  void prefetch(int) override {}
  void update(const adamw::Hyper&, const Tensor& state, Context&) override;

 private:
  struct Part {
    ParamSpec spec;
    int group;
    Tensor master, copy, grad, m, v;  // this rank's, flat where they are sharded
  };
  void gather(int group) override;
  void release(int group) override;
  Weight weight(int group, Role role) const override;
  void send(const char* collective, double bytes, double share) const;
  bool belongs(const Part&, int group) const;  // a tied head's weight is the embedding's

  DType compute_;
  Purpose purpose_;
  Ranks ranks_;
  Context& ctx_;
  int layers_;
  bool tied_;
  std::vector<Part> parts_;
  std::optional<Arena::Scope> loan_;
  bool gradients_lent_ = false;
};

}  // namespace headroom::engine
