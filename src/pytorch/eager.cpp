// What is around every operator: cuBLAS's workspaces, and the thread that backward runs on.
#include "pytorch/eager.h"

#include <utility>

#include "pytorch/views.h"

namespace headroom::pytorch {

void Eager::touch_workspace() {
  auto& mine = in_backward_ ? backward_workspace_ : forward_workspace_;
  if (!mine && workspace_bytes_ > 0)
    mine = memory().make_bytes(in_backward_ ? "cuBLAS workspace, autograd's thread" : "cuBLAS workspace", workspace_bytes_);
}

void Eager::touch_bias_workspace() {
  constexpr std::uint64_t bytes = 1 << 20;  // as PyTorch 2.11 asks for on an H200
  touch_workspace();
  if (!bias_workspace_ && workspace_bytes_ > 0) bias_workspace_ = memory().make_bytes("cuBLASLt workspace", bytes);
}

void Eager::backward(Value root, Value gradient) {
  in_backward_ = true;
  in_block(-1);
  run_backward(std::move(root), std::move(gradient));
  in_backward_ = false;
}

Value Eager::when_backward(const Value& x, std::function<void()> act) {
  return record("hook", view_of(x, x.shape, x.layout), {x}, [act = std::move(act)](const Value& g) {
    act();
    return Node::Gradients{g};
  });
}

}  // namespace headroom::pytorch
