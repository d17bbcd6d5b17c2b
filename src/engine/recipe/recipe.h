// Recipe — everything that defines a step: model, sizes, levers (levers.h), ranks; and the checks of it.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/documents.h"
#include "engine/model/decoder.h"
#include "engine/recipe/levers.h"

namespace headroom::engine {

struct Recipe : Levers {
  Decoder model;
  std::int64_t batch = 1, len = 128;
  int micro_batches = 1;  // each has `batch` sequences; their gradients add up to a step
  Ranks ranks{};          // `batch` and `micro_batches` count for each rank
  Packed documents{};     // how rows hold documents; none: a row is one sequence
  Purpose purpose = Purpose::training;
  std::int64_t loss_rows = 0;  // rows of logits at once; 0: by chunk_of
  bool watched = false;        // a study will read the products' operands (products.h): all are stored, and ops stay by themselves

  Recipe() = default;
  Recipe(Decoder its_model, std::int64_t its_batch, std::int64_t its_len, Precision of_all = {}, Keeping kept = {},
         std::string variant = "flash")
      : model(std::move(its_model)), batch(its_batch), len(its_len) {
    precision = of_all, keep = std::move(kept), attention = std::move(variant);
  }
  Levers& levers() { return *this; }
  const Levers& levers() const { return *this; }

  // Derived values, defined only here.
  Formats formats() const { return formats_of(precision, scales.value_or(usual_scales)); }
  int group() const { return keep.group > 0 ? keep.group : int(std::ceil(std::sqrt(double(model.layers.size())))); }
  int host() const { return keep.host == Keeping::every_block ? int(model.depth()) : keep.host; }
  Keeping kept_as() const { return {keep.levels, group(), host()}; }
  Keep keep_of(int block) const { return keep.of(block); }
  std::vector<int> blocks_that_keep() const;                               // those that keep more than their input
  std::vector<int> blocks_on_host() const;                                 // spread evenly, the first among them
  bool knows_norm() const { return holding.updating == Updating::after; }  // the norm of all gradients, before any weight changes
  bool scales_loss() const { return precision.dtype == DType::f16; }       // this needs the norm, to find values that are not finite
  Optimizer::Hyper hyper() const { return served({}); }                    // the defaults, where this step supports them
  Optimizer::Hyper served(Optimizer::Hyper asked) const {                  // no clipping without a norm; loss scaling where it is needed
    if (!knows_norm()) asked.clip = 0;
    asked.dynamic_scale = scales_loss();
    return asked;
  }
  // A micro-batch's number among those of all ranks: it seeds the data, and gradients are added in its order.
  int micro_of_all(int micro, int rank) const { return micro * ranks.batches() + batch_of(rank); }
  int micro_batches_of_all() const { return micro_batches * ranks.batches(); }
  int batch_of(int rank) const {
    return ranks.split_tokens ? 0 : rank;
  }  // the number of the batch, of those taken at once, that the rank works on
  std::int64_t rows_of_rank() const { return batch * (len / ranks.parts()); }  // tokens of a micro-batch that a rank computes
};

void describe(Of<Recipe> auto& r, auto&& f) {
  f(r.batch, {.name = "batch",
              .about = "Sequences of a micro-batch; of each rank where there are several, of all with --split-tokens",
              .allowed = {1, 1 << 30}});
  f(r.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(r.micro_batches, {.name = "micro_batches", .about = "Micro-batches whose gradients add up to a step", .allowed = {1, 4096}});
  describe(r.levers(), f);
  describe(r.ranks, f);
}

// Makes a recipe; in fp8 its scales are set.
Recipe recipe_of(Decoder, std::int64_t batch, std::int64_t len, const Levers&, Purpose = Purpose::training, const Ranks& = {});

void check(const Recipe&);
void check_fp8(const Recipe&, const Device&);  // throws an Error (unsupported) that says why the device cannot take this step in fp8
std::string fp8_misfit(const Recipe&,
                       const Device&);  // names a size that a GPU's 8-bit units refuse; empty: all fit, or the step is not fp8 on a GPU

// The smallest n′ ≥ n for which `other` · n′ tokens are supported: fp8 on a GPU needs multiples, everything else takes any number.
std::int64_t served_from(const Recipe&, const Device&, std::int64_t other, std::int64_t n);

}  // namespace headroom::engine
