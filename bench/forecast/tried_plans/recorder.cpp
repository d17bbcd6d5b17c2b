// Records what PyTorch asks of cuDNN's plans: preloaded, it stands before libcudnn's backend functions. Text by plans_text().
#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>
namespace {
template <class F>
F next(F, const char* name) {
  static void* const own = dlsym(RTLD_NEXT, "cudnnBackendFinalize") ? RTLD_NEXT : nullptr;
  void* f = own ? dlsym(own, name) : nullptr;
  if (!f) {
    void* lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    if (!lib) lib = dlopen("libcudnn.so.9", RTLD_NOW);
    f = dlsym(lib, name);
  }
  return reinterpret_cast<F>(f);
}
struct Plan {
  std::string what;
  long long ws = -1;
  int rc = 0, runs = 0, run_rc = 0;
};
std::recursive_mutex m;
std::unordered_map<void*, int> types;
std::unordered_map<void*, void*> config_of;
std::unordered_map<void*, std::size_t> index_of;
std::vector<Plan> plans;
int last = -1;
std::string out;
}  // namespace
extern "C" {
using D = void*;
int cudnnBackendCreateDescriptor(int type, D* to);
int cudnnBackendDestroyDescriptor(D d);
int cudnnBackendSetAttribute(D d, int a, int t, std::int64_t n, const void* from);
int cudnnBackendGetAttribute(D d, int a, int t, std::int64_t n, std::int64_t* c, void* to);
int cudnnBackendFinalize(D d);
int cudnnBackendExecute(void* h, D p, D v);
#define NEXT(f) static const auto real = next(&f, #f)
static int get_real(D d, int a, int t, std::int64_t n, std::int64_t* c, void* to) {
  NEXT(cudnnBackendGetAttribute);
  return real(d, a, t, n, c, to);
}
static int create_real(int type, D* to) {
  NEXT(cudnnBackendCreateDescriptor);
  return real(type, to);
}
static int destroy_real(D d) {
  NEXT(cudnnBackendDestroyDescriptor);
  return real(d);
}
int cudnnBackendCreateDescriptor(int type, D* to) {
  const int rc = create_real(type, to);
  std::lock_guard g(m);
  if (rc == 0) types[*to] = type;
  return rc;
}
int cudnnBackendDestroyDescriptor(D d) {
  {
    std::lock_guard g(m);
    types.erase(d);
    config_of.erase(d);
    index_of.erase(d);
  }
  return destroy_real(d);
}
int cudnnBackendSetAttribute(D d, int a, int t, std::int64_t n, const void* from) {
  NEXT(cudnnBackendSetAttribute);
  if (a == 401 && n == 1 && from) {
    std::lock_guard g(m);
    config_of[d] = *static_cast<void* const*>(from);
  }
  return real(d, a, t, n, from);
}
int cudnnBackendGetAttribute(D d, int a, int t, std::int64_t n, std::int64_t* c, void* to) { return get_real(d, a, t, n, c, to); }
static std::string describe(D config) {
  std::string s;
  D e = nullptr;
  std::int64_t c = 0, v = -1;
  char b[64];
  if (create_real(2, &e) == 0) {
    if (get_real(config, 300, 15, 1, &c, &e) == 0) get_real(e, 1301, 3, 1, &c, &v);
    s = std::to_string(v);
    int notes[16];
    c = 0;
    if (get_real(e, 1303, 11, 16, &c, notes) == 0) {
      s += "n";
      for (int i = 0; i < c && i < 16; ++i) s += char('a' + notes[i]);
    }
    destroy_real(e);
  }
  D k[40];
  for (auto& x : k) create_real(7, &x);
  c = 0;
  if (get_real(config, 302, 15, 40, &c, k) == 0)
    for (int i = 0; i < c && i < 40; ++i) {
      int which = -1;
      std::int64_t value = -1, one = 0;
      get_real(k[i], 600, 9, 1, &one, &which);
      get_real(k[i], 601, 3, 1, &one, &value);
      std::snprintf(b, sizeof b, "k%d=%lld", which, (long long)value);
      s += b;
    }
  for (auto& x : k) destroy_real(x);
  return s;
}
int cudnnBackendFinalize(D d) {
  NEXT(cudnnBackendFinalize);
  const int rc = real(d);
  D config = nullptr;
  {
    std::lock_guard g(m);
    const auto at = types.find(d);
    if (at == types.end() || at->second != 5) return rc;
    if (const auto c = config_of.find(d); c != config_of.end()) config = c->second;
  }
  Plan p;
  p.rc = rc;
  if (config) p.what = describe(config);
  if (rc == 0) {
    std::int64_t n = 0, w = -1;
    get_real(d, 402, 3, 1, &n, &w);
    p.ws = w;
  }
  std::lock_guard g(m);
  index_of[d] = plans.size();
  plans.push_back(p);
  return rc;
}
int cudnnBackendExecute(void* h, D p, D v) {
  NEXT(cudnnBackendExecute);
  const int rc = real(h, p, v);
  std::lock_guard g(m);
  if (const auto at = index_of.find(p); at != index_of.end() && at->second < plans.size()) {
    Plan& q = plans[at->second];
    ++q.runs;
    if (rc) q.run_rc = rc;
    if (!rc) last = int(at->second);
  }
  return rc;
}
void plans_begin() {
  std::lock_guard g(m);
  plans.clear();
  index_of.clear();
  last = -1;
}
// what,workspace,rc of finalize,runs,rc of runs; one a line, in the order of making. The last that ran is marked.
const char* plans_text() {
  std::lock_guard g(m);
  out.clear();
  char b[96];
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& p = plans[i];
    std::snprintf(b, sizeof b, ",%lld,%d,%d,%d%s;", p.ws, p.rc, p.runs, p.run_rc, int(i) == last ? ",*" : "");
    out += p.what + b;
  }
  return out.c_str();
}
}
