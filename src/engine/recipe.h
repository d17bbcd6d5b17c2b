// Recipe — what a step is: model, sizes, levers (levers.h), ranks. And whether such a step makes sense.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/documents.h"
#include "engine/levers.h"

namespace headroom::engine {

struct Recipe : Levers {
  ModelConfig model;
  std::int64_t batch = 1, len = 128;
  int micro_batches = 1;  // of `batch` sequences each, whose gradients add up to a step
  Ranks ranks{};          // `batch` and `micro_batches` are of each
  Packed documents{};     // of every row; none: a row is one sequence
  Purpose purpose = Purpose::training;
  std::int64_t loss_rows = 0;  // rows of logits at once; 0: by chunk_of
  bool watched = false;        // by a study that will see what products read (products.h): it is all stored

  Recipe() = default;
  Recipe(ModelConfig its_model, std::int64_t its_batch, std::int64_t its_len, Precision of_all = {}, Keeping kept = {},
         std::string variant = "flash")
      : model(std::move(its_model)), batch(its_batch), len(its_len) {
    precision = of_all, keep = std::move(kept), attention = std::move(variant);
  }
  Levers& levers() { return *this; }
  const Levers& levers() const { return *this; }

  // What follows from the above, said here and nowhere else.
  Formats formats() const { return formats_of(precision, scales.value_or(usual_scales)); }
  int group() const { return keep.group > 0 ? keep.group : int(std::ceil(std::sqrt(double(model.layers)))); }
  int host() const { return keep.host == Keeping::every_block ? int(model.layers) : keep.host; }
  Keeping kept_as() const { return {keep.levels, group(), host()}; }
  Keep keep_of(int block) const { return keep.of(block); }
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

void describe(Of<Recipe> auto& r, auto&& f) {
  f(r.batch, {.name = "batch", .about = "Sequences of a micro-batch", .allowed = {1, 1 << 30}});
  f(r.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(r.micro_batches, {.name = "micro_batches", .about = "Micro-batches whose gradients add up to a step", .allowed = {1, 4096}});
  describe(r.levers(), f);
  describe(r.ranks, f);
}

// A step of a model, with its scales said where it is fp8.
Recipe recipe_of(ModelConfig, std::int64_t batch, std::int64_t len, const Levers&, Purpose = Purpose::training, const Ranks& = {});

void check(const Recipe&);
void check_fp8(const Recipe&, const Device&);  // whether the device could take this step in fp8: an Error (unsupported) says why not
std::string fp8_misfit(const Recipe&,
                       const Device&);  // which size a GPU's 8-bit units do not take; empty: all fit, or it is not fp8 on a GPU

// The least n from this one on with which `other` · n tokens are served: fp8 takes multiples on a GPU, everything else any number.
std::int64_t served_from(const Recipe&, const Device&, std::int64_t other, std::int64_t n);

}  // namespace headroom::engine
