// How a value is stored (DType) and how a product of two fp32 values is formed (Math).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

enum class DType : std::uint8_t { f64, f32, bf16, f16, e4m3, e5m2, i64, i32, u32, u16, u8 };
enum class Math : std::uint8_t { exact, tf32 };  // tf32: fp32 storage, operands of matmuls rounded to 10 bits of mantissa

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f64: return "fp64";
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::e4m3: return "fp8";
    case DType::e5m2: return "e5m2";
    case DType::i64: return "int64";
    case DType::i32: return "int32";
    case DType::u32: return "uint32";
    case DType::u16: return "uint16";
    case DType::u8: return "uint8";
  }
  return "?";
}

// What a user asks for in one word: `--dtype tf32` is fp32 storage with tf32 matmuls.
struct Precision {
  DType dtype = DType::f32;
  Math math = Math::exact;
  friend bool operator==(const Precision&, const Precision&) = default;
};

constexpr std::string_view name_of(Precision p) { return p.math == Math::tf32 ? "tf32" : name_of(p.dtype); }

// Every precision that can be asked for, in the order in which help names them.
inline constexpr Precision precisions[] = {
    {DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}, {DType::f16, Math::exact}, {DType::e4m3, Math::exact}};

constexpr std::optional<Precision> precision_named(std::string_view name) {
  for (const Precision p : precisions)
    if (name_of(p) == name) return p;
  return std::nullopt;
}

}  // namespace headroom
