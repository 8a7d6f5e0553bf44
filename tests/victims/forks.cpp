// Victim: forks in odd moments. "looked": the parent has only looked up a function, so that the child may use
// CUDA. "green": another thread is busy with a green context, so that a lock may be held in the fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

template <typename Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    const int code = body();
    std::fflush(stdout);
    _exit(code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) victim::die("fork", std::strerror(errno), errno);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int looked() {
  void* found = nullptr;
  int version = 0;
  CUdriverProcAddressQueryResult status;
  VICTIM_CHECK(cuDriverGetVersion(&version));
  VICTIM_CHECK(cuGetProcAddress("cuMemAlloc", &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  return in_child([] {
    victim::Device device(victim::linked_api());
    victim::exercise(device);
    return device.finish("forks");
  });
}

int green() {
  CUdevResource resource = {};
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  VICTIM_CHECK(cuInit(0));
  VICTIM_CHECK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
  VICTIM_CHECK(cuDevResourceGenerateDesc(&description, &resource, 1));
  VICTIM_CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done.load()) VICTIM_CHECK(cuCtxFromGreenCtx(&context, green));
  });
  int hanging = 0;
  for (int i = 0; i < 300; ++i) {
    // A child that waits for a thread it does not have dies of the alarm.
    const int code = in_child([] {
      alarm(10);
      return cuDevicePrimaryCtxReset(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
    });
    if (code != 0) {
      std::printf("child %d ended with %d\n", i, code);
      hanging = 1;
      break;
    }
  }
  done.store(true);
  other.join();
  return hanging;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "green") == 0) return green();
  return looked();
}
