// The whole model in FP64 on a tape of scalars: every number remembers what it came from, and gradients flow back along that.
// Shares nothing with the engine but the table of parameters and the meaning of its layouts.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model/decoder.h"

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
  Id tanh(Id a) {
    const double t = std::tanh(value(a));
    return add(t, a, 1 - t * t, -1, 0);
  }
  Id erf(Id a) {
    const double x = value(a);
    return add(std::erf(x), a, 1.1283791670955126 * std::exp(-x * x), -1, 0);
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
  // frequencies: of each pair of a head's elements that turn, by whether the layer has a window; and what they are multiplied with.
  struct Turned {
    std::vector<double> of_pair;
    double magnitude = 1;
  };
  Lm(const Decoder& d, const std::map<std::string, std::vector<double>>& weights, std::map<bool, Turned> turned = {})
      : d_(d), turned_(std::move(turned)) {
    for (const auto& [name, values] : weights)
      for (double v : values) w_[name].push_back(t_.leaf(v));
  }

  Result run(const std::vector<int>& tokens, const std::vector<int>& targets, std::int64_t batch, std::int64_t len) {
    Tape::Id sum = t_.leaf(0);
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<Ids> x;
      for (std::int64_t i = 0; i < len; ++i) {
        Ids row = scaled(row_of("embedding.weight", tokens[std::size_t(b * len + i)]), d_.embedding_scale);
        if (d_.positions > 0) add(row, row_of("positions.weight", i));
        x.push_back(row);
      }
      for (int l = 0; l < int(d_.layers.size()); ++l) block("blocks." + std::to_string(l) + ".", d_.layers[std::size_t(l)], x);
      for (std::int64_t i = 0; i < len; ++i) {
        Ids logits = product(w_[d_.tied ? "embedding.weight" : "head.weight"], norm(x[std::size_t(i)], "final_norm"));
        if (d_.logit_softcap > 0) logits = capped(logits, d_.logit_softcap);
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
  Ids row_of(const std::string& table, std::int64_t row) {
    const auto at = w_[table].begin() + row * d_.width;
    return Ids(at, at + d_.width);
  }
  Ids scaled(Ids x, double by) {
    for (auto& v : x) v = t_.scaled(v, by);
    return x;
  }
  Ids capped(Ids x, double cap) {
    for (auto& v : x) v = t_.scaled(t_.tanh(t_.scaled(v, 1 / cap)), cap);
    return x;
  }
  Ids rms(const Ids& x, const Ids& w) {
    auto s = t_.leaf(0);
    for (auto v : x) s = t_.plus(s, t_.times(v, v));
    const auto root = t_.sqrt(t_.shifted(t_.scaled(s, 1.0 / double(x.size())), d_.norm_eps));
    Ids y;
    for (std::size_t i = 0; i < x.size(); ++i) y.push_back(t_.times(t_.over(x[i], root), w[i]));
    return y;
  }
  Ids norm(const Ids& x, const std::string& name) {
    const Ids& w = w_[name + ".weight"];
    if (!d_.layer_norm) return rms(x, w);
    auto mean = t_.leaf(0), variance = t_.leaf(0);
    for (auto v : x) mean = t_.plus(mean, v);
    mean = t_.scaled(mean, 1.0 / double(x.size()));
    Ids y;
    for (auto v : x) y.push_back(t_.minus(v, mean));
    for (auto v : y) variance = t_.plus(variance, t_.times(v, v));
    const auto root = t_.sqrt(t_.shifted(t_.scaled(variance, 1.0 / double(x.size())), d_.norm_eps));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = t_.plus(t_.times(t_.over(y[i], root), w[i]), w_[name + ".bias"][i]);
    return y;
  }
  Ids turned(Ids x, const SelfAttention& a, std::int64_t position) {  // one head, its first elements
    if (d_.positions > 0) return x;
    const auto dim = std::size_t(a.turned.dim ? a.turned.dim : a.head_dim), half = dim / 2;
    const auto given = turned_.find(a.window > 0);
    for (std::size_t i = 0; i < half; ++i) {
      const double frequency =
          given != turned_.end() ? given->second.of_pair.at(i) : std::pow(a.turned.theta, -2.0 * double(i) / double(dim));
      const double angle = double(position) * frequency, size = given != turned_.end() ? given->second.magnitude : 1;
      const auto u = x[i], v = x[half + i];
      x[i] = t_.scaled(t_.minus(t_.scaled(u, std::cos(angle)), t_.scaled(v, std::sin(angle))), size);
      x[half + i] = t_.scaled(t_.plus(t_.scaled(v, std::cos(angle)), t_.scaled(u, std::sin(angle))), size);
    }
    return x;
  }
  static Ids cut(const Ids& x, std::int64_t from, std::int64_t count) { return Ids(x.begin() + from, x.begin() + from + count); }
  void add(Ids& x, const Ids& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = t_.plus(x[i], y[i]);
  }
  Tape::Id bent(Tape::Id x, activation::Function f) {
    const auto sigmoid = [&](Tape::Id u) { return t_.over(t_.leaf(1), t_.shifted(t_.exp(t_.scaled(u, -1)), 1)); };
    switch (f) {
      case activation::Function::silu: return t_.times(x, sigmoid(x));
      case activation::Function::gelu: return t_.scaled(t_.times(x, t_.shifted(t_.erf(t_.scaled(x, std::sqrt(0.5))), 1)), 0.5);
      case activation::Function::gelu_tanh: {
        const auto cube = t_.times(x, t_.times(x, x));
        const auto inner = t_.scaled(t_.plus(x, t_.scaled(cube, 0.044715)), std::sqrt(2 / 3.14159265358979324));
        return t_.scaled(t_.times(x, t_.shifted(t_.tanh(inner), 1)), 0.5);
      }
      case activation::Function::relu: return t_.value(x) > 0 ? x : t_.leaf(0);
    }
    return x;
  }

  void block(const std::string& name, const DecoderLayer& layer, std::vector<Ids>& x) {
    const SelfAttention& a = layer.attention;
    const auto d = a.head_dim, group = a.heads / a.kv_heads;
    std::vector<Ids> qkv;
    for (auto& row : x) {
      qkv.push_back(product(w_[name + "attention.qkv.weight"], d_.norms_before ? norm(row, name + "norm1") : row));
      if (a.qkv_bias) add(qkv.back(), w_[name + "attention.qkv.bias"]);
      if (a.norm != HeadNorm::whole) continue;
      const auto normed = [&](std::int64_t from, std::int64_t width, const char* weight) {
        const Ids y = rms(cut(qkv.back(), from, width), w_[name + weight]);
        std::copy(y.begin(), y.end(), qkv.back().begin() + from);
      };
      normed(0, a.q_width(), "attention.q_norm.weight");
      normed(a.q_width(), a.k_width(), "attention.k_norm.weight");
    }
    const auto head = [&](const Ids& row, std::int64_t from, const char* weight, std::size_t position) {
      const Ids raw = cut(row, from, d);
      return turned(a.norm == HeadNorm::each ? rms(raw, w_[name + weight]) : raw, a, std::int64_t(position));
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t first = a.window > 0 && std::int64_t(i) >= a.window ? i + 1 - std::size_t(a.window) : 0;
      Ids o;
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const Ids q = head(qkv[i], h * d, "attention.q_norm.weight", i);
        Ids p;
        auto total = t_.leaf(0);
        for (std::size_t j = first; j <= i; ++j) {
          const Ids k = head(qkv[j], a.q_width() + h / group * d, "attention.k_norm.weight", j);
          auto s = t_.leaf(0);
          for (std::size_t e = 0; e < q.size(); ++e) s = t_.plus(s, t_.times(q[e], k[e]));
          s = t_.scaled(s, a.scale > 0 ? a.scale : 1 / std::sqrt(double(d)));
          if (a.softcap > 0) s = capped({s}, a.softcap)[0];
          p.push_back(t_.exp(s));
          total = t_.plus(total, p.back());
        }
        Ids mixed(std::size_t(d), t_.leaf(0));
        for (std::size_t j = first; j <= i; ++j) {
          const auto share = t_.over(p[j - first], total);
          const Ids v = cut(qkv[j], a.q_width() + a.k_width() + h / group * d, d);
          for (std::size_t e = 0; e < v.size(); ++e) mixed[e] = t_.plus(mixed[e], t_.times(share, v[e]));
        }
        o.insert(o.end(), mixed.begin(), mixed.end());
      }
      Ids y = product(w_[name + "attention.out.weight"], o);
      if (a.out_bias) add(y, w_[name + "attention.out.bias"]);
      add(x[i], d_.norms_after ? rms(y, w_[name + "norm1_after.weight"]) : y);
    }
    const FeedForward& f = layer.ffn;
    const std::string in = f.gated ? "ffn.gate_up." : "ffn.up.";
    for (auto& row : x) {
      Ids both = product(w_[name + in + "weight"], d_.norms_before ? norm(row, name + "norm2") : row);
      if (f.bias) add(both, w_[name + in + "bias"]);
      Ids act;
      for (std::int64_t i = 0; i < f.width; ++i) {
        const auto value = bent(both[std::size_t(i)], f.function);
        act.push_back(f.gated ? t_.times(value, both[std::size_t(f.width + i)]) : value);
      }
      Ids y = product(w_[name + "ffn.down.weight"], act);
      if (f.bias) add(y, w_[name + "ffn.down.bias"]);
      add(row, d_.norms_after ? rms(y, w_[name + "norm2_after.weight"]) : y);
    }
  }

  const Decoder d_;
  std::map<bool, Turned> turned_;
  Tape t_;
  std::map<std::string, Ids> w_;
};

}  // namespace headroom::engine::oracle
