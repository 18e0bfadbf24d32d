// sample.cpp: what a trained model goes on with, token by token (trainer/run/run.hpp). The whole
// text is computed again for each token: there is no cache of keys and values, which on a mesh
// would be one more layout to get right.
#include <algorithm>
#include <cmath>
#include <random>

#include "trainer/data/tokenizer.hpp"
#include "trainer/run/run.hpp"

namespace sennit::trainer {

Result<std::vector<int32_t>> sample_tokens(Trainer& trainer, std::vector<int32_t> tokens,
                                           int64_t count, double temperature, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto window = static_cast<size_t>(trainer.longest());
  for (int64_t i = 0; i < count; i++) {
    const size_t seen = std::min(tokens.size(), window);
    const Result<std::vector<float>> logits = trainer.next_logits(std::span(tokens).last(seen));
    if (!logits) return logits.status();
    const auto largest = std::max_element(logits->begin(), logits->end());
    if (!(temperature > 0)) {
      tokens.push_back(static_cast<int32_t>(largest - logits->begin()));
      continue;
    }
    double sum = 0;
    std::vector<double> shares(logits->size());
    for (size_t t = 0; t < shares.size(); t++)
      sum += shares[t] = std::exp(static_cast<double>((*logits)[t] - *largest) / temperature);
    double left = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
    size_t chosen = 0;
    while (chosen + 1 < shares.size() && (left -= shares[chosen]) > 0) chosen++;
    tokens.push_back(static_cast<int32_t>(chosen));
  }
  return tokens;
}

Result<std::string> sample_text(Trainer& trainer, const TrainConfig& config,
                                const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens = {tokenizer.beginning()};
  Tokenizer::Memory memory;
  tokenizer.encode(config.prompt, &tokens, &memory);
  const Result<std::vector<int32_t>> sampled =
      sample_tokens(trainer, tokens, config.sample_tokens, config.temperature,
                    static_cast<uint64_t>(config.seed));
  if (!sampled) return sampled.status();
  return tokenizer.decode(*sampled);
}

}  // namespace sennit::trainer
