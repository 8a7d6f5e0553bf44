// Two processes share a block of the native pool: one exports the pool as a descriptor and the block as
// bytes, the other imports both, checks what it reads, writes an answer and frees; the first checks the
// answer. Prints "exchanged" when both found every byte, "cannot" and the error where the driver has no such
// pools. Exit code 0 for both.
#define CUPOOL_WEAK
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "cupool/cupool.h"

namespace {

constexpr size_t kBytes = 3 << 20;
constexpr unsigned char kQuestion = 0x5a;
constexpr unsigned char kAnswer = 0xa5;

struct Message {
  int error = 0;
  char data[CUPOOL_POINTER_BYTES] = {};
};

bool send(int socket, const Message& message, int descriptor) {
  iovec part = {const_cast<Message*>(&message), sizeof message};
  char room[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = room;
    header.msg_controllen = sizeof room;
    cmsghdr* const control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &header, 0) == static_cast<ssize_t>(sizeof message);
}

bool receive(int socket, Message* message, int* descriptor) {
  iovec part = {message, sizeof *message};
  char room[CMSG_SPACE(sizeof *descriptor)] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = room;
  header.msg_controllen = sizeof room;
  if (recvmsg(socket, &header, 0) != static_cast<ssize_t>(sizeof *message)) return false;
  const cmsghdr* const control = CMSG_FIRSTHDR(&header);
  if (control != nullptr) memcpy(descriptor, CMSG_DATA(control), sizeof *descriptor);
  return true;
}

bool start() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
         cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

bool holds(CUdeviceptr pointer, unsigned char byte) {
  std::vector<unsigned char> bytes(kBytes);
  if (cuMemcpyDtoH(bytes.data(), pointer, kBytes) != CUDA_SUCCESS) return false;
  for (const unsigned char one : bytes) {
    if (one != byte) return false;
  }
  return true;
}

int import(int socket) {
  Message message;
  int descriptor = -1;
  if (!start() || !receive(socket, &message, &descriptor)) return 3;
  if (message.error != 0) return 0;
  void* pool = nullptr;
  uint64_t pointer = 0;
  if (cupool_import_pool(descriptor, &pool) != 0) return 4;
  if (cupool_import_pointer(pool, message.data, sizeof message.data, &pointer) != 0) return 5;
  close(descriptor);
  if (!holds(pointer, kQuestion)) return 6;
  if (cuMemsetD8(pointer, kAnswer, kBytes) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS) return 7;
  return cuMemFree(pointer) == CUDA_SUCCESS ? 0 : 8;
}

int share(int socket, pid_t child) {
  Message message;
  CUdeviceptr pointer = 0;
  int descriptor = -1;
  if (!start() || cuMemAlloc(&pointer, kBytes) != CUDA_SUCCESS) return 3;
  if (cuMemsetD8(pointer, kQuestion, kBytes) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS) return 3;
  message.error = cupool_export_pool(&descriptor);
  if (message.error == 0) message.error = cupool_export_pointer(pointer, message.data, sizeof message.data);
  if (!send(socket, message, descriptor)) return 3;
  int status = 0;
  if (waitpid(child, &status, 0) < 0) return 3;
  if (message.error != 0) {
    std::printf("cannot %d\n", message.error);
    return 0;
  }
  if (status != 0 || !holds(pointer, kAnswer)) {
    std::printf("failed %d\n", WEXITSTATUS(status));
    return 1;
  }
  std::printf("exchanged\n");
  return cuMemFree(pointer) == CUDA_SUCCESS ? 0 : 1;
}

}  // namespace

int main() {
  if (cupool_export_pool == nullptr) {
    std::printf("absent\n");
    return 0;
  }
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) return 3;
  // Before either uses CUDA, which does not survive a fork.
  const pid_t child = fork();
  if (child < 0) return 3;
  return child == 0 ? import(sockets[1]) : share(sockets[0], child);
}
