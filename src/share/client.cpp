// See client.hpp.
#include "share/client.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <optional>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/fork_gate.hpp"
#include "base/preserve_errno.hpp"

namespace cupool::share {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class Deadline {
 public:
  explicit Deadline(uint64_t patience_ns) : end_(now_ns() + patience_ns) {}
  void extend(uint64_t ns) { end_ += ns; }
  bool is_over() const { return now_ns() >= end_; }
  int left_ms() const { return is_over() ? 0 : static_cast<int>((end_ - now_ns()) / kMillisecond + 1); }

 private:
  uint64_t end_;
};

// Sockets of fetches under way, which a fork child closes.
struct OpenSocket {
  std::atomic<bool> is_taken{false};  // and its thread's
  KeptDescriptor socket;
};
constinit std::array<OpenSocket, 16> open_sockets{};
CUPOOL_AFTER_FORK(open_sockets_after_fork, [] {
  for (OpenSocket& one : open_sockets) {
    one.socket.close();
    one.is_taken.store(false, std::memory_order_relaxed);
  }
});

// Open for one fetch.
class Socket {
 public:
  Socket(const ExportToken& token, const Deadline& deadline) {
    Connected how;
    while ((how = connect(token)) == Connected::kBusy) {
      if (deadline.is_over()) return;
      sleep_for(kMillisecond);
    }
    error_ = how == Connected::kYes ? 0 : errno;
  }
  ~Socket() {
    if (number_ < 0) return;
    const NoFork gate;
    close(number_);
    if (noted_ == nullptr) return;
    noted_->socket = {};
    noted_->is_taken.store(false, std::memory_order_release);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  bool has_no_room() const { return error_ == EMFILE || error_ == ENFILE; }

 private:
  Connected connect(const ExportToken& token) {
    const NoFork gate;
    const Connected how = connect_to(token.pid, token.instance, &number_);
    if (how != Connected::kYes) return how;
    const auto free = std::find_if(open_sockets.begin(), open_sockets.end(), [](OpenSocket& one) {
      return !one.is_taken.exchange(true, std::memory_order_acquire);
    });
    if (free == open_sockets.end()) return how;
    free->socket = KeptDescriptor(number_);
    noted_ = &*free;
    return how;
  }

  int number_ = -1;
  int error_ = 0;
  OpenSocket* noted_ = nullptr;
};

// What one reply brought; open descriptors are closed with it, and no child is forked as long as there are
// any.
struct Batch {
  std::optional<NoFork> gate;
  Reply reply = {};
  int descriptors[kMostAtOnce] = {};
  size_t count = kMostAtOnce;
  bool lost = false;

  ~Batch() {
    for (size_t i = 0; i < count; ++i) close(descriptors[i]);
  }
};

bool ask(int socket, const Request& request, const Deadline& deadline, Batch* out) {
  if (!send_packet(socket, &request, sizeof request, nullptr, 0)) {
    out->count = 0;
    return false;
  }
  for (;;) {
    out->count = kMostAtOnce;
    out->gate.emplace();
    const int64_t got =
        receive_packet(socket, &out->reply, sizeof out->reply, out->descriptors, &out->count, &out->lost);
    if (got >= 0) return got == sizeof out->reply && out->reply.magic == kReplyMagic;
    const bool may_come = errno == EAGAIN && !deadline.is_over();
    out->gate.reset();
    if (!may_come) return false;
    pollfd one{socket, POLLIN, 0};
    poll(&one, 1, deadline.left_ms());
  }
}

// Whether a reply answers a request and agrees with those before it.
bool is_sound(const Reply& reply, const Request& request, uint32_t total, uint64_t offset) {
  if (reply.count == 0 || reply.count > kMostAtOnce || reply.count > request.most) return false;
  if (reply.total > kMostChunks || request.first >= reply.total || reply.count > reply.total - request.first)
    return false;
  if (request.first != 0) return reply.total == total && reply.offset == offset;
  return reply.offset < reply.bytes[0];
}

}  // namespace

Fetched fetch(const ExportToken& token, Taker& taker, const FetchSettings& settings) {
  const PreserveErrno preserve;
  // Any user may have taken the name of a process that has ended, and would let us wait.
  if (!is_named(token.pid, token.instance, settings.user)) return Fetched::kRefused;
  // One for the whole fetch: an exporter that answers now and then must not hold the program for ever.
  Deadline deadline(settings.patience_ns);
  const Socket socket(token, deadline);
  if (!socket) return socket.has_no_room() ? Fetched::kNoDescriptors : Fetched::kRefused;
  if (!is_user(socket.number(), settings.user)) return Fetched::kRefused;
  Request request = {kRequestMagic, to_handle(token), 0, kMostAtOnce};
  uint64_t offset = 0;
  for (uint32_t total = 1; request.first < total;) {
    Batch batch;
    if (!ask(socket.number(), request, deadline, &batch)) return Fetched::kRefused;
    const Reply& reply = batch.reply;
    if (!is_sound(reply, request, total, offset)) return Fetched::kRefused;
    if (batch.lost) {
      // A process with few descriptors left takes one at a time.
      if (request.most == 1) return Fetched::kNoDescriptors;
      request.most = 1;
      continue;
    }
    if (batch.count != reply.count) return Fetched::kRefused;
    total = reply.total;
    offset = reply.offset;
    const uint64_t taken_from = now_ns();
    for (uint32_t i = 0; i < reply.count; ++i) {
      if (!taker.take(reply.bytes[i], offset, batch.descriptors[i])) return Fetched::kStopped;
    }
    request.first += reply.count;
    // What the taker does is not the exporter's time.
    deadline.extend(now_ns() - taken_from + reply.count * kMillisecond);
  }
  return Fetched::kAll;
}

}  // namespace cupool::share
