// The whole model in FP64 on a tape of scalars: every number remembers what it came from, and gradients flow back along that.
// Shares nothing with the engine but the table of parameters and the meaning of its layouts.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/params.h"

namespace headroom::engine::oracle {

class Tape {
 public:
  using Id = std::int32_t;
  Id leaf(double v) { return add(v, -1, 0, -1, 0); }
  Id plus(Id a, Id b) { return add(value_[std::size_t(a)] + value_[std::size_t(b)], a, 1, b, 1); }
  Id minus(Id a, Id b) { return add(value(a) - value(b), a, 1, b, -1); }
  Id times(Id a, Id b) { return add(value(a) * value(b), a, value(b), b, value(a)); }
  Id over(Id a, Id b) { return add(value(a) / value(b), a, 1 / value(b), b, -value(a) / (value(b) * value(b))); }
  Id scaled(Id a, double k) { return add(value(a) * k, a, k, -1, 0); }
  Id shifted(Id a, double k) { return add(value(a) + k, a, 1, -1, 0); }
  Id exp(Id a) {
    const double e = std::exp(value(a));
    return add(e, a, e, -1, 0);
  }
  Id log(Id a) { return add(std::log(value(a)), a, 1 / value(a), -1, 0); }
  Id sqrt(Id a) {
    const double r = std::sqrt(value(a));
    return add(r, a, 0.5 / r, -1, 0);
  }
  double value(Id a) const { return value_[std::size_t(a)]; }

  std::vector<double> gradients(Id of) const {
    std::vector<double> g(value_.size(), 0.0);
    g[std::size_t(of)] = 1;
    for (auto i = value_.size(); i-- > 0;)
      for (const auto& [from, slope] : {from_[i].first, from_[i].second})
        if (from >= 0) g[std::size_t(from)] += g[i] * slope;
    return g;
  }

 private:
  using Edge = std::pair<Id, double>;
  Id add(double v, Id a, double da, Id b, double db) {
    value_.push_back(v), from_.push_back({{a, da}, {b, db}});
    return Id(value_.size() - 1);
  }
  std::vector<double> value_;
  std::vector<std::pair<Edge, Edge>> from_;
};

using Ids = std::vector<Tape::Id>;

struct Result {
  double loss;
  std::map<std::string, std::vector<double>> gradients;
};

class Lm {
 public:
  Lm(const ModelConfig& c, const std::map<std::string, std::vector<double>>& weights) : c_(c) {
    for (const auto& [name, values] : weights)
      for (double v : values) w_[name].push_back(t_.leaf(v));
  }

  Result run(const std::vector<int>& tokens, const std::vector<int>& targets, std::int64_t batch, std::int64_t len) {
    Tape::Id sum = t_.leaf(0);
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<Ids> x;
      for (std::int64_t i = 0; i < len; ++i) {
        const auto& e = w_["embedding.weight"];
        const auto at = e.begin() + tokens[std::size_t(b * len + i)] * c_.width;
        x.emplace_back(at, at + c_.width);
      }
      for (int l = 0; l < int(c_.layers); ++l) block("blocks." + std::to_string(l) + ".", x);
      for (std::int64_t i = 0; i < len; ++i) {
        const Ids logits = product(w_[c_.tied ? "embedding.weight" : "head.weight"], norm(x[std::size_t(i)], w_["final_norm.weight"]));
        Tape::Id total = t_.leaf(0);
        for (auto v : logits) total = t_.plus(total, t_.exp(v));
        sum = t_.plus(sum, t_.minus(t_.log(total), logits[std::size_t(targets[std::size_t(b * len + i)])]));
      }
    }
    const auto loss = t_.scaled(sum, 1.0 / double(batch * len));
    const auto all = t_.gradients(loss);
    Result r{t_.value(loss), {}};
    for (const auto& [name, ids] : w_)
      for (auto id : ids) r.gradients[name].push_back(all[std::size_t(id)]);
    return r;
  }

