// Victim: valid programs in which something waits for what is submitted later, one case each. Bare, every
// case ends; so it must under a pool. Usage: waits CASE [seconds until it is given up, default 60] | waits
// list Exit code: 0 right, 1 wrong bytes or an old life that goes on, 2 the driver refused a valid call, 3 it
// hung, 77 this device cannot do it.
#include "waits.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace waits {
namespace {

const char kKernels[] =
#include "kernels.ptx.inc"
    ;

const char* running = "";

// Only what a signal handler may do.
void give_up(int) {
  const auto say = [](const char* text) { return write(STDOUT_FILENO, text, std::strlen(text)) >= 0; };
  _exit(say("HANG ") && say(running) && say("\n") ? 3 : 4);
}

int second_device(Places places) {
  MUST(cuInit(0));
  if (places == Places::kContexts) return 0;
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  if (count < 2) skip("one device");
  return 1;
}

}  // namespace

Device::Device(int ordinal, bool own_context) {
  MUST(cuDeviceGet(&device_, ordinal));
  if (own_context) {
    MUST(cuCtxCreate(&context_, nullptr, 0, device_));
  } else {
    MUST(cuDevicePrimaryCtxRetain(&context_, device_));
  }
  enter();
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&fill_, module, "fill"));
  MUST(cuModuleGetFunction(&check_, module, "check"));
  MUST(cuModuleGetFunction(&spin_, module, "spin"));
  MUST(cuModuleGetFunction(&await_, module, "await"));
  constexpr std::uint64_t kVerdict = 4 * sizeof(unsigned long long);
  errors_ = alloc(kVerdict + sizeof(unsigned));
  MUST(cuMemsetD8(errors_, 0, kVerdict + sizeof(unsigned)));
  const CUdeviceptr scratch = errors_ + kVerdict;
  const CUstream first = stream();
  fill(scratch, 4, 0, first);
  check(scratch, 4, 0, first);
  spin(1, first);
  await(scratch, 0, first);
  fill_programmatic(scratch, 4, 0, first);
  MUST(cuCtxSynchronize());
}

CUstream Device::stream(unsigned flags) const {
  CUstream made = nullptr;
  MUST(cuStreamCreate(&made, flags));
  return made;
}

CUdeviceptr Device::alloc(size_t bytes) const {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  return p;
}

void Device::launch(CUfunction function, size_t bytes, void** parameters, CUstream stream) const {
  constexpr size_t kThreads = 256, kMostBlocks = 256;
  const size_t blocks = (bytes + kThreads - 1) / kThreads;
  const auto grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  MUST(cuLaunchKernel(function, grid, 1, 1, bytes == 1 ? 1 : kThreads, 1, 1, 0, stream, parameters, nullptr));
}

void Device::fill(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const {
  void* parameters[] = {&p, &bytes, &value};
  launch(fill_, bytes, parameters, stream);
}

void Device::check(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const {
  CUdeviceptr errors = errors_;
  void* parameters[] = {&p, &bytes, &value, &errors};
  launch(check_, bytes, parameters, stream);
}

void Device::spin(unsigned long long ns, CUstream stream) const {
  void* parameters[] = {&ns};
  launch(spin_, 1, parameters, stream);
}

void Device::await(CUdeviceptr word, unsigned value, CUstream stream) const {
  void* parameters[] = {&word, &value};
  launch(await_, 1, parameters, stream);
}

void Device::use(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const {
  fill(p, bytes, value, stream);
  check(p, bytes, value, stream);
}

void Device::fill_programmatic(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const {
  CUlaunchAttribute early = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 256;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  void* parameters[] = {&p, &bytes, &value};
  MUST(cuLaunchKernelEx(&config, fill_, parameters, nullptr));
}

void Device::live_and_die(size_t bytes, const std::vector<CUstream>& streams) const {
  const CUdeviceptr p = alloc(bytes);
  CUevent done = nullptr;
  MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  for (const CUstream stream : streams) {
    MUST(cuStreamWaitEvent(stream, done, 0));
    spin(kLongNs / 100, stream);
    use(p, bytes, 0xA0, stream);
    MUST(cuEventRecord(done, stream));
  }
  MUST(cuEventDestroy(done));
  free(p);
}

int Device::finish() const {
  enter();
  unsigned long long wrong = 0;
  MUST(cuCtxSynchronize());
  MUST(cuMemcpyDtoH(&wrong, errors_, sizeof wrong));
  if (wrong != 0) std::printf("waits: %llu wrong bytes\n", wrong);
  return wrong != 0 ? 1 : 0;
}

Word::Word() {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, 8, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(memory, 0, 8);
  host_ = static_cast<unsigned*>(memory);
  MUST(cuMemHostGetDevicePointer(&address_, memory, 0));
}

Pair::Pair(Places places)
    : ordinal_(second_device(places)), first_(0), second_(ordinal_, places == Places::kContexts) {
  if (places != Places::kPeers) return;
  let_in(first_, second_);
  let_in(second_, first_);
}

void let_in(const Device& guest, const Device& owner) {
  guest.enter();
  const CUresult result = cuCtxEnablePeerAccess(owner.context(), 0);
  if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) skip("the devices cannot reach each other");
  MUST(result);
}

}  // namespace waits

int main(int count, char** words) {
  using namespace waits;
  if (count == 4 && std::strcmp(words[1], "import") == 0)
    return import(std::atoi(words[2]), std::atoi(words[3]));
  Cases all;
  for (Cases (*const part)() :
       {memory_cases, ordered_cases, program_cases, thread_cases, peer_cases, queue_cases, leaving_cases}) {
    for (Case& one : part()) all.push_back(std::move(one));
  }
  const std::string wanted = count > 1 ? words[1] : "list";
  for (const Case& one : all) {
    if (wanted == "list") std::printf("%s\n", one.name.c_str());
    if (wanted != one.name) continue;
    running = one.name.c_str();
    signal(SIGALRM, give_up);
    alarm(count > 2 ? static_cast<unsigned>(std::atoi(words[2])) : 60);
    const int code = one.run();
    if (code == 0) std::printf("waits: %s: right\n", running);
    return code;
  }
  if (wanted == "list") return 0;
  std::fprintf(stderr, "waits: no case %s\n", wanted.c_str());
  return 2;
}
