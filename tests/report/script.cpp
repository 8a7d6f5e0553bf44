// A program that does what its arguments say, one step each, so that a test can state in one line what
// happened:
//   a:NAME:BYTES  allocate     f:NAME  free              m:NAME:STREAM  memset on stream 1, 2 …
//   l             say "waiting", and wait for a line
//   s             synchronise  n:MS    let time pass     g:NAME:BYTES  allocate managed memory
//   e:STREAM      ask for an event of the stream until it is done: the program knows, and nobody else
//   y:STREAM      wait for the stream             T@STEP  any step, by a thread of its own
//   o:NAME:BYTES  allocate stream-ordered memory         F:NAME  free in the order of the default stream
//   C             a context of its own is made and used
//   t:THREADS:BYTES:COUNT  that many pairs in each thread
//   h:THREADS:BYTES:COUNT  blocks for all, allocated here; each thread frees that many, all at once
//   p:NAME        print one of cupool's statistics       r  reset cupool's peaks
//   c:NAME        print the block's first byte           w  free a wild pointer
//   k             a child is forked and exits            R  the device's context is reset and taken again
//   T:BYTES       cupool_trim to so many bytes           M:BYTES  cupool_set_max_cached
//   D             the context is destroyed, if the driver lets us
//   S:NAME        set SYNC_MEMOPS on a block              i:NAME  get an IPC handle of a block
//   A             from now on print the address of each block that is allocated
//   L:PATH        load a library                         u:BYTES  no file may become larger
//   x:HOW         end by exit, _exit, quick, abort, term, int, hup, kill; or usr2, and go on
// A step that fails prints its argument and the driver's error, and the next one follows.
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Step {
  std::vector<std::string> words;
  const std::string& at(size_t i) const { return words.at(i); }
  unsigned long long number(size_t i) const { return std::strtoull(words.at(i).c_str(), nullptr, 10); }
};

std::map<std::string, CUdeviceptr> blocks;
std::map<std::string, std::size_t> sizes;
std::map<std::string, CUstream> streams;
CUcontext context = nullptr;
bool prints_addresses = false;

Step split(const std::string& text) {
  Step step;
  std::size_t at = 0;
  for (std::size_t end = 0; end != std::string::npos; at = end + 1) {
    end = text.find(':', at);
    step.words.push_back(text.substr(at, end - at));
  }
  return step;
}

CUresult allocate(const Step& step) {
  CUdeviceptr& block = blocks[step.at(1)];
  sizes[step.at(1)] = step.number(2);
  const CUresult result = cuMemAlloc(&block, step.number(2));
  if (result == CUDA_SUCCESS && prints_addresses) std::printf("at %llu\n", block);
  return result;
}

