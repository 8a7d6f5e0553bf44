// Victim: forks before CUDA is up, forks after, and starts itself again by exec, as servers and loaders do.
// The driver does not serve a child forked after cuInit; the child must get the driver's answer, not a hang.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

int run(const char* name) {
  victim::Device device(victim::linked_api());
  victim::exercise(device);
  return device.finish(name);
}

template <typename Body>
int in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) victim::die("fork", std::strerror(errno), errno);
  if (child == 0) {
    const int code = body();
    std::fflush(stdout);
    _exit(code);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) victim::die("waitpid", "child died", status);
  return WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "again") == 0) return run("exec child");
  const bool may_exec = argc == 1;  // an emulator cannot exec the emulated program: it passes "no-exec"

  if (const int code = in_child([] { return run("child before init"); }); code != 0) return code;

  victim::Device device(victim::linked_api());
  victim::exercise(device);
  const int idle = in_child([] { return 0; });
  const int asking = in_child([&device] {
    CUdeviceptr p = 0;
    return device.api().cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS ? 1 : 0;
  });
  std::printf("child after init: idle=%d allocation=%s\n", idle, asking == 0 ? "refused" : "served");
  if (may_exec) {
    const int code = in_child([argv] {
      execl("/proc/self/exe", argv[0], "again", static_cast<char*>(nullptr));
      return 3;
    });
    if (code != 0) return code;
  }
  victim::exercise(device);
  return device.finish("fork_exec");
}
