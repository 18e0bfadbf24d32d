// cases.hpp: tests as data. A case is an input file with the expected text beside it in
// INPUT.expected (or another ending of that kind); adding a case adds no code. UPDATE_EXPECTED=1 in
// the environment writes the expected texts: read the difference before you commit it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sennit {

// The whole file; empty where it cannot be read.
inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline constexpr const char* kExpected = ".expected";
inline constexpr const char* kTree = ".tree";

// The inputs in tests/data/topology/FOLDER, by name: what ends in neither of these.
inline std::vector<std::filesystem::path> inputs_of(const std::string& folder) {
  const std::filesystem::path root =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology" / folder;
  std::vector<std::filesystem::path> inputs;
  EXPECT_TRUE(std::filesystem::is_directory(root)) << root << " has no fixtures";
  if (!std::filesystem::is_directory(root)) return inputs;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.path().extension() != kExpected && entry.path().extension() != kTree)
      inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

// Runs these through `run` (path -> text).
inline void run_cases(const std::vector<std::filesystem::path>& inputs,
                      const std::function<std::string(const std::filesystem::path&)>& run,
                      const std::string& ending = kExpected) {
  ASSERT_FALSE(inputs.empty());
  for (const std::filesystem::path& input : inputs) {
    const std::filesystem::path expected = input.string() + ending;
    const std::string text = run(input);
    if (std::getenv("UPDATE_EXPECTED") != nullptr)
      std::ofstream(expected, std::ios::binary) << text;
    ASSERT_TRUE(std::filesystem::exists(expected)) << expected << " is missing; the text is\n"
                                                   << text;
    EXPECT_EQ(text, read_text(expected)) << input;
  }
}

// Runs every *.EXTENSION in tests/data/topology/FOLDER.
inline void run_cases(const std::string& folder, const std::string& extension,
                      const std::function<std::string(const std::filesystem::path&)>& run,
                      const std::string& ending = kExpected) {
  std::vector<std::filesystem::path> inputs = inputs_of(folder);
  std::erase_if(inputs, [&](const auto& path) { return path.extension() != "." + extension; });
  run_cases(inputs, run, ending);
}

}  // namespace sennit
