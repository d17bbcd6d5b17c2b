// Autograd's current node, as a version of PyTorch returns it: a shared_ptr, or an intrusive_ptr.
#include "dry/library/running.h"

#include <gtest/gtest.h>

namespace {

using namespace headroom::dry;

struct Shared : std::enable_shared_from_this<Shared> {
  virtual ~Shared() = default;
  std::uint64_t number = 41;
};

struct Counted {
  virtual ~Counted() = default;
  std::uint32_t references = 2, weak = 1;
  std::uint64_t number = 57;
};
struct Intrusive {  // one word, which takes a reference
  explicit Intrusive(Counted* of) : node(of) {
    if (node) ++node->references;
  }
  ~Intrusive() {}
  Counted* node;
};

std::shared_ptr<Shared> shared;
Counted counted;
Counted* current = nullptr;
std::shared_ptr<Shared> shared_node() { return shared; }
Intrusive intrusive_node() { return Intrusive(current); }

template <class F>
std::uint64_t number(F* running) {
  return number_of_running(reinterpret_cast<Running (*)()>(reinterpret_cast<void (*)()>(running)));
}

TEST(Running, ANodeBySharedPointerIsReadAndLetGo) {
  EXPECT_EQ(number(shared_node), 0u);
  shared = std::make_shared<Shared>();
  EXPECT_EQ(number(shared_node), 42u);
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(Running, ANodeByIntrusivePointerIsReadAndLetGo) {
  EXPECT_EQ(number(intrusive_node), 0u);
  current = &counted;
  EXPECT_EQ(number(intrusive_node), 58u);
  EXPECT_EQ(number(intrusive_node), 58u);
  EXPECT_EQ(counted.references, 2u);
  EXPECT_EQ(counted.weak, 1u);
}

}  // namespace
