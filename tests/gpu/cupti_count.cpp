// Loaded by the driver (CUDA_INJECTION64_PATH) into a program: counts through CUPTI every kernel, copy and
// memset that ran, and which driver function submitted each. CUPTI sits inside the driver, so it also sees
// what no hook can. Owns its counts under one mutex; CUPTI calls back from any thread. Writes them, as JSON,
// to the file named by CUPTI_COUNT_OUTPUT when the program ends; cupti_count_flush() must have been called
// before.
#include <cupti.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

namespace {

// CUPTI is found at run time: programs bring their own copy, and two copies in one process do not work.
#define CUPTI_FUNCTIONS(X)          \
  X(cuptiSubscribe)                 \
  X(cuptiEnableDomain)              \
  X(cuptiActivityRegisterCallbacks) \
  X(cuptiActivityEnable)            \
  X(cuptiActivityFlushAll)          \
  X(cuptiActivityGetNextRecord)     \
  X(cuptiGetCallbackName)

struct Cupti {
#define CUPTI_MEMBER(name) decltype(&::name) name = nullptr;
  CUPTI_FUNCTIONS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
};

constexpr size_t kMostFunctions = 4096;
constexpr size_t kBufferBytes = 4 << 20;

Cupti cupti;
std::array<std::atomic<unsigned long>, kMostFunctions> calls;

struct Counts {
  std::mutex mutex;
  std::unordered_map<uint32_t, uint32_t> function_of;  // driver call by correlation
  std::unordered_map<uint32_t, std::set<uint32_t>>
      functions_in;  // driver calls in a runtime call, by its correlation
  std::map<std::pair<std::string, uint32_t>, unsigned long> records;  // by kind and correlation
};

// Never destroyed: it is read after the destructors of other globals have run.
Counts& counts = *new Counts;

thread_local uint32_t runtime_call = 0;
thread_local unsigned runtime_depth = 0;

void note_driver_call(const CUpti_CallbackData& data, uint32_t function) {
  if (function < kMostFunctions) calls[function].fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(counts.mutex);
  counts.function_of[data.correlationId] = function;
  if (runtime_call != 0) counts.functions_in[runtime_call].insert(function);
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId function, const void* about) {
  const auto& data = *static_cast<const CUpti_CallbackData*>(about);
  const bool enters = data.callbackSite == CUPTI_API_ENTER;
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    // The runtime calls itself too; what it submits carries the number of the outermost call.
    if (enters && runtime_depth++ == 0) runtime_call = data.correlationId;
    if (!enters && runtime_depth > 0 && --runtime_depth == 0) runtime_call = 0;
  } else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && enters) {
    note_driver_call(data, function);
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most = 0;
}

void note_record(const char* kind, uint32_t correlation) {
  const std::lock_guard<std::mutex> lock(counts.mutex);
  ++counts.records[{kind, correlation}];
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        note_record("kernel", reinterpret_cast<CUpti_ActivityKernel10*>(record)->correlationId);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        note_record("copy", reinterpret_cast<CUpti_ActivityMemcpy6*>(record)->correlationId);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        note_record("copy", reinterpret_cast<CUpti_ActivityMemcpyPtoP4*>(record)->correlationId);
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        note_record("memset", reinterpret_cast<CUpti_ActivityMemset4*>(record)->correlationId);
        break;
      default:
        break;
    }
  }
  std::free(buffer);
}

std::string name_of(uint32_t function) {
  const char* name = nullptr;
  if (cupti.cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, function, &name) == CUPTI_SUCCESS &&
      name != nullptr) {
    return name;
  }
  return "function " + std::to_string(function);
}

bool load_cupti() {
  const char* path = std::getenv("CUPTI_COUNT_LIBRARY");
  void* const library =
      dlopen(path != nullptr && *path != '\0' ? path : "libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "cupti_count: %s\n", dlerror());
    return false;
  }
#define CUPTI_LOAD(name)                                                      \
  cupti.name = reinterpret_cast<decltype(cupti.name)>(dlsym(library, #name)); \
  if (cupti.name == nullptr) {                                                \
    std::fprintf(stderr, "cupti_count: this CUPTI has no %s\n", #name);       \
    return false;                                                             \
  }
  CUPTI_FUNCTIONS(CUPTI_LOAD)
#undef CUPTI_LOAD
  return true;
}

bool succeeded(CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS) std::fprintf(stderr, "cupti_count: %s: CUPTI error %d\n", what, result);
  return result == CUPTI_SUCCESS;
}

bool start() {
  CUpti_SubscriberHandle subscriber = nullptr;
  if (!succeeded(cupti.cuptiSubscribe(&subscriber, on_call, nullptr), "subscribe")) return false;
  for (CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API}) {
    if (!succeeded(cupti.cuptiEnableDomain(1, subscriber, domain), "enable a domain")) return false;
  }
  if (!succeeded(cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "register buffers"))
    return false;
  for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                  CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (!succeeded(cupti.cuptiActivityEnable(kind), "enable an activity")) return false;
  }
  return true;
}

// Which driver functions a record may have come from: one, or those inside the runtime call it names, or none
// known.
std::set<uint32_t> origins(uint32_t correlation) {
  if (const auto found = counts.function_of.find(correlation); found != counts.function_of.end())
    return {found->second};
  if (const auto found = counts.functions_in.find(correlation); found != counts.functions_in.end())
    return found->second;
  return {};
}

std::string as_list(const std::set<uint32_t>& functions) {
  std::string text;
  for (uint32_t function : functions) text += (text.empty() ? "\"" : ", \"") + name_of(function) + "\"";
  return "[" + text + "]";
}

[[gnu::destructor]] void write_counts() {
  const char* path = std::getenv("CUPTI_COUNT_OUTPUT");
  if (path == nullptr || cupti.cuptiGetCallbackName == nullptr) return;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return;
  const std::lock_guard<std::mutex> lock(counts.mutex);
  std::fprintf(file, "{\"calls\": {");
  const char* comma = "";
  for (uint32_t function = 0; function < kMostFunctions; ++function) {
    const unsigned long count = calls[function];
    if (count == 0) continue;
    std::fprintf(file, "%s\"%s\": %lu", comma, name_of(function).c_str(), count);
    comma = ", ";
  }
  std::map<std::pair<std::string, std::string>, unsigned long> grouped;
  for (const auto& [key, count] : counts.records) grouped[{key.first, as_list(origins(key.second))}] += count;
  std::fprintf(file, "}, \"records\": [");
  comma = "";
  for (const auto& [key, count] : grouped) {
    std::fprintf(file, "%s{\"kind\": \"%s\", \"by\": %s, \"count\": %lu}", comma, key.first.c_str(),
                 key.second.c_str(), count);
    comma = ", ";
  }
  std::fprintf(file, "]}\n");
  std::fclose(file);
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int InitializeInjection(void) { return load_cupti() && start() ? 1 : 0; }

// The program calls this when its work is done and waited for.
[[gnu::visibility("default")]] void cupti_count_flush(void) {
  if (cupti.cuptiActivityFlushAll != nullptr) cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}
}
