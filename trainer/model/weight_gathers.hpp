// weight_gathers.hpp: whole weights where the model needs them, whatever ZeRO keeps of them.
//
// With zero 0 they are there. After an update the gathers of zero 1 and 2 go on behind the next
// step, in the order in which units are needed and no more than a few at a time, because those
// under way share the network: acquire() starts the next ones and waits for its own. With zero 3 a
// unit's are gathered before they are used, the next one's meanwhile, into memory of the pool that
// goes when they are released: up to three units' at a time.
#pragma once

#include <vector>

#include "trainer/device/pool.hpp"
#include "trainer/model/parameter_shards.hpp"

namespace sennit::trainer {

class WeightGathers {
 public:
  // All are used for as long as this lives.
  WeightGathers(const ParameterShards& shards, const Mesh& mesh, Pool& pool);

  // Between acquire() and release() a unit's weights are there; calls nest. `next`: the unit that
  // is needed after it, or -1.
  void acquire(int unit, int next);
  void release(int unit);
  const void* at(const ParameterPlace& place) const;  // of a unit that is acquired

  // ---- new weights ----
  void publish();         // masters were set: what is kept of the weights follows
  void wait(size_t u);    // until nothing of the unit is on its way
  void wait_for_all();    // for what is on its way reads what is kept
  void begin_update();    // no unit's are whole any more
  void forget(size_t u);  // what was gathered of it is old; after wait()
  // What the next step begins with: the first unit is up to date.
  void start_first();

 private:
  struct GatheredUnit {
    void* whole = nullptr;
    PooledMatrix memory;  // zero 3's
    int users = 0;
    Transfer transfer;
  };
  void start(size_t u);
  void start_up_to(size_t u);

  const ParameterShards& shards_;
  const Mesh& mesh_;
  Pool& pool_;
  std::vector<GatheredUnit> units_;
  size_t started_ = SIZE_MAX;  // zero 1, 2: units whose gathers since the last update were started
};

}  // namespace sennit::trainer
