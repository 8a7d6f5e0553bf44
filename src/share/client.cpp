// See client.hpp.
#include "share/client.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.hpp"
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

// Open for one fetch.
class Socket {
 public:
  Socket(const ExportToken& token, const Deadline& deadline) {
    Connected how;
    while ((how = connect_to(token.pid, token.instance, &number_)) == Connected::kBusy) {
      if (deadline.is_over()) return;
      sleep_for(kMillisecond);
    }
    error_ = how == Connected::kYes ? 0 : errno;
  }
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  bool has_no_room() const { return error_ == EMFILE || error_ == ENFILE; }

 private:
  int number_ = -1;
  int error_ = 0;
};

// What one reply brought; open descriptors are closed with it.
struct Batch {
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
    const int64_t got =
        receive_packet(socket, &out->reply, sizeof out->reply, out->descriptors, &out->count, &out->lost);
    if (got >= 0) return got == sizeof out->reply && out->reply.magic == kReplyMagic;
    if (errno != EAGAIN || deadline.is_over()) return false;
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
