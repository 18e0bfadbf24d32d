// secret.cpp: see api/start/secret.hpp.
#include "api/start/secret.hpp"

#include <sys/stat.h>

#include <string_view>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/sodium_ready.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kShortSecret = 12;  // characters; below, it is warned of

// From text that somebody may have typed. Each guess at it costs its maker 8 MiB and 7 ms of a core
// as well; ranks that share a host start at the same time, so it must not cost more. That is no
// help to a word or a name: hence the length that is asked for. The salt is what all ranks know
// before they connect, however they are launched: where rank 0 listens. So a table of guesses is
// good for one address and port at most.
Result<std::vector<std::byte>> slow_hash(const std::string& text, const std::string& root) {
  constexpr unsigned long long kPasses = 2;
  constexpr size_t kBytes = size_t{8} << 20;
  unsigned char salt[crypto_pwhash_SALTBYTES];
  crypto_generichash(salt, sizeof salt, reinterpret_cast<const unsigned char*>(root.data()),
                     root.size(), nullptr, 0);
  std::vector<std::byte> key(kSecretBytes);
  if (crypto_pwhash(reinterpret_cast<unsigned char*>(key.data()), key.size(), text.data(),
                    text.size(), salt, kPasses, kBytes, crypto_pwhash_ALG_ARGON2ID13) != 0)
    return Status{SENNIT_OUT_OF_RESOURCES, "SENNIT_SECRET: no memory to hash it (8 MiB)"};
  return key;
}

// "key:" and 64 hexadecimal digits: random already, as launchers make it.
Result<std::vector<std::byte>> random_key(const std::string& digits) {
  std::vector<std::byte> key(kSecretBytes);
  size_t bytes = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(reinterpret_cast<unsigned char*>(key.data()), key.size(), digits.data(),
                     digits.size(), nullptr, &bytes, &end) != 0 ||
      bytes != key.size() || end != digits.data() + digits.size())
    return invalid(
        "SENNIT_SECRET=key:...: expected 64 hexadecimal digits, such as of `openssl rand -hex 32`");
  return key;
}

}  // namespace

Result<std::vector<std::byte>> job_secret(const std::string& root_host, uint16_t root_port,
                                          bool warns) {
  static constexpr std::string_view kFile = "file:";
  static constexpr std::string_view kKey = "key:";
  std::string text = option_text("SENNIT_SECRET");
  if (text.empty()) return std::vector<std::byte>{};
  if (text.starts_with(kFile)) {
    const std::string path = text.substr(kFile.size());
    Result<std::string> read = read_file(path);
    if (!read)
      return Status{SENNIT_NOT_FOUND, fmt::format("SENNIT_SECRET=file:{}", read.status().text())};
    text = *std::move(read);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty()) return invalid(fmt::format("SENNIT_SECRET=file:{}: the file is empty", path));
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IROTH | S_IWOTH)) != 0)
      log(LogLevel::warn,
          "{} holds the job's secret, but everybody on this host may read it: chmod 600", path);
  }
  if (!sodium_ready()) return Status{SENNIT_INTERNAL, "libsodium does not start"};
  if (text.starts_with(kKey)) return random_key(text.substr(kKey.size()));
  if (text.size() < kShortSecret && warns)
    log(LogLevel::warn,
        "SENNIT_SECRET has {} characters: who records the start can find it by trying; use {} or "
        "more that are no words, or key: and the digits of `openssl rand -hex 32`",
        text.size(), kShortSecret);
  return slow_hash(text, fmt::format("sennit secret 3 {}:{}", root_host, root_port));
}

}  // namespace sennit
