// embed.cpp: the embedding's look-up and its gradient (see trainer/device/device.hpp). The gradient
// is cut by columns: many rows may add to one row of the table, and must do so in their order.
#include <cstring>

#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

void CpuDevice::embed(Matrix y, Matrix table, const int32_t* tokens, int64_t first_token) {
  pieces(y.rows, rows_of_piece(y.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++) {
      const int64_t token = tokens[row] - first_token;
      if (token >= 0 && token < table.rows)
        kernels_.convert(at(y, row), y.type, at(table, token), table.type, y.columns);
      else
        std::memset(at(y, row), 0, static_cast<size_t>(y.columns) * bytes_of(y.type));
    }
  });
}

void CpuDevice::embed_gradient(Matrix dtable, const int32_t* tokens, Matrix dy,
                               int64_t first_token) {
  SENNIT_CHECK(dtable.type == Type::f32);
  pieces(dy.columns, 64, [&](int64_t first, int64_t count) {
    for (int64_t row = 0; row < dy.rows; row++) {
      const int64_t token = tokens[row] - first_token;
      if (token >= 0 && token < dtable.rows)
        kernels_.add(at(dtable, token, first), Type::f32, at(dy, row, first), dy.type, count);
    }
  });
}

}  // namespace sennit::trainer
