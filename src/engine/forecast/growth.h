// How a sequence grows with the depth of a model.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace headroom::engine {

// One sequence at depths that are a period apart. Where the deeper ones are longer they repeat what is before; where one thing differs, it
// grows by the same amount each time: `grown(a, b, c, n)` is that thing n periods deeper than a, or nothing. The third, c, shows that this
// goes on; without it (null) that is taken for granted.
template <class T, class Grown>
class Growth {
 public:
  Growth(const std::vector<T>& a, const std::vector<T>& b, const std::vector<T>* c, Grown grown) : a_(a), b_(b), c_(c), grown_(grown) {
    std::size_t i = 0, j = 0, k = 0;
    while (i < a.size() || j < b.size()) {
      if (alike(i, j, k)) {
        ++i, ++j, ++k;
      } else if (const std::size_t n = repeats(i, j, k)) {
        insertions_.push_back({i, j, n});
        j += n, k += 2 * n;
      } else if (i < a.size() && j < b.size() && (!c || k < c->size()) && grown_(a[i], b[j], at(k), 2)) {
        changes_.push_back({i, j, k});
        ++i, ++j, ++k;
      } else {
        return;
      }
    }
    known_ = !c || k == c->size();
  }
  bool known() const { return known_; }

  std::vector<T> deeper(std::int64_t periods) const {
    std::vector<T> all;
    std::size_t added = 0;
    for (const Insertion& in : insertions_) added += in.count;
    all.reserve(a_.size() + added * std::size_t(periods));
    std::size_t i = 0;
    auto change = changes_.begin();
    const auto until = [&](std::size_t end) {
      for (; change != changes_.end() && change->i < end; ++change) {
        all.insert(all.end(), a_.begin() + std::ptrdiff_t(i), a_.begin() + std::ptrdiff_t(change->i));
        all.push_back(*grown_(a_[change->i], b_[change->j], at(change->k), periods));
        i = change->i + 1;
      }
      all.insert(all.end(), a_.begin() + std::ptrdiff_t(i), a_.begin() + std::ptrdiff_t(end));
      i = end;
    };
    for (const Insertion& in : insertions_) {
      until(in.i);
      for (std::int64_t n = 0; n < periods; ++n)
        all.insert(all.end(), b_.begin() + std::ptrdiff_t(in.j), b_.begin() + std::ptrdiff_t(in.j + in.count));
    }
    until(a_.size());
    return all;
  }

 private:
  struct Insertion {
    std::size_t i, j, count;  // before a[i]: b[j] to b[j + count − 1]
  };
  struct Change {
    std::size_t i, j, k;
  };
  const T* at(std::size_t k) const { return c_ ? &(*c_)[k] : nullptr; }
  bool alike(std::size_t i, std::size_t j, std::size_t k) const {
    return i < a_.size() && j < b_.size() && a_[i] == b_[j] && (!c_ || (k < c_->size() && b_[j] == (*c_)[k]));
  }
  // The length of what b has here once more, and c twice; 0: nothing.
  std::size_t repeats(std::size_t i, std::size_t j, std::size_t k) const {
    const auto equal = [](const T* x, const T* y, std::size_t n) { return std::equal(x, x + n, y); };
    const auto twice_in_c = [&](std::size_t n) {
      return k + 2 * n <= c_->size() && equal(&b_[j], at(k), n) && equal(&b_[j], at(k + n), n);
    };
    for (std::size_t n = 1; n <= j && j + n <= b_.size(); ++n) {
      if (!equal(&b_[j - n], &b_[j], n) || (c_ && !twice_in_c(n))) continue;
      const bool ends = i == a_.size() && j + n == b_.size() && (!c_ || k + 2 * n == c_->size());
      if (ends || alike(i, j + n, k + 2 * n)) return n;
    }
    return 0;
  }

  const std::vector<T>&a_, &b_;
  const std::vector<T>* c_;
  Grown grown_;
  std::vector<Insertion> insertions_;
  std::vector<Change> changes_;
  bool known_ = false;
};

// Whole numbers x, y and, where it is known, z grow evenly: the one that is n steps from x.
inline std::optional<double> evenly(double x, double y, std::optional<double> z, std::int64_t n) {
  constexpr double exact = 0x1p53;
  const double end = x + double(n) * (y - x);
  if ((z && *z - y != y - x) || x != std::floor(x) || y != std::floor(y) || std::abs(end) >= exact) return {};
  return end;
}

template <class T, class Of>
std::optional<double> evenly(const T& a, const T& b, const T* c, std::int64_t n, Of&& of) {
  return evenly(double(of(a)), double(of(b)), c ? std::optional(double(of(*c))) : std::nullopt, n);
}

}  // namespace headroom::engine
