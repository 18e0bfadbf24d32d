// environment.cpp: see trainer/model/environment.hpp.
#include "trainer/model/environment.hpp"

#include <cmath>
#include <numbers>

namespace sennit::trainer {

Matrix Environment::gather_rows(Matrix own, PooledMatrix* memory) {
  if (mesh.shape.tensor == 1) return own;
  *memory = pool.take(own.type, rows(), own.columns);
  mesh.tensor
      ->all_gather(own.data, (*memory)->data, static_cast<size_t>(own.rows * own.columns),
                   element_of(own.type))
      .wait();
  return *memory;
}

PooledMatrix Environment::scatter_rows(PooledMatrix partial) {
  if (mesh.shape.tensor == 1) return partial;
  PooledMatrix own = pool.take(partial->type, own_rows(), partial->columns);
  mesh.tensor
      ->reduce_scatter(partial->data, own->data, static_cast<size_t>(own->rows * own->columns),
                       element_of(own->type))
      .wait();
  return own;
}

void set_tokens(Environment& environment, int64_t batch, int64_t length) {
  TokenShape& shape = environment.tokens;
  if (environment.positions && shape.batch == batch && shape.length == length) return;
  shape.batch = batch;
  shape.length = length;
  shape.contexts = environment.mesh.shape.context;
  std::vector<int32_t> positions(static_cast<size_t>(shape.rows()));
  size_t row = 0;
  for (int half = 0; half < shape.halves(); half++)
    for (int64_t sequence = 0; sequence < batch; sequence++)
      for (int64_t i = 0; i < shape.chunk(); i++)
        positions[row++] = static_cast<int32_t>(
            shape.chunk_of(environment.mesh.at.context, half) * shape.chunk() + i);
  environment.positions = environment.pool.take_f32(shape.rows());
  environment.device.upload(environment.positions->data, positions.data(),
                            positions.size() * sizeof(int32_t));
}

void lay_out_tokens(const TokenShape& shape, int context, const int32_t* tokens, int shift,
                    int32_t* rows) {
  for (int half = 0; half < shape.halves(); half++)
    for (int64_t sequence = 0; sequence < shape.batch; sequence++) {
      const int64_t first = shape.chunk_of(context, half) * shape.chunk();
      const int32_t* const from = tokens + sequence * (shape.length + 1) + first + shift;
      rows = std::copy(from, from + shape.chunk(), rows);
    }
}

void rotary_tables(const LlamaConfig& model, int64_t positions, std::vector<float>* cosines,
                   std::vector<float>* sines) {
  const int64_t half = model.head_size / 2;
  cosines->resize(static_cast<size_t>(positions * half));
  sines->resize(cosines->size());
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; i++) {
    double frequency = std::pow(
        model.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(model.head_size));
    if (model.rope_scaling) {
      // Llama 3.1: long wavelengths are stretched, short ones kept, those between blended.
      const RopeScaling& scaling = *model.rope_scaling;
      const double turns =
          static_cast<double>(scaling.original_positions) * frequency / (2 * std::numbers::pi);
      const double kept = (turns - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
      const double share = std::min(1.0, std::max(0.0, kept));
      frequency *= share + (1 - share) / scaling.factor;
    }
    frequencies[static_cast<size_t>(i)] = frequency;
  }
  for (int64_t p = 0; p < positions; p++)
    for (int64_t i = 0; i < half; i++) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      (*cosines)[static_cast<size_t>(p * half + i)] = static_cast<float>(std::cos(angle));
      (*sines)[static_cast<size_t>(p * half + i)] = static_cast<float>(std::sin(angle));
    }
}

}  // namespace sennit::trainer
