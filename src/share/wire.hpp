// What the two processes say to each other, and the sockets they say it on: packets on a Unix socket that is
// named after the exporter's process (socket_file.hpp). A client sends a Request and gets one Reply, as often
// as it takes to have all descriptors; the next request comes after the last reply was read, so that few
// descriptors are ever on the way. Nothing that arrives is trusted. No state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "share/export_token.hpp"

namespace cupool::share {

// The kernel passes up to 253 at once; many at once would fill a table of descriptors.
inline constexpr uint32_t kMostAtOnce = 32;
// More chunks than any block has: 2 TiB of the smallest.
inline constexpr uint32_t kMostChunks = 1 << 20;
inline constexpr uint64_t kRequestMagic = 0x7131'6c6f'6f70'7563;
inline constexpr uint64_t kReplyMagic = 0x7231'6c6f'6f70'7563;

struct Request {
  uint64_t magic;
  Handle token;
  uint32_t first;  // the chunk to begin with
  uint32_t most;   // how many descriptors the client can take
};

// `count` descriptors come with it; none: the exporter refuses.
struct Reply {
  uint64_t magic;
  uint32_t total;   // chunks under the block
  uint32_t count;   // of them in this reply
  uint64_t offset;  // of the block in the first chunk of all
  uint64_t bytes[kMostAtOnce];
};

inline constexpr uint32_t kOwnUser = UINT32_MAX;

// New sockets, closed on exec, that never block; -1: errno says why.
int listen_as(uint32_t pid, uint64_t instance);
// kBusy: try again later.
enum class Connected { kYes, kBusy, kNo };
Connected connect_to(uint32_t pid, uint64_t instance, int* out);

// Whether there is an exporter of this name, as far as its file says, and it is this user's.
bool is_named(uint32_t pid, uint64_t instance, uint32_t user);
// Nobody connects by this name any more.
void remove_name(uint32_t pid, uint64_t instance);

// Whether the process at the other end has this effective user.
bool is_user(int socket, uint32_t user);
// Whether all that was sent has been read.
bool is_all_read(int socket);

// Sends one packet with descriptors; false: it did not go out.
bool send_packet(int socket, const void* packet, size_t bytes, const int* descriptors, size_t count);
// Receives one packet of at most `room` bytes and returns its size; 0: the other end has closed, -1: errno
// says why. At most `count` descriptors come with it, new and closed on exec; `*lost`: this process could not
// take all of them.
int64_t receive_packet(int socket, void* packet, size_t room, int* descriptors, size_t* count, bool* lost);

}  // namespace cupool::share
