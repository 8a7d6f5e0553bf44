// See wire.hpp.
#include "share/wire.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptors.hpp"
#include "share/socket_file.hpp"

namespace cupool::share {
namespace {

constexpr int kKind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

uint32_t number_of(uint32_t user) { return user == kOwnUser ? geteuid() : user; }

// Room for the descriptors of one packet.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * kMostAtOnce)];
};

int close_with_errno(int socket) {
  const int error = errno;
  close(socket);
  errno = error;
  return -1;
}

}  // namespace

int listen_as(uint32_t pid, uint64_t instance) {
  constexpr int kBacklog = 64;
  const SocketFile name = SocketFile::of(pid, instance);
  const int made = move_up(socket(AF_UNIX, kKind, 0));
  if (made < 0) return -1;
  if (name.bind(made) && listen(made, kBacklog) == 0) return made;
  close_with_errno(made);
  name.remove();
  return -1;
}

Connected connect_to(uint32_t pid, uint64_t instance, int* out) {
  const int made = move_up(socket(AF_UNIX, kKind, 0));
  if (made < 0) return Connected::kNo;
  if (SocketFile::of(pid, instance).connect(made)) {
    *out = made;
    return Connected::kYes;
  }
  close_with_errno(made);
  return errno == EAGAIN || errno == EINTR ? Connected::kBusy : Connected::kNo;
}

bool is_named(uint32_t pid, uint64_t instance, uint32_t user) {
  return SocketFile::of(pid, instance).is_of(number_of(user));
}

void remove_name(uint32_t pid, uint64_t instance) { SocketFile::of(pid, instance).remove(); }

bool is_user(int socket, uint32_t user) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer) return false;
  return peer.uid == number_of(user);
}

bool is_all_read(int socket) {
  int unread = 0;
  return ioctl(socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

bool send_packet(int socket, const void* packet, size_t bytes, const int* descriptors, size_t count) {
  iovec part = {const_cast<void*>(packet), bytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  if (count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * count);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes);
}

int64_t receive_packet(int socket, void* packet, size_t room, int* descriptors, size_t* count, bool* lost) {
  const size_t most = *count;
  *count = 0;
  *lost = false;
  iovec part = {packet, room};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  message.msg_control = most > 0 ? control.bytes : nullptr;
  message.msg_controllen = most > 0 ? CMSG_SPACE(sizeof(int) * std::min<size_t>(most, kMostAtOnce)) : 0;
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return -1;
  *lost = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < here; ++i) {
      int number;
      memcpy(&number, CMSG_DATA(one) + i * sizeof number, sizeof number);
      // The padding of the buffer has room for one more.
      if (*count < most) {
        descriptors[(*count)++] = number;
      } else {
        close(number);
        *lost = true;
      }
    }
  }
  // A packet that is longer than requested violates the protocol.
  return (message.msg_flags & MSG_TRUNC) != 0 ? static_cast<int64_t>(room) + 1 : got;
}

}  // namespace cupool::share
