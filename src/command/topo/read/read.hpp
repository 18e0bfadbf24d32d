// read.hpp: what `sennit topo` reads: one fabric file, what all sources say here, or what a job
// measures. A source that fails does not keep the others from being heard: its error is shown
// beside what they said.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::topo {

// What one source had to say.
struct SourceReport {
  std::string name;
  int priority = 0;
  bool said = false;  // it had something to say
  std::string error;  // malformed and the like; the other sources went on
  // why it cannot be read here, and what to do; nothing is wrong with the network
  std::string note = {};
  std::string where = {};  // Source::where; empty: nothing beyond the name
};

// What all sources that were asked said, merged.
struct Reading {
  Fabric fabric;
  std::vector<SourceReport> sources;  // by falling priority
  std::string file;  // the fabric file or synthetic specification that was asked for; may be empty
  std::string host;  // this host; empty where a file alone was asked for
  bool outside = false;  // it is not part of the network, and left out
};

// A fabric file of any kind that the file source takes, "synthetic:SPEC", or SPEC where no such
// file exists.
Result<Reading> read_one(const std::string& file);
// All sources, as a job on this host would ask them. An error of SENNIT_FABRIC's file is an error
// here; those of the other sources are in their reports.
Result<Reading> read_here();
// What the job that this process is a rank of finds when it probes; nothing on ranks other than 0.
// Collective over the job. (command/topo/read/probe.cpp)
Result<std::optional<Reading>> read_job();

}  // namespace sennit::topo
