// What both sides of the edge of libheadroom_cuda.so need: how an exception is carried, and the library's list of offers.
#include "gpu/beside.h"

#include <memory>
#include <stdexcept>

namespace headroom::beside {

namespace {
Failure no_memory{.kind = Failure::Kind::no_memory};  // needs no memory itself, and is never deleted
}  // namespace

Failure* caught() noexcept {
  using Kind = Failure::Kind;
  const auto of = [](Kind kind, const char* text) { return new Failure{.kind = kind, .text = text}; };
  try {
    try {
      throw;
    } catch (const Error& e) {
      return new Failure{.kind = Kind::error, .code = e.at.code, .file = e.at.file, .line = e.at.line, .text = e.what()};
    } catch (const CallbackThrew&) { return of(Kind::callback, ""); } catch (const std::bad_alloc&) {
      return &no_memory;
    } catch (const std::logic_error& e) { return of(Kind::logic_error, e.what()); } catch (const std::exception& e) {
      return of(Kind::runtime_error, e.what());
    } catch (...) { return of(Kind::runtime_error, "an exception of an unknown type in libheadroom_cuda.so"); }
  } catch (...) { return &no_memory; }
}

void rethrow(Failure* failed, const std::exception_ptr& of_callback) {
  using Kind = Failure::Kind;
  if (failed->kind == Kind::no_memory) throw std::bad_alloc();
  const std::unique_ptr<Failure> owned(failed);
  switch (failed->kind) {
    case Kind::error: throw Error({failed->code, failed->file, failed->line}, failed->text);
    case Kind::callback: std::rethrow_exception(of_callback);
    case Kind::logic_error: throw std::logic_error(failed->text);
    case Kind::runtime_error:
    case Kind::no_memory: break;
  }
  throw std::runtime_error(failed->text);
}

namespace {
constinit const Offers* last_offers = nullptr;
}  // namespace

Offers::Offers(std::initializer_list<Offer> some) : all(some), next(std::exchange(last_offers, this)) {}

const Offers* all_offers() { return last_offers; }

}  // namespace headroom::beside
