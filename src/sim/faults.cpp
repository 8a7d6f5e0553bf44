// Parses CUPOOL_SIM_FAULTS once; the parsed rules live for the life of the process.
// A rule that cannot be read is reported on stderr and left out. No lock: built by a static initialiser.
#include "sim/faults.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "base/say.hpp"
#include "sim/options.hpp"
#include "sim/stub.hpp"

namespace cupool::sim {
namespace {

using Rules = std::map<std::string, const FaultRule*>;

bool parse_when(const std::string& when, FaultRule& rule) {
  if (when == "*") return true;
  char* end = nullptr;
  rule.from = std::strtoull(when.c_str(), &end, 10);
  if (end == when.c_str() || rule.from == 0) return false;
  if (*end == '\0') {
    rule.to = rule.from;
    return true;
  }
  return end[0] == '+' && end[1] == '\0';
}

bool parse_rule(const std::string& text, Rules& rules) {
  const std::size_t at = text.find('@');
  const std::size_t eq = text.find('=', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || eq == std::string::npos || at == 0) return false;
  FaultRule rule;
  if (!parse_when(text.substr(at + 1, eq - at - 1), rule)) return false;
  char* end = nullptr;
  const long code = std::strtol(text.c_str() + eq + 1, &end, 10);
  if (end == text.c_str() + eq + 1 || *end != '\0' || code < 0) return false;
  rule.code = static_cast<CUresult>(code);
  rule.takes_effect = text[eq + 1] == '+';
  const FaultRule*& head = rules[text.substr(0, at)];
  rule.next = head;
  head = new FaultRule(rule);
  return true;
}

const Rules& all_rules() {
  static const Rules* const kept = [] {
    Rules* rules = new Rules;
    const std::string& text = options().faults;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = text.find(',', begin);
      if (end == std::string::npos) end = text.size();
      const std::string one = text.substr(begin, end - begin);
      if (!one.empty() && !parse_rule(one, *rules)) {
        say(stderr, "cupool-sim: cannot read the fault '{}' (NAME@WHEN=CODE)\n", one);
      }
      begin = end + 1;
    }
    return rules;
  }();
  return *kept;
}

}  // namespace

const FaultRule* Site::look_up() {
  const auto found = all_rules().find(name_);
  const FaultRule* const rules = found != all_rules().end() ? found->second : nullptr;
  rules_.store(rules, std::memory_order_release);
  return rules;
}

int answer_of_stub(const char* name) {
  if (all_rules().count(name) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  static std::mutex mutex;
  static auto* const sites = new std::map<std::string, Site>;
  const std::lock_guard<std::mutex> hold(mutex);
  const CUresult injected = sites->try_emplace(name, name).first->second.enter();
  return injected != CUDA_SUCCESS ? injected : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace cupool::sim
