// The file that an exporter's socket is bound to, in the directory of the registry (CUPOOL_NEIGHBOURS_DIR).
// Its mode is 0600, so the kernel turns every other user away before our thread hears of it. Its name is
// random, so nobody can take it beforehand. A killed process leaves its file behind; a later exporter of the
// same user removes it. No state.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>

namespace cupool::share {

class SocketFile {
 public:
  // Of the process that has drawn this instance.
  static SocketFile of(uint32_t pid, uint64_t instance);
  explicit SocketFile(const char* name);

  // Makes the file, in place of one that is there. False: errno says why.
  bool bind(int socket) const;
  // False: errno says why.
  bool connect(int socket) const;
  // Whether a socket of this user is there: others can take a name once its process has ended.
  bool is_of(uint32_t user) const;
  void remove() const;

 private:
  sockaddr_un address_ = {};
  socklen_t length_ = 0;  // 0: the directory's name is too long for a socket's
};

// Removes sockets of this user in whose name nobody listens any more.
void remove_abandoned();

}  // namespace cupool::share