 private:
  Ids product(const Ids& w, const Ids& x) {
    Ids y;
    for (std::size_t row = 0; row * x.size() < w.size(); ++row) {
      auto s = t_.leaf(0);
      for (std::size_t i = 0; i < x.size(); ++i) s = t_.plus(s, t_.times(w[row * x.size() + i], x[i]));
      y.push_back(s);
    }
    return y;
  }
  Ids norm(const Ids& x, const Ids& w) {
    auto s = t_.leaf(0);
    for (auto v : x) s = t_.plus(s, t_.times(v, v));
    const auto rms = t_.sqrt(t_.shifted(t_.scaled(s, 1.0 / double(x.size())), c_.norm_eps));
    Ids y;
    for (std::size_t i = 0; i < x.size(); ++i) y.push_back(t_.times(t_.over(x[i], rms), w[i]));
    return y;
  }
  Ids turned(Ids x, std::int64_t position) {  // one head
    const auto half = x.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = double(position) * std::pow(c_.rope_theta, -2.0 * double(i) / double(x.size()));
      const auto u = x[i], v = x[half + i];
      x[i] = t_.minus(t_.scaled(u, std::cos(angle)), t_.scaled(v, std::sin(angle)));
      x[half + i] = t_.plus(t_.scaled(v, std::cos(angle)), t_.scaled(u, std::sin(angle)));
    }
    return x;
  }
  static Ids cut(const Ids& x, std::int64_t from, std::int64_t count) { return Ids(x.begin() + from, x.begin() + from + count); }
  void add(Ids& x, const Ids& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = t_.plus(x[i], y[i]);
  }

  void block(const std::string& name, std::vector<Ids>& x) {
    const auto d = c_.head_dim, group = c_.heads / c_.kv_heads;
    std::vector<Ids> qkv;
    for (auto& row : x) {
      qkv.push_back(product(w_[name + "attention.qkv.weight"], norm(row, w_[name + "norm1.weight"])));
      if (c_.qkv_bias) add(qkv.back(), w_[name + "attention.qkv.bias"]);
    }
    const auto head = [&](const Ids& row, std::int64_t from, const char* weight, std::size_t position) {
      const Ids raw = cut(row, from, d);
      return turned(c_.qk_norm ? norm(raw, w_[name + weight]) : raw, std::int64_t(position));
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      Ids o;
      for (std::int64_t h = 0; h < c_.heads; ++h) {
        const Ids q = head(qkv[i], h * d, "attention.q_norm.weight", i);
        Ids p;
        auto total = t_.leaf(0);
        for (std::size_t j = 0; j <= i; ++j) {
          const Ids k = head(qkv[j], c_.q_width() + h / group * d, "attention.k_norm.weight", j);
          auto s = t_.leaf(0);
          for (std::size_t e = 0; e < q.size(); ++e) s = t_.plus(s, t_.times(q[e], k[e]));
          p.push_back(t_.exp(t_.scaled(s, 1 / std::sqrt(double(d)))));
          total = t_.plus(total, p.back());
        }
        Ids mixed(std::size_t(d), t_.leaf(0));
        for (std::size_t j = 0; j <= i; ++j) {
          const auto share = t_.over(p[j], total);
          const Ids v = cut(qkv[j], c_.q_width() + c_.kv_width() + h / group * d, d);
          for (std::size_t e = 0; e < v.size(); ++e) mixed[e] = t_.plus(mixed[e], t_.times(share, v[e]));
        }
        o.insert(o.end(), mixed.begin(), mixed.end());
      }
      add(x[i], product(w_[name + "attention.out.weight"], o));
    }
    for (auto& row : x) {
      const Ids both = product(w_[name + "ffn.gate_up.weight"], norm(row, w_[name + "norm2.weight"]));
      Ids act;
      for (std::int64_t i = 0; i < c_.ffn; ++i) {
        const auto g = both[std::size_t(i)];
        const auto silu = t_.over(g, t_.shifted(t_.exp(t_.scaled(g, -1)), 1));
        act.push_back(t_.times(silu, both[std::size_t(c_.ffn + i)]));
      }
      add(row, product(w_[name + "ffn.down.weight"], act));
    }
  }

  const ModelConfig& c_;
  Tape t_;
  std::map<std::string, Ids> w_;
};

}  // namespace headroom::engine::oracle
