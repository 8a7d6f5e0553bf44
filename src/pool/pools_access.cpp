// Mapped memory and other devices: the program's wishes (peers.hpp) told to the driver, pool by pool, and
// which chunk lies at an address. The driver is called without a lock.
#include "pool/page_map.hpp"
#include "pool/pools.hpp"

namespace cupool::pool {

mapped::Part Pools::chunk_at(Address address) {
  Pool* const pool = page_map.pool_of(address);
  return pool == nullptr ? mapped::Part{} : pool->segments().space().chunk_at(address);
}

std::vector<int> Pools::peers_of(driver::Context context) {
  Guard hold(table_.lock());
  return table_.peers().devices_of(context);
}

bool Pools::set_access(driver::Context owner, const Guest& guest, bool allowed) {
  {
    Guard hold(table_.lock());
    table_.peers().set(owner, guest, allowed);
  }
  return apply_access(owner, guest.device);
}

// Another context of the device may change its wish meanwhile, so each thread checks again after it has told
// the driver: the last one to tell it is right.
bool Pools::apply_access(driver::Context owner, int device) {
  const auto is_allowed = [&] {
    Guard hold(table_.lock());
    return table_.peers().has(owner, device);
  };
  // Meanwhile the owner does not end.
  const InFlight::Call call(in_flight_, owner, InFlight::Kind::kUse);
  Pool* const pool = call.is_open() ? pool_of(owner) : nullptr;
  bool allowed = is_allowed();
  if (pool == nullptr) return allowed;
  for (bool told = !allowed; told != allowed; allowed = is_allowed()) {
    told = allowed;
    if (allowed) {
      pool->segments().space().allow(device);
    } else {
      pool->segments().space().forbid(device);
    }
  }
  return allowed;
}

Pools::Lost Pools::end_access(driver::Context context, uint64_t ending, bool gone) {
  Lost unwanted;
  {
    Guard hold(table_.lock());
    unwanted = table_.peers().end(context, ending, gone);
  }
  Lost lost;
  for (const auto& [owner, device] : unwanted) {
    if (!apply_access(owner, device)) lost.emplace_back(owner, device);
  }
  return lost;
}

}  // namespace cupool::pool