CUresult work(const Step& step) {
  CUstream& stream = streams[step.at(2)];
  if (stream == nullptr && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return CUDA_ERROR_UNKNOWN;
  return cuMemsetD8Async(blocks[step.at(1)], 1, sizes[step.at(1)], stream);
}

CUresult ask_for_end(const Step& step) {
  CUevent event = nullptr;
  CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = cuEventRecord(event, streams[step.at(1)]);
  while (result == CUDA_SUCCESS && (result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
    result = CUDA_SUCCESS;
  cuEventDestroy(event);
  return result;
}

void pairs(std::size_t bytes, unsigned long long count) {
  cuCtxSetCurrent(context);
  for (unsigned long long i = 0; i < count; ++i) {
    CUdeviceptr p = 0;
    if (cuMemAlloc(&p, bytes) == CUDA_SUCCESS) cuMemFree(p);
  }
}

CUresult run_threads(const Step& step) {
  std::vector<std::thread> threads;
  for (unsigned long long i = 0; i < step.number(1); ++i)
    threads.emplace_back(pairs, step.number(2), step.number(3));
  for (std::thread& thread : threads) thread.join();
  return CUDA_SUCCESS;
}

// All threads live until the last has freed its share, so that each has a cache of its own.
CUresult hand_over(const Step& step) {
  const unsigned long long count = step.number(3);
  std::vector<CUdeviceptr> all(step.number(1) * count);
  for (CUdeviceptr& p : all) {
    if (const CUresult result = cuMemAlloc(&p, step.number(2)); result != CUDA_SUCCESS) return result;
  }
  std::barrier freed(static_cast<std::ptrdiff_t>(step.number(1)));
  std::vector<std::thread> threads;
  for (unsigned long long i = 0; i < step.number(1); ++i) {
    threads.emplace_back([&, i] {
      cuCtxSetCurrent(context);
      for (unsigned long long j = 0; j < count; ++j) cuMemFree(all[i * count + j]);
      freed.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return CUDA_SUCCESS;
}

CUresult reset() {
  CUdevice device = 0;
  cuCtxGetDevice(&device);
  const CUresult result = cuDevicePrimaryCtxReset(device);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  streams.clear();
  return result;
}

CUresult create_context() {
  CUdevice device = 0;
  cuCtxGetDevice(&device);
  streams.clear();
  return cuCtxCreate(&context, nullptr, 0, device);
}

void print_stat(const std::string& name) {
  using Stat = int (*)(const char*, unsigned long long*);
  const auto stat = reinterpret_cast<Stat>(dlsym(RTLD_DEFAULT, "cupool_stat"));
  unsigned long long value = 0;
  const int result = stat == nullptr ? -1 : stat(name.c_str(), &value);
  std::printf("%s %s\n", name.c_str(), result == 0 ? std::to_string(value).c_str() : "unknown");
}

void end(const std::string& how) {
  std::fflush(stdout);
  if (how == "exit") std::exit(0);
  if (how == "_exit") _exit(0);
  if (how == "quick") std::quick_exit(0);
  if (how == "abort") std::abort();
  if (how == "term") raise(SIGTERM);
  if (how == "int") raise(SIGINT);
  if (how == "hup") raise(SIGHUP);
  if (how == "usr2") raise(SIGUSR2);
  if (how == "kill") raise(SIGKILL);
}

CUresult print_byte(const std::string& name) {
  unsigned char byte = 0;
  const CUresult result = cuMemcpyDtoH(&byte, blocks[name], 1);
  std::printf("byte %d\n", byte);
  return result;
}

void fork_child() {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  waitpid(child, nullptr, 0);
}

CUresult take(const Step& step) {
  const std::string& verb = step.at(0);
  if (verb == "a") return allocate(step);
  if (verb == "A") prints_addresses = true;
  if (verb == "f") return cuMemFree(blocks[step.at(1)]);
  if (verb == "F") return cuMemFreeAsync(blocks[step.at(1)], nullptr);
  if (verb == "g") return cuMemAllocManaged(&blocks[step.at(1)], step.number(2), CU_MEM_ATTACH_GLOBAL);
  if (verb == "o") return cuMemAllocAsync(&blocks[step.at(1)], step.number(2), nullptr);
  if (verb == "C") return create_context();
  if (verb == "D") return cuCtxDestroy(context);
  if (verb == "w") return cuMemFree(CUdeviceptr{16});
  if (verb == "S") {
    const unsigned on = 1;
    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[step.at(1)]);
  }
  if (verb == "i") {
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, blocks[step.at(1)]);
  }
  if (verb == "c") return print_byte(step.at(1));
  if (verb == "m") return work(step);
  if (verb == "s") return cuCtxSynchronize();
  if (verb == "y") return cuStreamSynchronize(streams[step.at(1)]);
  if (verb == "e") return ask_for_end(step);
  if (verb == "t") return run_threads(step);
  if (verb == "h") return hand_over(step);
  if (verb == "R") return reset();
  if (verb == "n") {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.number(1));
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  if (verb == "l") {
    puts("waiting");
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar()) continue;
  }
  if (verb == "p") print_stat(step.at(1));
  if (verb == "r") {
    if (const auto reset = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "cupool_reset_peaks"))) reset();
  }
  if (verb == "T") {
    if (const auto trim = reinterpret_cast<size_t (*)(size_t)>(dlsym(RTLD_DEFAULT, "cupool_trim")))
      std::printf("trimmed %zu\n", trim(step.number(1)));
  }
  if (verb == "M") {
    if (const auto set = reinterpret_cast<void (*)(size_t)>(dlsym(RTLD_DEFAULT, "cupool_set_max_cached")))
      set(step.number(1));
  }
  if (verb == "k") fork_child();
  if (verb == "L" && dlopen(step.at(1).c_str(), RTLD_NOW) == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  if (verb == "u") {
    const rlimit most{step.number(1), step.number(1)};
    setrlimit(RLIMIT_FSIZE, &most);
  }
  if (verb == "x") end(step.at(1));
  return CUDA_SUCCESS;
}

CUresult take_apart(const Step& step) {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    cuCtxSetCurrent(context);
    result = take(step);
  }).join();
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  CUdevice device = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 3;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
    return 3;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const CUresult result = word.starts_with("T@") ? take_apart(split(word.substr(2))) : take(split(word));
    if (result != CUDA_SUCCESS) std::printf("%s error %d\n", arguments[i], static_cast<int>(result));
  }
  return 0;
}
