// Recipe — what a step is: model, batch, length, precision, what blocks keep, how weights are held, ranks. And whether such a step
// makes sense.
#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/documents.h"
#include "engine/formats.h"
#include "engine/head.h"
#include "engine/keep.h"
#include "engine/store.h"

namespace headroom::engine {

struct Recipe {
  ModelConfig model;
  std::int64_t batch = 1, len = 128;
  Precision precision;                          // of activations and matmul operands; bf16, fp16 and fp8 keep FP32 master weights
  std::vector<Keep> keep = {Keep::everything};  // one for all blocks, or one for each
  std::string attention = "flash";              // a family or a variant
  std::int64_t loss_rows = 0;                   // rows of logits at once; 0: by chunk_of
  Logits logits = Logits::whole;
  int micro_batches = 1;  // of `batch` sequences each, whose gradients add up to a step
  Purpose purpose = Purpose::training;
  Holding holding{};
  Ranks ranks{};                   // `batch` and `micro_batches` are of each
  std::optional<Scales> scales{};  // of fp8; none: the usual ones
  Packed documents{};              // of every row; none: a row is one sequence
  int group = 1;         // consecutive blocks of which one input is kept (keep.h); `keep` is then of one while its group goes back
  int host = 0;          // blocks, of those that keep more than their input, whose tensors wait in host memory (host_keep.h)
  bool watched = false;  // by a study that will see what products read (products.h): it is all stored

  // What follows from the above, said here and nowhere else.
  Formats formats() const { return formats_of(precision, scales.value_or(usual_scales)); }
  void keep_as(const Keeping& k) {
    keep = {k.level};
    group = k.group > 0 ? k.group : int(std::ceil(std::sqrt(double(model.layers))));
    host = k.host == Keeping::every_block ? int(model.layers) : k.host;
  }
  Keeping kept_as() const { return {keep.front(), group, host}; }  // of the first block, where blocks differ
  Keep keep_of(int block) const { return keep[keep.size() == 1 ? 0 : std::size_t(block)]; }
  std::vector<int> blocks_that_keep() const;                               // more than their input
  std::vector<int> blocks_on_host() const;                                 // spread evenly, the first among them
  bool knows_norm() const { return holding.updating == Updating::after; }  // of all gradients, before any weight changes
  bool scales_loss() const { return precision.dtype == DType::f16; }       // and needs the norm, to see what is not finite
  adamw::Hyper hyper() const { return served({}); }                        // the defaults, as far as they can be had
  adamw::Hyper served(adamw::Hyper asked) const {                          // no clipping without a norm; loss scaling where it is needed
    if (!knows_norm()) asked.clip = 0;
    asked.dynamic_scale = scales_loss();
    return asked;
  }
  // The number of a micro-batch among those of all ranks: what a step's data is drawn by, and the order that gradients are added in.
  int micro_of_all(int micro, int rank) const { return micro * ranks.batches() + batch_of(rank); }
  int micro_batches_of_all() const { return micro_batches * ranks.batches(); }
  int batch_of(int rank) const { return ranks.split_tokens ? 0 : rank; }       // of those that are taken at once, the one it is in
  std::int64_t rows_of_rank() const { return batch * (len / ranks.parts()); }  // tokens of a micro-batch that a rank computes
};

void check(const Recipe&);
void check_fp8(const Recipe&, const Device&);  // whether the device could take this step in fp8: an Error (unsupported) says why not
std::string fp8_misfit(const Recipe&,
                       const Device&);  // which size a GPU's 8-bit units do not take; empty: all fit, or it is not fp8 on a GPU

// The least n from this one on with which `other` · n tokens are served: fp8 takes multiples on a GPU, everything else any number.
std::int64_t served_from(const Recipe&, const Device&, std::int64_t other, std::int64_t n);

}  // namespace headroom::engine
