// See peers.hpp.
#include "pool/peers.hpp"

#include <algorithm>

namespace cupool::pool {

void Peers::set(driver::Context owner, const Guest& guest, bool allowed) {
  const auto is_same = [&](const Peer& peer) {
    return peer.owner == owner && peer.guest.context == guest.context && peer.ending == 0;
  };
  std::erase_if(all_, is_same);
  if (allowed) all_.push_back({owner, guest, 0});
}

bool Peers::has(driver::Context owner, int device) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Peer& peer) { return peer.owner == owner && peer.guest.device == device; });
}

std::vector<int> Peers::devices_of(driver::Context owner) const {
  std::vector<int> devices;
  for (const Peer& peer : all_) {
    if (peer.owner == owner) devices.push_back(peer.guest.device);
  }
  return devices;
}

void Peers::note_ending(driver::Context context, uint64_t ending) {
  for (Peer& peer : all_) {
    if (peer.ending == 0 && (peer.owner == context || peer.guest.context == context)) peer.ending = ending;
  }
}

// A context with the same handle may be there again: only what was there before the end goes.
Peers::Lost Peers::end(driver::Context context, uint64_t ending, bool gone) {
  Lost all;
  for (Peer& peer : all_) {
    if (peer.ending != ending) continue;
    if (peer.owner != context) all.emplace_back(peer.owner, peer.guest.device);
    if (!gone) peer.ending = 0;
  }
  std::erase_if(all_, [&](const Peer& peer) { return peer.ending == ending; });
  std::erase_if(all, [&](const auto& one) { return has(one.first, one.second); });
  return all;
}

}  // namespace cupool::pool
