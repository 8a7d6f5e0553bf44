// The chapter about sharing memory between processes. This program runs itself again as the other process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "facts.hpp"

namespace facts {
namespace {

std::string as_hex(const CUipcMemHandle& handle) {
  std::string text;
  char two[3];
  for (const char c : handle.reserved) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text;
}

// Runs this program again on a handle; its exit code is what the other process found there.
int first_byte_elsewhere(const CUipcMemHandle& handle) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "facts", "open", as_hex(handle).c_str(), nullptr);
    _exit(255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

constexpr int kOpenFailed = 200;

}  // namespace

int open_handle(const char* text) {
  CUipcMemHandle handle;
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  }
  Device d;
  CUdeviceptr p = 0;
  const CUresult opened = cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened != CUDA_SUCCESS) return kOpenFailed + static_cast<int>(opened);
  unsigned char byte = 0;
  MUST(cuMemcpyDtoH_v2(&byte, p, 1));
  MUST(cuIpcCloseMemHandle(p));
  return byte;
}

void ipc() {
  Device d;
  CUdeviceptr first = allocate(8192);
  CUdeviceptr second = allocate(8192);
  CUdeviceptr large = allocate(4 << 20);
  MUST(cuMemsetD8_v2(first, 11, 8192));
  MUST(cuMemsetD8_v2(second, 22, 64));
  MUST(cuMemsetD8_v2(large, 33, 4 << 20));
  MUST(cuCtxSynchronize());
  CUipcMemHandle handle;
  CUdeviceptr mine = 0;
  MUST(cuIpcGetMemHandle(&handle, second));
  EXPECT(first_byte_elsewhere(handle), 22);
  for (int i = 56; i < 64; ++i) EXPECT(handle.reserved[i], 0);
  CUipcMemHandle interior;
  MUST(cuIpcGetMemHandle(&interior, second + 100));
  EXPECT(first_byte_elsewhere(interior), 22);
  CUipcMemHandle tail = handle;
  std::memset(tail.reserved + 56, 0x5a, 8);
  EXPECT(first_byte_elsewhere(tail), 22);
  CUipcMemHandle masked = handle;
  for (int i = 0; i < 56; ++i) masked.reserved[i] = static_cast<char>(masked.reserved[i] ^ 0x5a);
  EXPECT(first_byte_elsewhere(masked), kOpenFailed + CUDA_ERROR_INVALID_VALUE);
  MUST(cuIpcGetMemHandle(&handle, large));
  EXPECT(first_byte_elsewhere(handle), 33);
  EXPECT(cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
         CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace facts
