// What both sides of the edge of libheadroom_cuda.so need: how an exception is carried, and the library's list of offers.
#include "gpu/beside.h"

namespace headroom::beside {

Failure* caught() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return new Failure{Failure::Kind::error, e.at.code, e.at.file, e.at.line, e.what()};
  } catch (const CallbackThrew&) { return new Failure{.kind = Failure::Kind::callback}; } catch (const std::bad_alloc&) {
    return new Failure{.kind = Failure::Kind::no_memory};
  } catch (const std::exception& e) { return new Failure{Failure::Kind::error, Code::cuda, __FILE__, __LINE__, e.what()}; }
}

void rethrow(std::unique_ptr<Failure> failed, const std::exception_ptr& of_callback) {
  switch (failed->kind) {
    case Failure::Kind::callback: std::rethrow_exception(of_callback);
    case Failure::Kind::no_memory: throw std::bad_alloc();
    case Failure::Kind::error: break;
  }
  throw Error({failed->code, failed->file, failed->line}, failed->text);
}

namespace {
constinit const Offers* last_offers = nullptr;
}  // namespace

Offers::Offers(std::initializer_list<Offer> some) : all(some), next(std::exchange(last_offers, this)) {}

const Offers* all_offers() { return last_offers; }

}  // namespace headroom::beside
